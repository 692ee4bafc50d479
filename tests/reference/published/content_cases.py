"""Published code: Inkling's bank of curves, PoPE, RePo."""

import math
from collections import namedtuple
from types import SimpleNamespace

import einops
import torch
from torch import nn

from published_case import Sizes, Source, over_root, published
from published_code import Given, attend, causal_mask, merged, split, with_parameters


def unchanged(*_, **__):
    """In the place of a decorator with arguments."""
    return lambda function: function


# ---------------------------------------------------------------------------------------------------------------------
# Inkling: the attention layer between its projections, with and without its window.

DECORATORS = ["use_kernel_forward_from_hub", "use_kernel_func_from_hub_with_fallback", "use_kernelized_func",
              "deprecate_kwarg", "force_accelerate_hooks"]
INKLING = Source("huggingface/transformers", "src/transformers/models/inkling/modeling_inkling.py", "5.24.0",
                 ["InklingRMSNorm", "InklingRelativeLogits", "repeat_kv", "eager_attention_forward", "InklingAttention",
                  "apply_mask_to_padding_states", "causal_conv1d_fn", "causal_conv1d_update", "InklingShortConvolution"],
                 {name: unchanged for name in DECORATORS} |
                 {"ALL_ATTENTION_FUNCTIONS": SimpleNamespace(get_interface=lambda _, default: default)})
PARTS = {"score-scale": "d", "qk-norm": "true", "conv-size": "4"}


def bank_shapes(w, extent):
    def shapes(s):
        norms = {f"{part}-norm.weight": (s.d,) for part in ("query", "key")}
        return {"mix.weight": (s.H * w, s.D), "bank": (extent, w), **norms,
                **{f"{part}-conv.weight": (s.H, s.d, 4) for part in ("key", "value")}}
    return shapes


def inkling(file, extent, window=0, n_floor=None, w=3):
    options = PARTS | {"width": str(w), "extent": str(extent)} | ({"log-length": str(n_floor)} if n_floor else {})
    name = f"relative-bank[window={window}]" if window else "relative-bank"

    @published(file, INKLING, name, options, bank_shapes(w, extent))
    def run(code, t, s):
        config = SimpleNamespace(
            layer_types=["hybrid_sliding" if window else "hybrid"], hidden_size=s.D, head_dim=s.d, swa_head_dim=s.d,
            num_attention_heads=s.H, swa_num_attention_heads=s.H, num_key_value_heads=s.H, swa_num_key_value_heads=s.H,
            sliding_window_size=extent, rel_extent=extent, attention_dropout=0.0, d_rel=w, sconv_kernel_size=4,
            rms_norm_eps=1e-6, log_scaling_n_floor=n_floor, log_scaling_alpha=0.1, _attn_implementation="eager")
        convolutions = {f"{part}_sconv__conv1d__weight": t[f"{name}-conv.weight"].reshape(s.D, 1, 4)
                        for part, name in (("k", "key"), ("v", "value"))}
        layer = with_parameters(
            code.InklingAttention(config, 0), **{f"{part}_proj": Given(merged(t[part])) for part in "qkv"},
            o_proj=nn.Identity(), r_proj__weight=t["mix.weight"], rel_logits_proj__proj=t["bank"].T,
            q_norm__weight=t["query-norm.weight"], k_norm__weight=t["key-norm.weight"], **convolutions)
        mask = causal_mask(s.T)
        if window:
            mask = mask + torch.full_like(mask, -math.inf).tril(-window)
        return split(layer(t["x"], mask[None, None])[0], s.H)


inkling("relative-bank", 16)
inkling("relative-bank-log-length", 5, n_floor=3)
inkling("relative-bank-window", 4, window=4)


# ---------------------------------------------------------------------------------------------------------------------
# PoPE, of all dims of a head and of some.

POPE = Source("lucidrains/PoPE-pytorch", "PoPE_pytorch/pope.py", "0.2.1",
              ["PolarEmbedReturn", "exists", "apply_pope_to_qk", "PoPE"],
              {"autocast": unchanged, "namedtuple": namedtuple, "pi": math.pi, "einsum": einops.einsum,
               "slice_right_at_dim": lambda x, count, dim: x.narrow(dim, x.size(dim) - count, count)})


def in_range(inputs):
    inputs["delta"] = -abs(inputs["delta"])


def pope(file, dims, sizes, **options):
    @published(file, POPE, "pope", {"rotary-dims": str(dims), **options}, lambda s: {"delta": (s.H, dims or s.d)}, sizes,
               adjust=in_range)
    def run(code, t, s):
        turns = code.PoPE(dims or s.d, heads=s.H, theta=float(options.get("base", 10000)))
        q, k = code.apply_pope_to_qk(with_parameters(turns, bias=t["delta"])(s.T), t["q"], t["k"])
        return attend(q @ k.transpose(-1, -2) * over_root(s.d), t["v"])


pope("pope", 0, Sizes(d=5))
pope("pope-rotary-dims", 3, Sizes(d=4), base="100")


# ---------------------------------------------------------------------------------------------------------------------
# RePo: the positions of a block, and its rotation.

REPO = Source("SakanaAI/repo", "OLMo/olmo/model.py", "c0488bdb2cde", ["RotaryEmbedding", "OLMoSequentialBlock"],
              {"OLMoBlock": object, "_non_meta_init_device": lambda _: torch.device("cpu")})


@published("repo", REPO, "repo", {"hidden": "3"},
           lambda s: {"gate.weight": (3, s.D), "content.weight": (3, s.D), "position.weight": (s.H, 3)}, Sizes(d=6))
def repo(code, t, s):
    config = SimpleNamespace(max_sequence_length=s.T, d_model=s.D, n_heads=s.H, rope_theta=500000, rope_full_precision=True)
    rotary = code.RotaryEmbedding(config, {})
    maps = {f"{name}_map": lambda x, weight=t[f"{part}.weight"]: x @ weight.T
            for name, part in (("gate", "gate"), ("content", "content"), ("final", "position"))}
    block = SimpleNamespace(**maps, pe_gen_func=rotary.from_positions)
    _, (cos, sin) = code.OLMoSequentialBlock.dynamic_position_encoding_swigluex_multihead(block, t["x"], None)
    q, k = rotary(t["q"], t["k"], cos, sin)
    return attend(q @ k.transpose(-1, -2) * over_root(s.d), t["v"])
