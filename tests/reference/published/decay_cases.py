"""Published code: PaTH, Wall, FoX, CABLE, stick-breaking."""

import math
from types import SimpleNamespace

import torch
from torch import nn

from published_case import Sizes, Source, linear, over_root, published
from published_code import (Code, Convolution, Given, attend, by_head, by_token, merged, of_length_one,
                            shifted_tokens, split, summed_tokens, with_parameters)

FLA = "fla-org/flash-linear-attention"
FLA_VERSION = "0.6.0"
FOX = "zhixuan-lin/forgetting-transformer"
FOX_FOLDER = "src/forgetting_transformer/model/forgetting_transformer"
KERNELS = "GPU kernels of convolution, norm and cumulative sum by plain ones"


def fla(path, names, **given):
    return Source(FLA, path, FLA_VERSION, names, given)


def beside(code, path, names, **given):
    """Of another file of the same checkout as `code`, which a layer calls."""
    return Code(code.folder, path, names, **given)


def gates(s):
    return linear("forget", s.H, s.D)


# ---------------------------------------------------------------------------------------------------------------------
# PaTH: the layer, with the kernel's place taken by the plain function.

PATH_LAYER = fla("fla/layers/path_attn.py", ["PaTHAttention"], ShortConvolution=Convolution, l2_norm=of_length_one)
PATH_NAIVE = ("fla/ops/path_attn/naive.py", ["naive_path_attn"])


def path_shapes(rank=32, conv=True, size=3, forget=False):
    def shapes(s):
        result = {"down.weight": (rank, s.D), "up.weight": (s.D, rank)} if rank else {"direction.weight": (s.D, s.D)}
        if conv:
            result["conv.weight"] = (s.H, s.d, size)
        result |= linear("strength", s.H, s.D)
        return result | (gates(s) if forget else {})
    return shapes


def path(rank=32, conv=True, size=3, forget=False):
    def run(code, t, s):
        plain = beside(code, *PATH_NAIVE).naive_path_attn

        def in_place_of_the_kernel(q, k, v, w, beta, g, **_):
            g = torch.zeros(q.shape[:3]) if g is None else g
            return plain(q, k, v, w, beta, g, scale=over_root(s.d), chunk_size=4), None

        code.replace(parallel_path_attn=in_place_of_the_kernel)
        layer = code.PaTHAttention(s.D, s.H, use_forget_gate=forget, use_low_rank_w=rank > 0, use_w_shortconv=conv,
                                   conv_size=size)
        own = dict(q_proj=Given(merged(t["q"])), k_proj=Given(merged(t["k"])), v_proj=Given(merged(t["v"])),
                   o_proj=nn.Identity(), bt_proj__weight=t["strength.weight"], bt_proj__bias=t["strength.bias"])
        if rank:
            own |= {"w_proj__0__weight": t["down.weight"], "w_proj__1__weight": t["up.weight"]}
        else:
            own |= {"w_proj__weight": t["direction.weight"]}
        if conv:
            own["w_conv1d__weight"] = t["conv.weight"].reshape(s.D, 1, size)
        if forget:
            own |= {"g_proj__weight": t["forget.weight"], "g_proj__bias": t["forget.bias"]}
        return split(with_parameters(layer, **own)(t["x"])[0], s.H)
    return run


published("path", PATH_LAYER, "path", shapes=path_shapes(), changed=KERNELS)(path())
published("path-full-rank", PATH_LAYER, "path", {"rank": "0", "conv-size": "5"}, path_shapes(0, size=5), Sizes(d=3),
          changed=KERNELS)(path(0, size=5))
published("path-no-conv", PATH_LAYER, "path", {"conv": "false"}, path_shapes(conv=False), changed=KERNELS)(
    path(conv=False))
published("path-forget", PATH_LAYER, "path", {"forget": "true"}, path_shapes(forget=True), changed=KERNELS)(
    path(forget=True))


# ---------------------------------------------------------------------------------------------------------------------
# Wall: the layer, with the plain function.

WALL_LAYER = fla("fla/layers/wall_attn.py", ["WallAttention"])
WALL_NAIVE = ("fla/ops/wall_attn/naive.py", ["naive_wall_attn"])
NORM = ("fla/modules/norm/layernorm.py", ["group_norm_ref", "GroupNormRef"])
IN_FULL = f"{KERNELS}; RCP_LN2 is 1 / ln 2 in full, not to 8 digits"


def wall_shapes(scalar_gate=False, qk_norm=False, sink=False, prefix=""):
    def shapes(s):
        result = linear("decay", s.D, s.D)
        if qk_norm:
            result |= {"query-norm.weight": (s.H, s.d), "key-norm.weight": (s.H, s.d)}
        result |= gates(s) if scalar_gate else {}
        result = {prefix + name: shape for name, shape in result.items()}
        return result | ({"sink.logit": (s.H,)} if sink else {})
    return shapes


def wall(scalar_gate=False, qk_norm=False, window=None, sink=False, prefix="", constant=1 / math.log(2)):
    def run(code, t, s):
        of_log2 = constant or beside(code, "fla/ops/utils/constant.py", ["RCP_LN2"]).RCP_LN2
        plain = beside(code, *WALL_NAIVE, chunk_global_cumsum=summed_tokens, RCP_LN2=of_log2)

        def in_place_of_the_kernel(q, k, v, g, g_scalar, window_size, **_):
            return plain.naive_wall_attn(q, k, v, g, scale=over_root(s.d), window_size=window_size, g_scalar=g_scalar,
                                         sink_bias=t["sink.logit"] if sink else None)

        def norm(**sizes):
            return beside(code, *NORM).GroupNormRef(**sizes, eps=1e-6)

        code.replace(parallel_wall_attn=in_place_of_the_kernel, GroupNorm=norm)
        layer = code.WallAttention(s.D, s.H, use_scalar_gate=scalar_gate, qk_norm=qk_norm, window_size=window)
        own = dict(q_proj=Given(merged(t["q"])), k_proj=Given(merged(t["k"])), v_proj=Given(merged(t["v"])),
                   o_proj=nn.Identity(), g_proj__weight=t[f"{prefix}decay.weight"],
                   g_proj__bias=t[f"{prefix}decay.bias"])
        if scalar_gate:
            own |= {"gs_proj__weight": t["forget.weight"], "gs_proj__bias": t["forget.bias"]}
        if qk_norm:
            own |= {f"{part}_norm__weight": t[f"{name}-norm.weight"].flatten()
                    for part, name in (("q", "query"), ("k", "key"))}
        return split(with_parameters(layer, **own)(t["x"])[0], s.H)
    return run


published("wall", WALL_LAYER, "wall", shapes=wall_shapes(), changed=IN_FULL)(wall())
published("wall-scalar-gate", WALL_LAYER, "wall", {"scalar-gate": "true"}, wall_shapes(True), changed=IN_FULL)(
    wall(True))
published("wall-window-qk-norm", WALL_LAYER, "wall[window=3]", {"qk-norm": "true"}, wall_shapes(qk_norm=True),
          changed=f"{IN_FULL}; eps of the norms 1e-6, not 1e-5")(wall(qk_norm=True, window=3))
published("sink+wall", WALL_LAYER, "sink+wall", shapes=wall_shapes(sink=True, prefix="wall."), changed=IN_FULL)(
    wall(sink=True, prefix="wall."))
published("wall-as-published", WALL_LAYER, "wall", shapes=wall_shapes(), tolerance="1e-6", changed=KERNELS)(
    wall(constant=None))


# ---------------------------------------------------------------------------------------------------------------------
# FoX: flash-linear-attention's layer with its plain function, and for FoX (Pro) the authors' layer.

FOX_LAYER = fla("fla/layers/forgetting_attn.py", ["ForgettingAttention"])
FOX_NAIVE = ("fla/ops/forgetting_attn/naive.py", ["naive_forgetting_attn"])


def fox(window=None):
    def run(code, t, s):
        plain = beside(code, *FOX_NAIVE).naive_forgetting_attn
        code.replace(parallel_forgetting_attn=lambda q, k, v, f, **_: plain(q, k, v, f, window_size=window))
        layer = with_parameters(code.ForgettingAttention(s.D, s.H), q_proj=Given(merged(t["q"])),
                                k_proj=Given(merged(t["k"])), v_proj=Given(merged(t["v"])), o_proj=nn.Identity(),
                                f_proj__weight=t["forget.weight"], f_proj__bias=t["forget.bias"])
        return split(layer(t["x"])[0], s.H)
    return run


published("fox", FOX_LAYER, "fox", shapes=gates)(fox())
published("fox-window", FOX_LAYER, "fox[window=4]", shapes=gates)(fox(4))


def pro_shapes(s):
    shifts = {f"{part}-shift.weight": (s.H, s.D) for part in ("key", "value")}
    norms = {f"{part}-norm.weight": (s.H, s.d) for part in ("query", "key", "output")}
    return gates(s) | shifts | norms | {"output-gate.weight": (s.D, s.D)}


PRO_LAYER = Source(FOX, f"{FOX_FOLDER}/modeling_forgetting_transformer.py", "246d5e3f9c60",
                   ["ShiftLinear", "ForgettingAttentionLayer"], {"token_shift": shifted_tokens})


@published("fox-pro", PRO_LAYER, "fox-pro", shapes=pro_shapes,
           changed="GPU kernels of shift, gated norm and attention by plain ones; "
                   "eps of the norms of q and k 1e-6, not 1e-5")
def fox_pro(code, t, s):
    ref = beside(code, f"{FOX_FOLDER}/layernorm.py", ["group_norm_ref", "GroupNormRef"])

    class GatedNorm(ref.GroupNormRef):
        def forward(self, x, g):
            return super().forward(x) * torch.sigmoid(g)

    def gated_norm(activation, **sizes):
        return GatedNorm(**sizes)

    def attention(q, k, v, log_fgate, sm_scale, **_):
        sums = log_fgate.cumsum(-1)
        return attend(q @ k.transpose(-1, -2) * sm_scale + sums[..., :, None] - sums[..., None, :], v)

    code.replace(GroupNorm=lambda **sizes: ref.GroupNormRef(**sizes, eps=1e-6), FusedGroupNormGated=gated_norm,
                 forgetting_attention=attention)
    layer = code.ForgettingAttentionLayer(s.D, s.H, use_output_gate=True, use_output_norm=True, qk_norm=True,
                                          use_k_shift=True, use_v_shift=True)
    norms = {f"{part}_norm__weight": t[f"{name}-norm.weight"].flatten()
             for part, name in (("q", "query"), ("k", "key"), ("output", "output"))}
    layer = with_parameters(layer, q_proj=Given(merged(t["q"])), k_proj__linear=Given(merged(t["k"])),
                            v_proj__linear=Given(merged(t["v"])), o_proj=nn.Identity(),
                            k_proj__shift_proj__weight=t["key-shift.weight"],
                            v_proj__shift_proj__weight=t["value-shift.weight"],
                            fgate_proj__weight=t["forget.weight"], fgate_proj__bias=t["forget.bias"],
                            ogate_proj__weight=t["output-gate.weight"], **norms)
    return split(layer(t["x"])[0], s.H)


@published("cable", Source("axiomlab/Cable", "src/Cable.py", "2d7410b4e5c7", ["CausalSelfAttention"]), "fox",
           {"sign": "minus", "score-scale": "none"}, gates)
def cable(code, t, s):
    layer = code.CausalSelfAttention(SimpleNamespace(n_embd=s.D, n_head=s.H, block_size=s.T))
    together = torch.cat([merged(t[name]) for name in "qkv"], dim=2)
    layer = with_parameters(layer, device="cpu", c_attn=Given(together), c_proj=nn.Identity(),
                            h_attn__weight=t["forget.weight"], h_attn__bias=t["forget.bias"])
    return split(layer(t["x"]), s.H)


# ---------------------------------------------------------------------------------------------------------------------
# Stick-breaking: the plain function of flash-linear-attention, and the authors' reference.

STICK = fla("fla/ops/stickbreaking_attn/naive.py", ["naive_stickbreaking_attn"])
STICK_AUTHORS = Source("shawntan/stickbreaking-attention", "stickbreaking_attention/sb_ref.py", "ea69b8dd40ea",
                       ["stickbreaking"], {"print": lambda *_: None})


def stick_breaking(attend_current):
    def run(code, t, s):
        q, k, v = (by_token(t[name]) for name in "qkv")
        return by_head(code.naive_stickbreaking_attn(q, k, v, attend_current=attend_current)[0])
    return run


def stick_breaking_authors(attend_current):
    def run(code, t, s):
        hidden = torch.ones(s.T, s.T).triu(1 if attend_current else 0).bool()
        output, left = code.stickbreaking(t["q"], t["k"], t["v"], hidden, torch.ones(s.T, s.T).tril(-1))
        return output + left[..., None] * t["v"]  # as the authors' tests use it
    return run


for current in ("false", "true"):
    ending = "-attend-current" if current == "true" else ""
    published(f"stick-breaking{ending}", STICK, "stick-breaking", {"remainder": "drop", "attend-current": current})(
        stick_breaking(current == "true"))
    published(f"stick-breaking-value{ending}", STICK_AUTHORS, "stick-breaking",
              {"remainder": "value", "attend-current": current})(stick_breaking_authors(current == "true"))
