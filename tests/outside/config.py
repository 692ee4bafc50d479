"""Reads a run's config.json. Every key name this check relies on stands in this file."""

import json
from types import SimpleNamespace

import position_encodings as position

MODEL_KEYS = {  # name here: (key in "model", value where the key is absent)
    "layers": ("layers", None),
    "width": ("width", None),
    "heads": ("heads", None),
    "norm": ("norm", "layer"),             # layer, rms
    "norm_place": ("norm-place", "pre"),   # pre, post
    "activation": ("activation", "gelu"),  # gelu, relu, swiglu
    "tied": ("tied", False),
    "final_norm": ("final-norm", True),
}
ENCODING_KEY, ENCODING_OPTIONS_KEY = "pe", "pe-options"
ENCODING_DEFAULTS = {  # what the formulas need to know; the shapes of the parameters say the rest
    "relative": {"far": "refuse"},
    "rope": {"layout": "half", "rotary-dims": 0, "base": 10000},  # rotary-dims 0: all
    "alibi": {"learned": False},
    "cope": {"position-scale": "none", "gates": "keys"},
}


def read(path):
    with open(path, encoding="utf-8") as file:
        return from_dict(json.load(file))


def from_dict(config):
    given = config["model"]
    model = {name: given.get(key, default) for name, (key, default) in MODEL_KEYS.items()}
    absent = [MODEL_KEYS[name][0] for name, value in model.items() if value is None]
    if absent:
        raise ValueError(f"config: model has no {', '.join(absent)}")
    options = config.get(ENCODING_OPTIONS_KEY, {})
    layers = encodings_of_layers(config[ENCODING_KEY], model["layers"])
    names = sorted({name for names in layers for name in names})
    for name in names:
        if not position.known(name):
            raise ValueError(f"encoding '{name}' has no function in position_encodings.py")
    merged = {name: {**ENCODING_DEFAULTS.get(name, {}), **options.get(name, {})} for name in names}
    return SimpleNamespace(**model, encodings=layers, options=merged)


def encodings_of_layers(text, layers):
    """"cope+rope" or "0:none,1-3:cope" -> a list of names for every layer."""
    if "@" in text:
        raise ValueError(f"encodings by head group are not covered: '{text}'")
    if ":" not in text:
        return [text.split("+")] * layers
    result = [["none"]] * layers
    for part in text.split(","):
        which, names = part.split(":")
        first, last = (which.split("-") * 2)[:2]
        for index in range(int(first), int(last) + 1):
            result[index] = names.split("+")
    return result
