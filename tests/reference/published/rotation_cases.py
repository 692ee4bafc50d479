"""Published code: rotary positions with their stretched forms and other frequencies, xPos, Selective RoPE."""

import math
from types import SimpleNamespace

import torch
from einops import rearrange

from published_case import Sizes, Source, over_root, published
from published_code import (Convolution, attend, by_head, causal_mask, merged, of_length_one, scores, split,
                            with_parameters)


def unchanged(function):
    """In the place of a decorator."""
    return function


# ---------------------------------------------------------------------------------------------------------------------
# As `transformers` rotates: its frequencies, its rotation, its attention.

ATTENTION = ["rotate_half", "apply_rotary_pos_emb", "repeat_kv", "eager_attention_forward"]
WAYS = ["linear_scaling_rope", "dynamic_ntk", "yarn", "longrope", "llama3", "proportional_rope"]
FREQUENCIES = ["dynamic_rope_update", *(f"_compute_{way}_parameters" for way in WAYS), "ROPE_INIT_FUNCTIONS"]
LLAMA = Source("huggingface/transformers", "src/transformers/models/llama/modeling_llama.py", "5.24.0",
               ["LlamaRotaryEmbedding", *ATTENTION], {"use_kernel_forward_from_hub": lambda name: unchanged},
               {"src/transformers/modeling_rope_utils.py": FREQUENCIES})


def rotated_attention(code, rotary, t, s):
    cos, sin = rotary(t["x"], torch.arange(s.T)[None])
    q, k = code.apply_rotary_pos_emb(t["q"], t["k"], cos, sin)
    module = SimpleNamespace(num_key_value_groups=1, training=False)
    return by_head(code.eager_attention_forward(module, q, k, t["v"], causal_mask(s.T)[None, None], over_root(s.d))[0])


def rope(file, options, parameters, theta=10000.0, positions=None):
    @published(file, LLAMA, "rope", {"layout": "half"} | options, sizes=Sizes(d=8))
    def run(code, t, s):
        config = SimpleNamespace(rope_parameters={"rope_theta": theta, **parameters}, head_dim=s.d, hidden_size=s.D,
                                 num_attention_heads=s.H, max_position_embeddings=positions or s.T,
                                 standardize_rope_params=lambda: None)
        return rotated_attention(code, code.LlamaRotaryEmbedding(config), t, s)


# mscale 1.5 and mscale_all_dim 0.5
ATTENTION_FACTOR = repr((0.15 * math.log(4) + 1) / (0.05 * math.log(4) + 1))
SHORT, LONG = [1.0, 1.25, 1.5, 2.0], [1.0, 1.75, 3.0, 6.5]
LISTS = {"short-factors": "1/1.25/1.5/2", "long-factors": "1/1.75/3/6.5"}


def longrope(trained):
    return {"rope_type": "longrope", "factor": 4.0, "short_factor": SHORT, "long_factor": LONG,
            "original_max_position_embeddings": trained}


rope("rope", {}, {"rope_type": "default"})
rope("rope-pi", {"stretch": "pi", "factor": "3"}, {"rope_type": "linear", "factor": 3.0})
rope("rope-yarn", {"stretch": "yarn", "base": "100", "factor": "4", "trained-length": "64"},
     {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}, 100.0)
rope("rope-yarn-mscale", {"stretch": "yarn", "base": "100", "factor": "4", "trained-length": "64", "beta-fast": "6",
                          "beta-slow": "0.5", "truncate": "false", "attention-factor": ATTENTION_FACTOR},
     {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 6.0, "beta_slow": 0.5,
      "truncate": False, "mscale": 1.5, "mscale_all_dim": 0.5}, 100.0)
rope("rope-dynamic", {"stretch": "dynamic", "factor": "3", "trained-length": "4"},
     {"rope_type": "dynamic", "factor": 3.0}, positions=4)
rope("rope-llama3", {"stretch": "llama3", "base": "100", "factor": "8", "trained-length": "32"},
     {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 32}, 100.0)
rope("rope-longrope-short", {"stretch": "longrope", "factor": "4", "trained-length": "9"} | LISTS, longrope(9))
rope("rope-longrope-long", {"stretch": "longrope", "factor": "4", "trained-length": "8"} | LISTS, longrope(8))
rope("rope-fastest", {"frequencies": "fastest", "fastest": "0.6"},
     {"rope_type": "proportional", "partial_rotary_factor": 0.6})

# Clipped frequencies, published under the name of CoPE. Its base frequencies come from transformers.
CLIPPED = Source("hrlics/CoPE", "modeling_cope.py", "bb728e8c5ad6", ["LlamaRotaryEmbedding", *ATTENTION])


def clipped(file, soft, sizes):
    @published(file, CLIPPED, "rope", {"frequencies": "clip" if soft else "clip-hard"}, sizes=sizes)
    def run(code, t, s):
        planes = 10000.0 ** (-torch.arange(0, s.d, 2) / s.d)
        code.replace(ROPE_INIT_FUNCTIONS={"default": lambda config, device: (planes, 1.0)})
        config = SimpleNamespace(rope_scaling=None, max_position_embeddings=s.T, use_cope=soft, use_hardclip=not soft)
        return rotated_attention(code, code.LlamaRotaryEmbedding(config), t, s)


clipped("rope-clip", True, Sizes(H=1, B=1, T=7, d=44))
clipped("rope-clip-all", True, Sizes(d=8))
clipped("rope-clip-hard", False, Sizes(H=1, B=1, T=7, d=44))


# ---------------------------------------------------------------------------------------------------------------------
# As x-transformers rotates neighbouring dims, with and without the scales of xPos.

ROTARY = Source("lucidrains/x-transformers", "x_transformers/x_transformers.py", "2.31.10",
                ["exists", "RotaryEmbedding", "rotate_half", "apply_rotary_pos_emb"], {"disable_autocast": unchanged})


def interleaved(file, encoding, xpos):
    @published(file, ROTARY, encoding, {"layout": "interleaved"}, sizes=Sizes(d=6))
    def run(code, t, s):
        angles, scale = code.RotaryEmbedding(s.d, use_xpos=xpos).forward_from_seq_len(s.T)
        q = code.apply_rotary_pos_emb(t["q"], angles, scale)
        k = code.apply_rotary_pos_emb(t["k"], angles, scale**-1)
        return attend(scores(q, k), t["v"])


interleaved("rope-interleaved", "rope", False)
interleaved("xpos-interleaved", "xpos", True)


# ---------------------------------------------------------------------------------------------------------------------
# Selective RoPE. The authors' code computes angles and gates from the layer's input, each head normalised to length
# one. The paper's listing, which tally follows, computes angles from q, and gates from the whole x, normalised to
# length one. Angles agree if the code is given q; gates agree if there is one head and x is q. The code rotates dims i
# and i + d/2 by one angle, the listing 2i and 2i+1: q and k are given with their dims in that order.

SELECTIVE = Source("timurcarstensen/selective-rope", "src/selective_rope/modules/rotary.py", "9d06c3365ec7",
                   ["rotary_temperature", "ChunkedLinear", "SelectiveRoPE"],
                   {"ShortConvolution": Convolution, "l2_norm": of_length_one})


def selective_shapes(gate, learned):
    def shapes(s):
        result = {"angle.weight": (s.H, s.d // 2, s.d), "conv.weight": (s.H, s.d // 2, 4)}
        result |= {"gate.weight": (s.H, s.D), "gate.bias": (s.H,)} if gate else {}
        return result | ({"temperature": (s.d // 2,)} if learned else {})
    return shapes


def halves(x):
    return rearrange(x, "b h t (n two) -> b t h (two n)", two=2)


def of_halves(x):
    return rearrange(x, "b t h (two n) -> b h t (n two)", two=2)


def selective_rope(gate, learned):
    def run(code, t, s):
        planes = s.d // 2
        module = code.SelectiveRoPE(s.d, s.D, s.H, phi_proj_rank=s.D, use_gate=gate)
        own = dict(phi_proj__0__weight=torch.eye(s.D), phi_proj__1__weight=torch.block_diag(*t["angle.weight"]),
                   phi_conv1d__weight=t["conv.weight"].reshape(s.H * planes, 1, 4))
        if gate:
            own |= {"phase_gate_proj__weight": t["gate.weight"], "phase_gate_proj__bias": t["gate.bias"]}
        if learned:
            own["temperature"] = t["temperature"].reshape(1, 1, 1, planes)
        seen = t["x"] if gate else merged(t["q"])
        q, k, _ = with_parameters(module, **own)(halves(t["q"]), halves(t["k"]), seen)
        return attend(scores(of_halves(q), of_halves(k)), t["v"])
    return run


def query_as_input(inputs):
    inputs["q"] = split(torch.from_numpy(inputs["x"]), inputs["q"].shape[1]).numpy().copy()


PLAIN = "GPU kernels of convolution and norm by plain ones; a matrix for the two of low rank"
published("selective-rope", SELECTIVE, "selective-rope", shapes=selective_shapes(True, False), sizes=Sizes(H=1, d=6),
          adjust=query_as_input, without=("x", "q"), changed=PLAIN)(selective_rope(True, False))
published("selective-rope-no-gate", SELECTIVE, "selective-rope", {"phase-gate": "false"},
          selective_shapes(False, False), changed=PLAIN)(selective_rope(False, False))
published("selective-rope-learned", SELECTIVE, "selective-rope", {"phase-gate": "false", "temperature": "learned"},
          selective_shapes(False, True), changed=PLAIN)(selective_rope(False, True))
