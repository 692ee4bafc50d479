#!/usr/bin/env python3
"""Attention layers of `transformers` with a norm of queries and keys: output and gradients for random numbers, in f64.

Usage: make_qk_norm.py [--check]. Writes qk-norm-<name>.safetensors to this folder; --check compares the files
instead. Needs torch and transformers; without them --check is skipped (exit status 77).

A file holds x [B, T, D], the layer's parameters under tally's names (query.weight, query_norm.weight, ...), d_y, y, and
the gradients d_x and d_<parameter>. Its metadata: over, norm, eps, heads, key-heads, head-width, rotary-dims, base.
"""
import pathlib
import sys
from unittest import mock

try:
    import torch
    import transformers
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file
    from transformers.models.olmo2 import modeling_olmo2 as olmo2
    from transformers.models.phi import modeling_phi as phi
    from transformers.models.qwen3 import modeling_qwen3 as qwen3
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77 if "--check" in sys.argv else 1)

HERE = pathlib.Path(__file__).resolve().parent
B, T, D, HEADS, KEY_HEADS = 2, 5, 16, 4, 2
TOLERANCE = 1e-12  # another version of a library adds up in another order
PROJECTIONS = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "output", "dense": "output"}
NORMS = {"q_norm": "query_norm", "k_norm": "key_norm", "q_layernorm": "query_norm", "k_layernorm": "key_norm"}
SIZES = dict(hidden_size=D, num_attention_heads=HEADS, num_key_value_heads=KEY_HEADS, num_hidden_layers=1, vocab_size=8,
             intermediate_size=8, max_position_embeddings=32, attn_implementation="eager")

# Name -> the library's layer, its configuration, tally's words for the norm.
LAYERS = {
    "qwen3": (qwen3.Qwen3Attention, transformers.Qwen3Config(**SIZES, head_dim=6, rms_norm_eps=1e-3),
              {"over": "head", "norm": "rms"}),
    "olmo2": (olmo2.Olmo2Attention, transformers.Olmo2Config(**SIZES, rms_norm_eps=1e-3),
              {"over": "full", "norm": "rms"}),
    "phi": (phi.PhiAttention, transformers.PhiConfig(**SIZES, qk_layernorm=True, layer_norm_eps=1e-3,
                                                     partial_rotary_factor=0.5, eos_token_id=0),
            {"over": "head", "norm": "layer"}),
}


def make(name):
    layer_type, config, words = LAYERS[name]
    torch.manual_seed(sorted(LAYERS).index(name))
    layer = layer_type(config, layer_idx=0).double().eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5 + (1 if parameter.dim() == 1 else 0))
    x = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)
    d_y = torch.randn(B, T, D, dtype=torch.float64)
    angles = torch.arange(T, dtype=torch.float64)[:, None] * frequencies(config)[None, :]
    angles = torch.cat([angles, angles], dim=-1)[None]
    hidden = torch.full((1, 1, T, T), float("-inf"), dtype=torch.float64).triu(1)
    with mock.patch.object(torch, "float32", torch.float64):  # norms and softmax cast to f32
        y = layer(hidden_states=x, position_embeddings=(angles.cos(), angles.sin()), attention_mask=hidden)[0]
    y.backward(d_y)
    tensors = {"x": x.detach(), "d_y": d_y, "y": y.detach(), "d_x": x.grad}
    for path, parameter in layer.named_parameters():
        module, kind = path.split(".")
        ours = f"{(PROJECTIONS | NORMS)[module]}.{kind}"
        tensors |= {ours: parameter.detach(), f"d_{ours}": parameter.grad}
    numbers = words | {"eps": 1e-3, "heads": HEADS, "key-heads": KEY_HEADS, "head-width": head_width(config),
                       "rotary-dims": rotary_dims(config), "base": base_of(config)}
    return {key: value.contiguous() for key, value in tensors.items()}, {k: str(v) for k, v in numbers.items()}


def head_width(config):
    return getattr(config, "head_dim", None) or D // HEADS


def rotary_dims(config):
    return int(head_width(config) * config.rope_parameters.get("partial_rotary_factor", 1))


def base_of(config):
    return int(config.rope_parameters["rope_theta"])


def frequencies(config):
    dims = rotary_dims(config)
    return base_of(config) ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)


def main():
    wrong = 0
    for name in LAYERS:
        path = HERE / f"qk-norm-{name}.safetensors"
        tensors, metadata = make(name)
        if "--check" not in sys.argv:
            save_file(tensors, path, metadata)
            continue
        stored = load_file(path)
        with safe_open(path, "pt") as file:
            same = file.metadata() == metadata and stored.keys() == tensors.keys()
        worst = max((stored[key] - value).abs().max().item() for key, value in tensors.items()) if same else float("inf")
        print(f"{path.name}: {worst:.1e}")
        wrong += not worst <= TOLERANCE
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
