"""Reads a run's config.json. This file has every key name that the check relies on."""

import json
import re
from collections import namedtuple
from types import SimpleNamespace

import position_encodings as position

MODEL_KEYS = {  # name here: (key in "model", value where the key is absent)
    "layers": ("layers", None),
    "width": ("width", None),
    "heads": ("heads", None),
    "kv_heads": ("kv-heads", 0),           # 0: equal to heads
    "norm": ("norm", "layer"),             # layer, rms
    "norm_place": ("norm-place", "pre"),   # pre, post
    "norm_eps": ("norm-eps", 0),           # 0: the usual one
    "residual": ("residual", "sequential"),  # sequential, parallel
    "activation": ("activation", "gelu"),  # gelu, gelu-tanh, relu, swiglu
    "tied": ("tied", False),
    "final_norm": ("final-norm", True),
    "qk_norm": ("qk-norm", "none"),        # none, head, full
}
ENCODING_KEY, ENCODING_OPTIONS_KEY = "pe", "pe-options"
ENCODING_DEFAULTS = {  # the options that formulas or shapes of parameters depend on
    "relative": {"far": "refuse", "distances": 0},
    "rope": {"layout": "half", "rotary-dims": 0, "base": 10000,  # rotary-dims 0: all
             "stretch": "none", "factor": 4, "trained-length": 512,
             "attention-factor": 0, "beta-fast": 32, "beta-slow": 1, "truncate": True,
             "low-freq-factor": 1, "high-freq-factor": 4, "short-factors": "", "long-factors": "",
             "frequencies": "all", "fastest": 0.75, "clipped": 20},
    "carope": {"layout": "half"},
    "selective-rope": {"base": 500000, "temperature": "fixed", "phase-gate": True},
    "contextual-rotary": {"layout": "half", "base": 10000, "rotary-dims": 0, "own": True, "gates": "keys"},
    "xpos": {"layout": "half"},
    "alibi": {"learned": False},
    "kerple": {"kernel": "log"},
    "nexus": {"p-max": 64},
    "cope": {"p-max": 64, "position-scale": "none", "share": "heads", "gates": "keys"},
    "cope-alibi": {"slopes": "halving", "sign": "plus", "first-slope": 1, "p-max": 0, "gates": "keys"},
    "cope-mlp": {"hidden": 64, "layers": "all", "gates": "keys"},
    "fox": {"sign": "plus", "score-scale": "sqrt-d"},
    "stick-breaking": {"remainder": "drop", "attend-current": False},
    "sink": {"remainder": "drop"},
    "sigmoid": {"length": 512, "visible": False, "remainder": "drop"},
    "softpick": {"remainder": "drop"},
    "ssmax": {"bias": False, "whole": False},
    "gated": {"per": "element"},
    "dape": {"bias": "kerple", "hidden": 32, "slope": 0.01},
    "dape2": {"bias": "kerple", "kernel": 3, "hidden": 32, "slope": 0.01, "edge": "zeros"},
    "mta": {"queries": 6, "keys": 11, "mix": "both", "group": 0, "after": True, "norm": True, "gate": True},
    "path": {"rank": 32, "conv": True, "conv-size": 3, "qk-norm": False, "forget": False, "gate-scale": "sqrt-d"},
    "selective": {"selector": "first", "bos": True},
    "wall": {"scalar-gate": False, "qk-norm": False},
    "grape-a": {"gate": "key"},
    "grape-ap": {"form": "turned", "width": 8},
    "grape-m": {"steps": "one", "share": "heads", "layout": "half"},
    "bam": {"location": False},
    "relative-bank": {"width": 16, "extent": 1024, "score-scale": "sqrt-d", "log-length": 0, "log-scale": 0.1,
                      "qk-norm": False, "conv-size": 0},
    "pope": {"base": 10000, "rotary-dims": 0},
    "repo": {"base": 500000, "hidden": 0, "rope-layers": 0},
}

# Heads first .. end-1 of a layer, the encodings that act on them, and the mask of their queries.
Group = namedtuple("Group", "first end names sight", defaults=(position.Sight(),))


def read(path):
    with open(path, encoding="utf-8") as file:
        return from_dict(json.load(file))


def from_dict(config):
    given = config["model"]
    if given.get("kind", "transformer") != "transformer":
        raise ValueError(f"config: model.kind is '{given['kind']}'; the model of this check is a transformer")
    model = {name: given.get(key, default) for name, (key, default) in MODEL_KEYS.items()}
    absent = [MODEL_KEYS[name][0] for name, value in model.items() if value is None]
    if absent:
        raise ValueError(f"config: model has no {', '.join(absent)}")
    options = config.get(ENCODING_OPTIONS_KEY, {})
    groups = groups_of_layers(config[ENCODING_KEY], model["layers"], model["heads"])
    names = names_in(groups)
    for name in names:
        if not position.known(name):
            raise ValueError(f"encoding '{name}' has no function in position_encodings.py")
    merged = {name: {**ENCODING_DEFAULTS.get(name, {}), **options.get(name, {})} for name in names}
    return SimpleNamespace(**model, groups=groups, options=merged)


def groups_of_layers(text, layers, heads):
    """"cope+rope", "0:none,1-3:cope" or "0:rope[window=3,first=1],1-3:cope@0-1,alibi@2-3" -> for every layer its groups
    of heads."""
    def bounds(span):
        first, last = (span.split("-") * 2)[:2]
        return int(first), int(last)

    result, which = [[] for _ in range(layers)], (0, layers - 1)
    for assignment in re.split(r",(?![^\[]*\])", text):  # commas within brackets part nothing
        if ":" in assignment:
            span, assignment = assignment.split(":")
            which = bounds(span)
        assignment, _, span = assignment.partition("@")
        names, _, seen = assignment.removesuffix("]").partition("[")
        limits = dict(limit.split("=") for limit in seen.split(",")) if seen else {}
        sight = position.Sight(**{name: int(number) for name, number in limits.items()})
        first, last = bounds(span) if span else (0, heads - 1)
        for layer in range(which[0], which[1] + 1):
            result[layer].append(Group(first, last + 1, sorted(names.split("+")), sight))
    for index, groups in enumerate(result):
        groups.sort()
        if [head for group in groups for head in range(group.first, group.end)] != list(range(heads)):
            raise ValueError(f"'{text}' does not name every head of layer {index} once")
    return result


def names_in(groups_of_all):
    """Every encoding that acts in some layer."""
    return sorted({name for groups in groups_of_all for group in groups for name in group.names})
