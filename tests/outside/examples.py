"""Small models for the self-test: configurations, random parameters and a batch."""

import numpy as np

import config as run_config
import model
import position_encodings as position

T, V, WIDTH, HEADS, LAYERS, HIDDEN = 6, 5, 8, 2, 2, 12

MODELS = {
    "pre-norm layer gelu": {},
    "post-norm layer relu tied": {"norm-place": "post", "activation": "relu", "tied": True, "final-norm": False},
    "pre-norm rms swiglu": {"norm": "rms", "activation": "swiglu"},
    "parallel gelu-tanh eps": {"residual": "parallel", "activation": "gelu-tanh", "norm-eps": 0.01},
    "norms of q and k by head": {"qk-norm": "head"},
    "norms of q and k over all heads": {"qk-norm": "full", "norm": "rms", "kv-heads": 1},
}
ENCODINGS = [  # all that a model does with encodings; tests/reference has each encoding and option
    ("none", {}), ("absolute", {}), ("sinusoidal", {}), ("relative", {"share": "model"}), ("rope", {}), ("fox", {}),
    ("cope", {"p-max": 2, "share": "none"}), ("cope", {"p-max": 2, "share": "layers"}),
    ("cope+rope", {"cope": {"p-max": 2, "gates": "values", "rotated-query": True}}),
    ("0:cope-mlp,1:none", {"cope-mlp": {"hidden": 3, "gates": "sep-keys"}}),
    ("0:none,1:cope", {"cope": {"p-max": 2}}),
    ("cope@0,alibi@1", {"cope": {"p-max": 2, "gates": "sep-keys"}, "alibi": {"learned": True}}),
    ("0:cope+rope@0,cope@1,1:relative", {"cope": {"p-max": 2}}),
    ("cope+fox", {"cope": {"p-max": 2, "gates": "values"}, "fox": {"score-scale": "none"}}),
    ("fox-pro+sink", {"sink": {"remainder": "value"}}), ("alibi+softpick", {}), ("stick-breaking", {"remainder": "bias"}),
    ("cope+fox+ssmax", {"cope": {"p-max": 2}, "ssmax": {"whole": True}}), ("alibi+mta", {"mta": {"queries": 3, "keys": 5}}),
    ("0:dape2@0,none@1,1:dape2", {"dape2": {"hidden": 4}}), ("tra[window=3]", {}), ("selective[window=3,first=1]", {}),
    ("alibi+rope[window=4,chunk=3,first=1]", {}), ("0:rope[window=2]@0,none@1,1:none", {}),
    ("0:cope[window=3]@0,cope@1,1:alibi", {"cope": {"p-max": 2}}),
]
GROUPED = [  # with fewer heads of keys
    ("cope", {"p-max": 2, "gates": "sep-keys"}), ("nexus", {"p-max": 2}), ("fox-pro", {}), ("ssmax", {"bias": True}),
    ("contextual-rotary", {"gates": "sep-keys"}),
    ("sink", {"remainder": "value"}), ("gated", {}), ("carope", {}), ("selective-rope", {}),
    ("mta", {"queries": 3, "keys": 5}),
    ("relative-bank", {"conv-size": 2, "qk-norm": True}), ("pope", {"rotary-dims": 3}), ("repo", {}),
    ("path", {"rank": 6, "forget": True, "qk-norm": True}), ("wall", {"scalar-gate": True, "qk-norm": True}),
    ("grape-a", {"gate": "both"}), ("grape-ap", {"width": 4}), ("grape-ap", {"form": "per-row", "width": 3}),
    ("grape-m", {"share": "none", "steps": "softplus"}),
]


def encoding_parameters(random, name, options, owner, heads=HEADS, key_heads=HEADS):
    """Start values of an encoding on this number of heads."""
    shapes = position.parameter_shapes(name, position.Sizes(heads, key_heads, WIDTH // HEADS, WIDTH, T + 2), options)
    arrays = {f"{owner}.{key}": random.normal(size=shape) for key, shape in shapes.items()}
    return {key: np.abs(array) if key.endswith((".r1", ".r2")) else array for key, array in arrays.items()}


def example(model_options, pe, options, sequences=1, seed=1):
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
        if name in position.HOOKS["embed"] or by_name[name].get("share") in ("model", "layers"):
            arrays |= encoding_parameters(random, name, config.options[name], f"model.position.{name}")
            continue
        for n, groups in enumerate(config.groups):
            for group in groups:
                if name in group.names:
                    owner = f"model.blocks.{n}.position.{model.owner_of(name, group, groups)}"
                    heads = group.end - group.first
                    key_heads = max(1, heads * (config.kv_heads or HEADS) // HEADS)
                    arrays |= encoding_parameters(random, name, config.options[name], owner, heads, key_heads)
    tokens = random.randint(V, size=(sequences, T + 1)).astype(np.int32)
    mask = random.uniform(size=(sequences, T)) < 0.7
    return config, arrays, {"tokens": tokens[:, :-1], "targets": tokens[:, 1:], "loss_mask": mask, "score_mask": mask}
