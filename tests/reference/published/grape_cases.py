"""Published code: GRAPE in its additive and multiplicative forms, per-row forgetting, and BAM's prior."""

from types import SimpleNamespace
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn

from published_case import Sizes, Source, published
from published_code import Given, attend, by_head, by_token, merged, scores, split, with_parameters

ADDITIVE, EARLIER, NOW = "yifanzhang-pro/GRAPE", "model-architectures/GRAPE", "tensorgi/GRAPE"
KEY_GATED = Source(ADDITIVE, "model/llama-mha-grape-a-keygated.py", "7f1449dee39e",
                   ["_softplus_inverse", "_get_alibi_slopes", "KeyGatedAdditiveBias"])
BOTH_GATED = Source(ADDITIVE, "model/llama-mha-grape-a-querykeygated.py", "7f1449dee39e",
                    ["_softplus_inverse", "_get_alibi_slopes", "QueryKeyGatedAdditiveBias"])
PATH = Source(NOW, "model/llama-mha-grape-ap-v1.py", "a7ee6514a0a9",
              ["Rotary", "apply_rotary_emb", "_get_alibi_slopes", "CausalSelfAttention"])
TURN = ["_softplus_inverse", "apply_rotary_emb", "MSGRAPEContextType1", "CausalSelfAttention"]
STEPS = {"softplus": Source(EARLIER, "model/llama-mha-grape-m-ctx.py", "73b223161fde", TURN),
         "sigmoid": Source(NOW, "model/llama-mha-grape-m-ctx.py", "a7ee6514a0a9", TURN)}
FREQUENCIES = Source(EARLIER, "model/llama-mha-grape-m-nonctx.py", "135ee30e5e25",
                     ["apply_rotary_emb", "MSGRAPECommuting"])
PER_ROW = Source("lucidrains/x-transformers", "x_transformers/x_transformers.py", "2.31.10",
                 ["PerRowDataDependentAlibi"], {"Rearrange": lambda *_, **__: nn.Identity()})
PRIOR = Source("ArthurSBianchessi/BAM", "models/bam.py", "9891050596e5", ["AttentionPrior"],
               {"print0": lambda *_: None})


@published("grape-a", KEY_GATED, "grape-a", {"gate": "key"}, lambda s: {"rate": (s.H,), "key": (s.H, s.d)})
def key_gated(code, t, s):
    bias = with_parameters(code.KeyGatedAdditiveBias(s.H, s.d), omega=t["rate"], u=t["key"])(by_token(t["k"]))
    return attend(scores(t["q"], t["k"]) + bias, t["v"])


@published("grape-a-both", BOTH_GATED, "grape-a", {"gate": "both"},
           lambda s: {"rate": (s.H,), "query": (s.H, s.d), "key": (s.H, s.d)}, sizes=Sizes(H=3))
def both_gated(code, t, s):
    gates = with_parameters(code.QueryKeyGatedAdditiveBias(s.H, s.d), omega=t["rate"], u=t["key"], v=t["query"])
    return attend(scores(t["q"], t["k"]) + gates(by_token(t["q"]), by_token(t["k"])), t["v"])


def layer_of(code, t, s, **settings):
    """The attention layer, with given projections and without norms."""
    config = SimpleNamespace(n_head=s.H, n_embd=s.D, head_dim=s.d, n_layer=1, using_groupnorm=False,
                             use_qk_rmsnorm=False, **settings)
    return with_parameters(code.CausalSelfAttention(config), c_q=Given(merged(t["q"])), c_k=Given(merged(t["k"])),
                           c_v=Given(merged(t["v"])), c_proj=nn.Identity())


def with_eps_of_f32(x, shape):
    return plain_rms_norm(x, shape, eps=2.0 ** -23)


plain_rms_norm = F.rms_norm


@published("grape-ap", PATH, "grape-ap", {"width": "8"}, lambda s: {"path.weight": (8 * s.H, s.D)},
           changed="the eps of the norm of p is that of f32")
def path(code, t, s):
    layer = with_parameters(layer_of(code, t, s, p_head_dim=8), c_p__weight=t["path.weight"])
    with mock.patch.object(F, "rms_norm", with_eps_of_f32):
        return split(layer(t["x"]), s.H)


@published("grape-ap-per-row", PER_ROW, "grape-ap", {"form": "per-row", "width": "8"},
           lambda s: {"query.weight": (8 * s.H, s.D), "key.weight": (8 * s.H, s.D)})
def per_row(code, t, s):
    rows = [split(F.linear(t["x"], t[f"{name}.weight"]), s.H) for name in ("query", "key")]
    module = with_parameters(code.PerRowDataDependentAlibi(s.D, s.H), to_forget_gates=Given(rows))
    return attend(scores(t["q"], t["k"]) + module(t["x"]), t["v"])


def frequencies(s, share="heads"):
    return {"frequencies": ((s.H if share == "none" else 1) * (s.d // 2),)}


def steps(s):
    return frequencies(s) | {"step.weight": (1, s.D), "step.bias": (1,)}


def slower(inputs):
    inputs["frequencies"] *= 0.5


def turned_back(t):
    """q and k with their second halves negated, which turns the other way."""
    half = t["q"].size(-1) // 2
    sign = torch.cat([torch.ones(half), -torch.ones(half)])
    return t | {"q": t["q"] * sign, "k": t["k"] * sign}


TABLES = "cos and sin are not rounded to bf16"


def learned(file, share):
    @published(file, FREQUENCIES, "grape-m", {"share": share}, lambda s: frequencies(s, share), sizes=Sizes(d=6),
               adjust=slower, changed=TABLES)
    def run(code, t, s):
        rotary = code.MSGRAPECommuting(s.H, s.d, share_across_heads=share == "heads", cache_dtype=torch.float64)
        rotary = with_parameters(rotary, log_freq=t["frequencies"].reshape(-1, s.d // 2).squeeze(0))
        given = turned_back(t)
        q, k = rotary(by_token(given["q"]), by_token(given["k"]))
        return attend(scores(by_head(q), by_head(k)), t["v"])


learned("grape-m", "heads")
learned("grape-m-share-none", "none")


def contextual(name):
    @published(f"grape-m-{name}", STEPS[name], "grape-m", {"steps": name}, steps, adjust=slower, changed=TABLES)
    def run(code, t, s):
        with mock.patch.object(torch, "bfloat16", torch.float64):
            layer = with_parameters(layer_of(code, turned_back(t), s), grape__log_freq=t["frequencies"],
                                    omega_proj__weight=t["step.weight"], omega_proj__bias=t["step.bias"])
            return split(layer(t["x"]), s.H)


contextual("softplus")
contextual("sigmoid")


def prior(file, location):
    shapes = ["scale", "shape"] + (["location"] if location else [])

    @published(file, PRIOR, "bam", {"location": str(location).lower()},
               lambda s: {name: (s.H,) for name in shapes}, adjust=below_one)
    def run(code, t, s):
        args = SimpleNamespace(max_seq_len=s.T, n_heads=s.H, scale_init=1, shape_init=1, loc_init=0, train_shape=True,
                               train_scale=True, train_loc=location)
        given = {name: t[name][None, :, None, None] for name in ("scale", "shape")}
        if location:
            given["loc"] = -t["location"][None, :, None, None]  # its distance is j - i
        return attend(scores(t["q"], t["k"]) + with_parameters(code.AttentionPrior(args), **given)(s.T), t["v"])


def below_one(inputs):
    inputs["shape"] *= 0.5


prior("bam", False)
prior("bam-location", True)
