"""Published code: biases of distance and networks over the heads (DAPE), multi-token attention."""

from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from published_case import Sizes, Source, linear, over_root, published
from published_code import Given, attend, merged, scores, split, with_parameters

HIDDEN = 5
ROWS_OF_DAPE2 = 8  # of 9: the last row of a batch has no hidden layer after its last key


def dape(*names):
    """The file of DAPE's authors, which has what they compare with too. It takes scores and gives logits."""
    return Source("chuanyang-Zheng/DAPE", "megatron/model/positional_embeddings.py", "5667d281dd84", list(names),
                  {"print": lambda *_: None})


def settings(s):
    return SimpleNamespace(num_attention_heads=s.H, pos_emb="", noise_seq_length=0, params_dtype=torch.float64,
                           mlp_width=HIDDEN, dapev2_kernel=3)


def of_scores(module, t):
    return attend(module(scores(t["q"], t["k"])), t["v"])


@published("alibi", dape("AliBi"), "alibi", sizes=Sizes(H=3))
def alibi(code, t, s):
    return of_scores(code.AliBi(s.H, mp_rank=0), t)


# ---------------------------------------------------------------------------------------------------------------------
# KERPLE, FIRE, Transformer-XL.


def kerple_shapes(prefix=""):
    return lambda s: {f"{prefix}r1": (s.H,), f"{prefix}r2": (s.H,)}


def above_least(inputs):
    for name in inputs:
        if name.endswith(("r1", "r2")):
            inputs[name] = np.abs(inputs[name]) + 0.25


def kerple_parameters(t, prefix=""):
    return {"bias_p": t[f"{prefix}r1"].reshape(-1, 1, 1), "bias_a": t[f"{prefix}r2"].reshape(-1, 1, 1)}


@published("kerple-log", dape("ParallelKerpleLog"), "kerple", {"kernel": "log"}, kerple_shapes(), adjust=above_least)
def kerple(code, t, s):
    return of_scores(with_parameters(code.ParallelKerpleLog(settings(s)), **kerple_parameters(t)), t)


def fire(file, threshold):
    """threshold: L, in tokens"""
    def of_length(inputs):
        inputs["m"][:] = threshold / 512

    @published(file, dape("FIRE"), "fire", shapes=lambda s: {"c": (1,), "m": (1,)} | linear("hidden", 32, 1) |
               linear("output", s.H, 32), adjust=of_length)
    def run(code, t, s):
        module = code.FIRE(s.H, init_L=1024.0)  # which it halves: tally counts m from 512
        layers = {"mlp__0__weight": "hidden.weight", "mlp__0__bias": "hidden.bias", "mlp__2__weight": "output.weight",
                  "mlp__2__bias": "output.bias"}
        own = {place: t[name] for place, name in layers.items()}
        return of_scores(with_parameters(module, c=t["c"][0], L_multiplier=t["m"][0], **own), t)


fire("fire-below-threshold", 512.0)
fire("fire-beyond-threshold", 4.5)


@published("transformer-xl", dape("PositionalEmbedding", "RelativePositionalEncodingLayer"), "transformer-xl",
           shapes=lambda s: {"content": (s.H, s.d), "place": (s.H, s.d), "distances": (s.D, s.D)})
def transformer_xl(code, t, s):
    layer = code.RelativePositionalEncodingLayer(s.H, s.d, scale_factor=over_root(s.d), train_length=s.T)
    layer = with_parameters(layer, r_w_bias=t["content"], r_r_bias=t["place"], r_net__weight=t["distances"])
    return attend(layer(*(t[name].permute(2, 0, 1, 3) for name in "qk")), t["v"])


# ---------------------------------------------------------------------------------------------------------------------
# DAPE and DAPE-V2.


def network_shapes(inputs, taps=()):
    def shapes(s):
        return {"hidden.weight": (HIDDEN, inputs * s.H, *taps), "hidden.bias": (HIDDEN,),
                "output.weight": (s.H, HIDDEN, *taps), "output.bias": (s.H,)}
    return shapes


def network(t):
    """The weights; those of convolutions go along the keys of one row."""
    def laid_out(weight):
        return weight.unsqueeze(2) if weight.dim() == 3 else weight
    return {"mlp2__0__weight": laid_out(t["hidden.weight"]), "mlp2__0__bias": t["hidden.bias"],
            "mlp2__2__weight": laid_out(t["output.weight"]), "mlp2__2__bias": t["output.bias"]}


def with_kerple(shapes):
    return lambda s: shapes(s) | kerple_shapes("bias.")(s)


OPTIONS = {"hidden": str(HIDDEN)}


@published("dape-none", dape("Nope_C"), "dape", OPTIONS | {"bias": "none"}, network_shapes(1))
def dape_none(code, t, s):
    return of_scores(with_parameters(code.Nope_C(settings(s)), **network(t)), t)


@published("dape-alibi", dape("AliBi_C"), "dape", OPTIONS | {"bias": "alibi"}, network_shapes(2))
def dape_alibi(code, t, s):
    return of_scores(with_parameters(code.AliBi_C(s.H, mp_rank=0, mlp_width=HIDDEN), **network(t)), t)


@published("dape", dape("ParallelKerpleLog_C"), "dape", OPTIONS | {"bias": "kerple"}, with_kerple(network_shapes(2)),
           adjust=above_least)
def dape_kerple(code, t, s):
    module = code.ParallelKerpleLog_C(settings(s), 0)
    return of_scores(with_parameters(module, **network(t), **kerple_parameters(t, "bias.")), t)


@published("dape2-alibi", dape("Alibi_DAPEV2"), "dape2", OPTIONS | {"bias": "alibi"}, network_shapes(2, (3,)),
           rows=ROWS_OF_DAPE2)
def dape2_alibi(code, t, s):
    return of_scores(with_parameters(code.Alibi_DAPEV2(s.H, mp_rank=0, neox_args=settings(s)), **network(t)), t)


@published("dape2", dape("Kerple_DAPEV2"), "dape2", OPTIONS | {"bias": "kerple"}, with_kerple(network_shapes(2, (3,))),
           adjust=above_least, rows=ROWS_OF_DAPE2)
def dape2_kerple(code, t, s):
    module = code.Kerple_DAPEV2(settings(s), 0)
    return of_scores(with_parameters(module, **network(t), **kerple_parameters(t, "bias.")), t)


# ---------------------------------------------------------------------------------------------------------------------
# Multi-token attention, without the rotation that its code has before it.

# The code overwrites the result of its softmax. With other types, as in bf16, that is a copy; here it always is.
COPYING = SimpleNamespace(conv2d=F.conv2d, dropout=F.dropout, softmax=lambda x, dim: F.softmax(x, dim).clone())
MTA = Source("facebookresearch/RAM", "projects/mta/mta_transformer.py", "0372dabf1288",
             ["RMSNorm", "MTATransformerArgs", "Attention"],
             {"apply_rotary_emb": lambda q, k, *_: (q, k), "repeat_kv": lambda x, *_, **__: x, "F": COPYING})


def mta(file, queries, keys, group, before, sizes):
    options = {"queries": str(queries), "keys": str(keys), "group": str(group), "mix": "both" if before else "after"}

    def shapes(s):
        kernels = {"kernel": (s.H, queries, keys), "kernel-after": (s.H, queries, keys)}
        mixes = {"mix": (s.H, s.H)} if before else {}
        after = {"mix-after": (s.H // group, group, group), "norm.weight": (s.d,)}
        return kernels | mixes | after | linear("gate", 1, s.d)

    @published(file, MTA, "mta", options, shapes, sizes, changed="without rotation; the softmax gives a copy")
    def run(code, t, s):
        args = code.MTATransformerArgs(use_mta=True, query_kernel_size=queries, key_kernel_size=keys,
                                       after_sm_query_kernel_size=queries, after_sm_key_kernel_size=keys,
                                       head_kernel_size=group, pre_sm_linear_head=before, group_norm=True,
                                       add_gating=True)
        layer = code.Attention(s.D, s.d, s.H, s.H, 1.0, False, s.T, args, 0.0, 0)
        own = dict(mta_kernel=t["kernel"].unsqueeze(1), mta_kernel_after_sm=t["kernel-after"].unsqueeze(1),
                   head_kernel=t["mix-after"], subln__weight=t["norm.weight"], gate__weight=t["gate.weight"],
                   gate__bias=t["gate.bias"], wq=Given(merged(t["q"])), wk=Given(merged(t["k"])),
                   wv=Given(merged(t["v"])), wo=nn.Identity())
        if before:
            own["wpsm__weight"] = t["mix"]
        return split(with_parameters(layer, **own)(t["x"], torch.zeros(s.T)), s.H)


mta("mta", 3, 5, 2, True, Sizes())
mta("mta-groups", 2, 3, 2, False, Sizes(H=4, T=7))
mta("mta-published-size", 6, 11, 2, True, Sizes(T=14))
