"""Small models for the self-test: configurations, random parameters and a batch."""

import numpy as np

import config as run_config
import model
import position_encodings as position

B, T, V, WIDTH, HEADS, LAYERS, HIDDEN = 2, 6, 5, 8, 2, 2, 12

MODELS = {
    "pre-norm layer gelu": {},
    "post-norm layer relu tied": {"norm-place": "post", "activation": "relu", "tied": True, "final-norm": False},
    "pre-norm rms swiglu": {"norm": "rms", "activation": "swiglu"},
    "parallel gelu-tanh eps": {"residual": "parallel", "activation": "gelu-tanh", "norm-eps": 0.01},
    "norms of q and k by head": {"qk-norm": "head"},
    "norms of q and k over all heads": {"qk-norm": "full", "norm": "rms", "kv-heads": 1},
}
ENCODINGS = [
    ("none", {}), ("absolute", {}), ("sinusoidal", {}),
    ("relative", {}), ("relative", {"far": "cap", "rows": 4}), ("relative", {"far": "none", "rows": 4}),
    ("relative", {"shared": True}),
    ("rope", {}), ("rope", {"layout": "interleaved", "base": 100}), ("rope", {"rotary-dims": 2}),
    ("rope", {"rotary-dims": 2, "layout": "interleaved"}),
    ("rope", {"stretch": "pi"}), ("rope", {"stretch": "ntk", "layout": "interleaved"}),
    ("rope", {"stretch": "yarn", "trained-length": 64}),
    ("rope", {"stretch": "llama3", "trained-length": 16}),
    ("rope", {"stretch": "longrope", "trained-length": 5, "short-factors": "1/2", "long-factors": "1.5/4"}),
    ("rope", {"stretch": "longrope", "trained-length": 6, "short-factors": "1/2"}), ("xpos", {}), ("xpos", {"layout": "interleaved"}),
    ("alibi", {}), ("alibi", {"learned": True}), ("t5", {}), ("transformer-xl", {}),
    ("kerple", {}), ("kerple", {"kernel": "power"}), ("fire", {}), ("nexus", {"rows": 3}),
    ("hard", {}), ("absolute+hard", {}),
    ("cope", {"rows": 3}), ("cope", {"rows": 8}), ("cope", {"rows": 3, "position-scale": "sqrt-d"}),
    ("cope", {"rows": 3, "gates": "sep-keys"}), ("cope", {"rows": 3, "gates": "values"}),
    ("cope", {"rows": 3, "per-head": True}), ("cope", {"rows": 3, "shared": True}),
    ("cope+rope", {"cope": {"rows": 3}}), ("cope+rope", {"cope": {"rows": 3, "gates": "values", "rotated-query": True}}),
    ("cope+relative", {"cope": {"rows": 3}}),
    ("cope-alibi", {}), ("cope-alibi", {"slopes": "alibi", "sign": "minus"}),
    ("cope-alibi", {"slopes": "learned", "gates": "sep-keys"}), ("cope-alibi", {"p-max": 2}),
    ("cope-mlp", {"rows": 3}), ("cope-mlp", {"rows": 3, "gates": "values"}), ("0:cope-mlp,1:none", {"cope-mlp": {"rows": 3}}),
    ("fox", {}), ("fox-pro", {}), ("fox-pro+rope", {}),
    ("stick-breaking", {}), ("stick-breaking", {"remainder": "value"}), ("stick-breaking", {"remainder": "bias"}),
    ("stick-breaking", {"attend-current": True, "remainder": "bias"}), ("relative+stick-breaking", {}),
    ("0:none,1:cope", {"cope": {"rows": 3}}),
    ("cope@0,alibi@1", {"cope": {"rows": 3, "gates": "sep-keys"}, "alibi": {"learned": True}}),
    ("0:cope+rope@0,cope@1,1:relative", {"cope": {"rows": 3}}),
    ("fox", {"sign": "minus"}), ("fox", {"sign": "minus", "score-scale": "none"}),
    ("cope+fox", {"cope": {"rows": 3, "gates": "values"}, "fox": {"score-scale": "none"}}),
    ("rope", {"frequencies": "fastest", "fastest": 0.5}), ("rope", {"frequencies": "clip"}),
    ("rope", {"frequencies": "clip-hard", "clipped": 1, "stretch": "pi"}),
    ("carope", {}), ("carope", {"layout": "interleaved"}), ("carope+fox-pro", {}),
    ("selective-rope", {}), ("selective-rope", {"phase-gate": False, "base": 100}),
    ("selective-rope", {"temperature": "learned"}),
    ("cope+selective-rope", {"cope": {"rows": 3, "gates": "values", "rotated-query": True}}),
    ("sink", {}), ("sink", {"remainder": "value"}), ("sink", {"remainder": "bias"}),
    ("sigmoid", {}), ("sigmoid", {"length": 4, "remainder": "value"}),
    ("sigmoid", {"visible": True, "remainder": "bias"}),
    ("softpick", {}), ("softpick", {"remainder": "value"}), ("softpick", {"remainder": "bias"}),
    ("fox-pro+sink", {"sink": {"remainder": "value"}}), ("cope+sigmoid", {"cope": {"rows": 3}}), ("alibi+softpick", {}),
    ("ssmax", {}), ("ssmax", {"bias": True}), ("cope+rope+ssmax", {"cope": {"rows": 3}}),
    ("ssmax", {"bias": True, "whole": True}), ("cope+fox+ssmax", {"cope": {"rows": 3}, "ssmax": {"whole": True}}),
    ("relative+ssmax[window=3,first=1]", {"ssmax": {"bias": True, "whole": True}}),
    ("gated", {}), ("gated", {"per": "head"}), ("fox-pro+gated", {}),
    ("dape", {"rows": 4}), ("dape", {"rows": 4, "bias": "none"}), ("dape", {"rows": 4, "bias": "alibi", "slope": 0.2}),
    ("dape2", {"rows": 4}), ("dape2", {"rows": 4, "bias": "none", "kernel": 5}), ("dape2", {"rows": 4, "bias": "alibi"}),
    ("dape2", {"rows": 4, "edge": "authors"}),
    ("dape+fox+rope", {"dape": {"rows": 4}}), ("0:dape2@0,none@1,1:dape2", {"dape2": {"rows": 4}}),
    ("mta", {}), ("mta", {"queries": 2, "keys": 1, "group": 1}), ("mta", {"left-out": ("kernel-after", "mix", "norm.weight")}),
    ("mta", {"left-out": ("mix-after", "gate.weight", "gate.bias")}), ("alibi+mta", {}),
    ("dape[window=3,first=1]", {"rows": 4}), ("dape2[window=3,first=1]", {"rows": 4}), ("mta[chunk=4]", {}),
    ("none[window=3]", {}), ("alibi+rope[window=4,chunk=3,first=1]", {}), ("hard[chunk=3]", {}),
    ("cope[window=3,first=1]", {"rows": 3}), ("cope-alibi[chunk=4]", {}), ("cope-mlp[window=3]", {"rows": 3}),
    ("stick-breaking[window=3]", {"remainder": "value"}), ("fox[chunk=3]", {}), ("fox-pro[window=3,first=1]", {}),
    ("sink[window=3]", {}), ("sigmoid[window=3]", {"visible": True}), ("softpick[chunk=4]", {}),
    ("ssmax[window=3,first=1]", {}), ("0:rope[window=2]@0,none@1,1:none", {}),
    ("0:cope[window=3]@0,cope@1,1:alibi", {"cope": {"rows": 3}}),
    ("path", {}), ("path", {"rows": 0, "conv": False}), ("path", {"forget": True}),
    ("path", {"forget": True, "gate-scale": "none", "qk-norm": True}), ("path+rope", {"path": {"qk-norm": True}}),
    ("cope+path", {"cope": {"rows": 3}}), ("fox+path", {"fox": {"score-scale": "none"}}), ("path[window=3]", {}),
    ("wall", {}), ("wall", {"scalar-gate": True}), ("wall", {"qk-norm": True}), ("rope+wall", {}),
    ("contextual-rotary", {}), ("contextual-rotary", {"layout": "interleaved", "own": False, "gates": "sep-keys"}),
    ("contextual-rotary+fox", {"contextual-rotary": {"rotary-dims": 2}, "fox": {"score-scale": "none"}}),
    ("contextual-rotary+rope[window=3,first=1]", {}),
    ("tra", {}), ("tra[window=3]", {}), ("alibi+tra", {}), ("sink+tra", {}), ("softpick+tra", {}),
    ("selective", {}), ("selective", {"selector": "own", "bos": False}), ("selective", {"selector": "projection"}),
    ("rope+selective", {}), ("selective[window=3,first=1]", {}), ("selective+stick-breaking", {}),
    ("fox+wall", {"fox": {"score-scale": "none"}}), ("wall[chunk=4]", {}),
]
GROUPED = [  # with fewer heads of keys
    ("cope", {"rows": 3, "gates": "sep-keys"}), ("nexus", {"rows": 3}), ("fox-pro", {}), ("ssmax", {"bias": True}),
    ("contextual-rotary", {"gates": "sep-keys"}),
    ("sink", {"remainder": "value"}), ("gated", {}), ("carope", {}), ("selective-rope", {}), ("mta", {}),
    ("path", {"forget": True, "qk-norm": True}), ("wall", {"scalar-gate": True, "qk-norm": True}),
]


def encoding_parameters(random, name, options, owner, heads=HEADS, key_heads=HEADS):
    """Start values of an encoding on so many heads; `rows`, `shared` and `per-head` say which shapes."""
    width, rows = WIDTH // HEADS, options.get("rows", T)
    remainder = {"remainder": (heads, width)} if options.get("remainder") == "bias" else {}
    gates = heads if options.get("per") == "head" else heads * width
    forget = {"forget.weight": (heads, WIDTH), "forget.bias": (heads,)}
    inputs, taps = heads * (1 if options.get("bias") == "none" else 2), (options.get("kernel", 3),)
    kernel, group = (heads, options.get("queries", 3), options.get("keys", 5)), options.get("group", heads)

    def network(*taps):  # over the heads
        bias = {"bias.r1": (heads,), "bias.r2": (heads,)} if options.get("bias", "kerple") == "kerple" else {}
        return {"hidden.weight": (rows, inputs, *taps), "hidden.bias": (rows,), "output.weight": (heads, rows, *taps),
                "output.bias": (heads,), **bias}

    norms = {"query-norm.weight": (heads, width), "key-norm.weight": (key_heads, width)}
    shapes = {
        "absolute": {"table": (T + 2, WIDTH)},
        "relative": {"table": (rows, width)},
        "alibi": {"slopes": (heads,)} if options.get("learned") else {},
        "t5": {"biases": (heads, 32)},
        "transformer-xl": {"content": (heads, width), "place": (heads, width), "distances": (heads * width, WIDTH)},
        "kerple": {"r1": (heads,), "r2": (heads,)},
        "fire": {"c": (1,), "m": (1,), "hidden.weight": (32, 1), "hidden.bias": (32,), "output.weight": (heads, 32),
                 "output.bias": (heads,)},
        "nexus": {"gate.weight": (key_heads, WIDTH), "gate.bias": (key_heads,), "query.weight": (width, width),
                  "table": (rows, width)},
        "cope": {"table": (heads, rows, width) if options.get("per-head") else (rows, width)},
        "cope-alibi": {"slopes": (heads,)} if options.get("slopes") == "learned" else {},
        "cope-mlp": {"hidden.weight": (rows,), "hidden.bias": (rows,), "output.weight": (width, rows),
                     "output.bias": (width,)},
        "fox": forget,
        "fox-pro": {**forget, "key-shift.weight": (key_heads, WIDTH), "value-shift.weight": (key_heads, WIDTH),
                    **norms,
                    "output-norm.weight": (heads, width), "output-gate.weight": (heads * width, WIDTH)},
        "stick-breaking": remainder, "sigmoid": remainder, "softpick": remainder,
        "sink": {"logit": (heads,), **remainder},
        "ssmax": {"factor": (heads,), "bias": (heads,)} if options.get("bias") else {"factor": (heads,)},
        "gated": {"gate.weight": (gates, WIDTH), "gate.bias": (gates,)},
        "carope": {"frequency.weight": (key_heads, WIDTH), "frequency.bias": (key_heads,)},
        "selective-rope": {
            "angle.weight": (key_heads, width // 2, width), "conv.weight": (key_heads, width // 2, 4),
            **({"gate.weight": (key_heads, WIDTH), "gate.bias": (key_heads,)} if options.get("phase-gate", True) else {}),
            **({"temperature": (width // 2,)} if options.get("temperature") == "learned" else {})},
        "dape": network(), "dape2": network(*taps),
        "mta": {"kernel": kernel, "kernel-after": kernel, "mix": (heads, heads),
                "mix-after": (heads // group, group, group), "norm.weight": (width,), "gate.weight": (1, width),
                "gate.bias": (1,)},
        "path": {
            **({"down.weight": (rows, WIDTH), "up.weight": (key_heads * width, rows)} if rows
               else {"direction.weight": (key_heads * width, WIDTH)}),
            **({"conv.weight": (key_heads, width, 3)} if options.get("conv", True) else {}),
            "strength.weight": (key_heads, WIDTH), "strength.bias": (key_heads,),
            **(norms if options.get("qk-norm") else {}), **(forget if options.get("forget") else {})},
        "tra": {"threshold.weight": (heads, WIDTH), "threshold.bias": (heads,)},
        "selective": {"selector.query.weight": (width, WIDTH), "selector.key.weight": (width, WIDTH)}
                     if options.get("selector") == "projection" else {},
        "wall": {"decay.weight": (heads * width, WIDTH), "decay.bias": (heads * width,),
                 **(norms if options.get("qk-norm") else {}), **(forget if options.get("scalar-gate") else {})},
    }.get(name, {})
    shapes = {key: shape for key, shape in shapes.items() if key not in options.get("left-out", ())}
    if options.get("gates") == "sep-keys":
        shapes |= {"gate.weight": (key_heads * width, WIDTH), "gate.bias": (key_heads * width,)}
    arrays = {f"{owner}.{key}": random.normal(size=shape) for key, shape in shapes.items()}
    return {key: np.abs(array) if key.endswith((".r1", ".r2")) else array for key, array in arrays.items()}


def example(model_options, pe, options, seed=1):
    """A configuration, its parameters and a batch."""
    random = np.random.RandomState(seed)
    names = run_config.names_in(run_config.groups_of_layers(pe, LAYERS, HEADS))
    by_name = {name: options.get(name, options if names == [name] else {}) for name in names}
    config = run_config.from_dict({"model": {"layers": LAYERS, "width": WIDTH, "heads": HEADS, **model_options},
                                   "pe": pe, "pe-options": by_name})
    shapes = {"model.embedding.weight": (V, WIDTH)}

    def norm(name, width=WIDTH):
        shapes[f"{name}.weight"] = (width,)
        if config.norm == "layer":
            shapes[f"{name}.bias"] = (width,)

    def linear(name, inputs, outputs):
        shapes[f"{name}.weight"] = (outputs, inputs)
        shapes[f"{name}.bias"] = (outputs,)

    for n in range(LAYERS):
        for part in ("query", "key", "value", "output"):
            fewer = config.kv_heads and part in ("key", "value")
            linear(f"model.blocks.{n}.attention.{part}", WIDTH, WIDTH // HEADS * config.kv_heads if fewer else WIDTH)
        for part, heads in (("query", HEADS), ("key", config.kv_heads or HEADS)):
            if config.qk_norm != "none":
                norm(f"model.blocks.{n}.attention.{part}_norm", WIDTH // HEADS * (heads if config.qk_norm == "full" else 1))
        for part in ("up", "gate") if config.activation == "swiglu" else ("up",):
            linear(f"model.blocks.{n}.mlp.{part}", WIDTH, HIDDEN)
        linear(f"model.blocks.{n}.mlp.down", HIDDEN, WIDTH)
        norm(f"model.blocks.{n}.attention_norm")
        norm(f"model.blocks.{n}.mlp_norm")
    if config.final_norm:
        norm("model.norm")
    if not config.tied:
        shapes["model.head.weight"] = (V, WIDTH)
    arrays = {name: random.normal(size=shape) * 0.5 for name, shape in shapes.items()}
    for name in names:
        whole = name in position.HOOKS["embed"] or by_name[name].get("shared")
        if whole:
            arrays |= encoding_parameters(random, name, by_name[name], f"model.position.{name}")
            continue
        for n, groups in enumerate(config.groups):
            for group in groups:
                if name in group.names:
                    owner = f"model.blocks.{n}.position.{model.owner_of(name, group, groups)}"
                    heads = group.end - group.first
                    key_heads = max(1, heads * (config.kv_heads or HEADS) // HEADS)
                    arrays |= encoding_parameters(random, name, by_name[name], owner, heads, key_heads)
    tokens = random.randint(V, size=(B, T + 1)).astype(np.int32)
    mask = random.uniform(size=(B, T)) < 0.7
    return config, arrays, {"tokens": tokens[:, :-1], "targets": tokens[:, 1:], "loss_mask": mask, "score_mask": mask}
