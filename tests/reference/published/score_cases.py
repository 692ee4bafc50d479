"""Published code: CoPE, relative positions, selective and hard attention, TRA, normalisers, gates."""

import math
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

from published_case import Sizes, Source, linear, over_root, published
from published_code import Given, by_head, by_token, causal_mask, merged, split, with_parameters

# ---------------------------------------------------------------------------------------------------------------------
# CoPE and relative positions: the code of the paper's counting task. It treats heads as more sequences.

COPE = Source("facebookresearch/RAM", "projects/cope/src/cope/context_position.py", "5420e20124c7",
              ["ContextPosSelfAttn"])
RELATIVE = Source("facebookresearch/RAM", "projects/cope/src/models/transformer.py", "a9c2f0452465", ["SelfAttn"], {},
                  {"projects/cope/src/models/relative_position.py": ["rel2abs", "RelPosEmb"]})
ROWS = 4  # of CoPE's table: positions of up to 3


def of_heads(x):
    return x.flatten(0, 1)


def ones_below(s):
    return torch.ones(s.T, s.T).tril()[None]


def cope(file, options, gates="keys"):
    def shapes(s):
        return {"table": (ROWS, s.d)} | (linear("gate", s.D, s.D) if gates == "sep-keys" else {})

    @published(file, COPE, "cope", {"p-max": str(ROWS - 1), "gates": gates} | options, shapes)
    def run(code, t, s):
        settings = SimpleNamespace(drop=0.0, cope_layers=1, cope_npos=ROWS, head_dim=s.d, pos_emb="cope",
                                   cope_val_gates=gates == "values", cope_sep_key=gates == "sep-keys",
                                   cope_nodiv=options["position-scale"] == "none")
        layer = with_parameters(code.ContextPosSelfAttn(settings, 0), pos_emb=t["table"].T[None])
        keys = t["k"]
        if gates == "sep-keys":
            keys = split(F.linear(t["x"], t["gate.weight"], t["gate.bias"]), s.H)
        inputs = (of_heads(x) for x in (t["q"], t["k"], keys, t["v"]))
        return layer(*inputs, attn_mask=ones_below(s)).unflatten(0, (s.B, s.H))


cope("cope", {"position-scale": "none"})
cope("cope-sqrt-d", {"position-scale": "sqrt-d"})
cope("cope-sep-keys", {"position-scale": "none"}, "sep-keys")
cope("cope-values", {"position-scale": "sqrt-d"}, "values")


def relative(file, options, rows):
    @published(file, RELATIVE, "relative", options, lambda s: {"table": (rows, s.d)})
    def run(code, t, s):
        layer = code.SelfAttn(SimpleNamespace(drop=0.0, pos_emb="rel", head_dim=s.d))
        places = code.RelPosEmb(s.d, s.T - 1, rows, extend=rows < s.T)
        layer.rel_pos_emb = with_parameters(places, emb=t["table"].flip(0).T[None])  # the nearest last
        inputs = (of_heads(t[name]) for name in "qkv")
        return layer(*inputs, attn_mask=ones_below(s)).unflatten(0, (s.B, s.H))


relative("relative", {}, 9)
relative("relative-far-cap", {"far": "cap", "distances": "3"}, 3)

X_TRANSFORMERS = "lucidrains/x-transformers"
ATTEND = ["exists", "default", "at_most_one_of", "selective_attn", "one_hot_straight_through", "create_causal_mask",
          "onnx_create_causal_mask", "Intermediates", "Attend"]
VERSION = {"version": SimpleNamespace(parse=lambda text: [int(part) for part in text.split("+")[0].split(".")])}
ATTENTION = Source(X_TRANSFORMERS, "x_transformers/attend.py", "2.31.10", ATTEND, VERSION)
COPE_AGAIN = Source(X_TRANSFORMERS, "x_transformers/attend.py", "2.31.10", ATTEND, VERSION,
                    {"x_transformers/x_transformers.py": ["exists", "CoPE"]})


def attended(code, t, s, **settings):
    return code.Attend(causal=True, heads=s.H, **settings)(t["q"], t["k"], t["v"])[0]


@published("cope-x-transformers", COPE_AGAIN, "cope", {"p-max": str(ROWS - 1)}, lambda s: {"table": (ROWS, s.d)})
def cope_again(code, t, s):
    place = with_parameters(code.CoPE(s.d, s.H, ROWS), pos_emb=t["table"])
    return attended(code, t, s, cope=place)


# ---------------------------------------------------------------------------------------------------------------------
# Selective and hard attention, sinks.


def selective(file, options, bos):
    @published(file, ATTENTION, "selective", options)
    def run(code, t, s):
        plain = code.selective_attn
        code.replace(selective_attn=lambda sim: plain(sim, no_mask_sos=bos))
        return attended(code, t, s, selective=True)


selective("selective", {}, True)
selective("selective-no-bos", {"bos": "false"}, False)


@published("hard", ATTENTION, "hard")
def hard(code, t, s):
    return attended(code, t, s, hard=True)


def zero_logit(inputs):
    inputs["logit"][:] = 0


@published("sink-off-by-one", ATTENTION, "sink", shapes=lambda s: {"logit": (s.H,)}, adjust=zero_logit)
def off_by_one(code, t, s):
    return attended(code, t, s, add_zero_kv=True)


GPT_OSS = Source("huggingface/transformers", "src/transformers/models/gpt_oss/modeling_gpt_oss.py", "5.24.0",
                 ["repeat_kv", "eager_attention_forward"])


@published("sink", GPT_OSS, "sink", shapes=lambda s: {"logit": (s.H,)})
def sink(code, t, s):
    module = SimpleNamespace(num_key_value_groups=1, training=False, sinks=t["logit"])
    return by_head(code.eager_attention_forward(module, t["q"], t["k"], t["v"], causal_mask(s.T), over_root(s.d))[0])


# ---------------------------------------------------------------------------------------------------------------------
# Other normalisers, gates, TRA.

SOFTPICK = Source("zaydzuhri/softpick-attention", "naive_softpick_attn.py", "eeeae0549ee4",
                  ["softpick", "naive_softpick_attn"])


@published("softpick", SOFTPICK, "softpick", tolerance="1e-7")  # 1e-8 joins the sum after the shift by its largest
def softpick(code, t, s):
    return by_head(code.naive_softpick_attn(*(by_token(t[name]) for name in "qkv"))[0])


APPLE = "attention_simulator/src/attention_simulator/layers"
SIGMOID = Source("apple/ml-sigmoid-attention", f"{APPLE}/attention.py", "9e11c2296cbc", ["Attention"], {},
                 {f"{APPLE}/activations.py": ["unnormalized_sigmoid_attention"]})


@published("sigmoid", SIGMOID, "sigmoid", {"length": "6"})
def sigmoid(code, t, s):
    layer = code.Attention(s.D, code.unnormalized_sigmoid_attention, s.H, attn_bias=-math.log(6),
                           masking_fn=lambda attn, mask: attn + mask)
    together = torch.cat([merged(t[name]) for name in "qkv"], dim=2)
    layer = with_parameters(layer, qkv=Given(together), proj=nn.Identity())
    return split(layer(t["x"], causal_mask(s.T))["attn_proj"], s.H)


GATED = Source("qiuzh20/gated_attention", "modeling_qwen3.py", "df42212f08f0",
               ["rotate_half", "apply_rotary_pos_emb", "repeat_kv", "Qwen3Attention"],
               {"Qwen3RotaryEmbedding": lambda config: nn.Identity()})


def gated(file, per):
    @published(file, GATED, "gated", {"per": per}, lambda s: linear("gate", s.D if per == "element" else s.H, s.D))
    def run(code, t, s):
        config = SimpleNamespace(hidden_size=s.D, num_attention_heads=s.H, num_key_value_heads=s.H, head_dim=s.d,
                                 max_position_embeddings=s.T, rope_theta=1.0, attention_dropout=0.0, use_qk_norm=False,
                                 headwise_attn_output_gate=per == "head", qkv_bias=True,
                                 elementwise_attn_output_gate=per == "element")
        gate = F.linear(t["x"], t["gate.weight"], t["gate.bias"]).unflatten(2, (s.H, -1))
        both = torch.cat([by_token(t["q"]), gate], dim=3).flatten(2)  # one projection gives q and gates, head by head
        layer = with_parameters(code.Qwen3Attention(config, 0), q_proj=Given(both), k_proj=Given(merged(t["k"])),
                                v_proj=Given(merged(t["v"])), o_proj=nn.Identity())
        not_turned = torch.ones(1, s.T, s.d), torch.zeros(1, s.T, s.d)
        return split(layer(t["x"], causal_mask(s.T)[None, None], position_embeddings=not_turned)[0], s.H)


gated("gated", "element")
gated("gated-per-head", "head")

TRA = Source("abhishekpanigrahi1996/MOSS", "submissions/submission-96/TRA_FFL.ipynb", "17086f981926",
             ["RMSNorm", "TRA"])


@published("tra", TRA, "tra", shapes=lambda s: linear("threshold", s.H, s.D), sizes=Sizes(T=12))
def tra(code, t, s):
    layer = with_parameters(code.TRA(s.D, s.H, 0.0, s.T), toqueries=Given(merged(t["q"])), tokeys=Given(merged(t["k"])),
                            tovalues=Given(merged(t["v"])), c_out=nn.Identity(),
                            delta_proj__weight=t["threshold.weight"], delta_proj__bias=t["threshold.bias"])
    return split(layer(t["x"]), s.H)
