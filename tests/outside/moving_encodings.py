"""PaTH and Wall: keys that every later token changes. Token by token, with all keys as each of them leaves these: memory
for the square of the length times the width of a head."""

import numpy as np

import tape
from contextual_encodings import forget_bias, forget_shapes, norm
from position_encodings import distances, encoding, repeat_kv, split_heads
from rotation_encodings import convolved, unit


def norm_shapes(sizes, options):
    heads = {"query": sizes.heads, "key": sizes.key_heads}
    return {f"{part}-norm.weight": (n, sizes.head_width) for part, n in heads.items()} if options["qk-norm"] else {}


def with_norms(layer, q, k, v):
    if layer.options["qk-norm"]:
        q, k = norm(layer, q, "query"), norm(layer, k, "key")
    return q, k, v


encoding("path", "prepare")(with_norms)
encoding("wall", "prepare")(with_norms)


def met_keys(layer, change):
    """q_i.k_j with every key as query i meets it, less the plain product, with the scale of s; [B,H,T,T], 0 above the
    diagonal. change(keys [B,H,i,d], i): what token i makes of those before it."""
    q, k, t = layer.rotated_q, layer.rotated_k, layer.rotated_q.shape[2]
    keys, rows = None, []
    for i in range(t):
        own = k[:, :, i:i + 1].swap_last()
        keys = own.swap_last() if keys is None else tape.concatenate([change(keys, i).swap_last(), own]).swap_last()
        row = (q[:, :, i:i + 1] @ keys.swap_last()).reshape(*q.shape[:2], i + 1)
        later = np.zeros((*q.shape[:2], t - i - 1), q.value.dtype)
        rows.append(tape.concatenate([row, tape.Node(later)]))
    products = tape.stack_last(rows).swap_last() * layer.product_scale
    return tape.where(distances(t) >= 0, products - layer.s, 0)


@encoding("path", "shapes")
def path_shapes(sizes, options):
    heads, d, width, rank = sizes.key_heads, sizes.head_width, sizes.width, int(options["rank"])
    low_rank = {"down.weight": (rank, width), "up.weight": (heads * d, rank)}
    return {**(low_rank if rank else {"direction.weight": (heads * d, width)}),
            **({"conv.weight": (heads, d, int(options["conv-size"]))} if options["conv"] else {}),
            "strength.weight": (heads, width), "strength.bias": (heads,), **norm_shapes(sizes, options),
            **(forget_shapes(sizes) if options["forget"] else {})}


def directions(layer, heads):
    """w_t = y_t / |y_t| [B,G,T,d], y = silu(conv(W2 W1 x)) or W2 W1 x"""
    y = layer.x
    if layer.has("direction.weight"):
        y = y @ layer.parameter("direction.weight").swap_last()
    else:
        y = y @ layer.parameter("down.weight").swap_last() @ layer.parameter("up.weight").swap_last()
    y = split_heads(y, heads)
    if layer.options["conv"]:
        y = convolved(y, layer.parameter("conv.weight"))
        y = y * tape.sigmoid(y)
    return unit(y)


@encoding("path", "score")
def path(layer):
    """q_i . H_i H_{i-1} ... H_{j+1} k_j, H_t = I - beta_t w_t w_t', beta_t = 2 sigmoid(u_h . x_t + b_h) (arXiv 2505.16381);
    with forget the sum of log forget gates joins it"""
    weight, heads = layer.parameter("strength.weight"), layer.q.shape[1]
    strength = layer.x @ weight.swap_last() + layer.parameter("strength.bias")
    beta = repeat_kv((tape.sigmoid(strength) * 2.0).transpose(0, 2, 1), heads, 1)  # [B,H,T]
    w = repeat_kv(directions(layer, weight.shape[0]), heads, 1)

    def change(keys, i):
        now = w[:, :, i:i + 1]
        return keys - keys @ now.swap_last() * beta[:, :, i:i + 1].reshape(-1, heads, 1, 1) * now
    bias = met_keys(layer, change)
    if layer.options["forget"]:
        bias = bias + forget_bias(layer, layer.scale if layer.options["gate-scale"] == "sqrt-d" else 1.0)
    return bias


@encoding("wall", "shapes")
def wall_shapes(sizes, options):
    width = sizes.heads * sizes.head_width
    return {"decay.weight": (width, sizes.width), "decay.bias": (width,), **norm_shapes(sizes, options),
            **(forget_shapes(sizes) if options["scalar-gate"] else {})}


@encoding("wall", "score")
def wall(layer):
    """sum_n q_in k_jn f_j+1,n ... f_in, f_t = sigmoid(W x_t + b) (the released code of flash-linear-attention)"""
    opening = layer.x @ layer.parameter("decay.weight").swap_last() + layer.parameter("decay.bias")
    kept = tape.sigmoid(split_heads(opening, layer.q.shape[1]))
    bias = met_keys(layer, lambda keys, i: keys * kept[:, :, i:i + 1])
    return bias + forget_bias(layer) if layer.options["scalar-gate"] else bias
