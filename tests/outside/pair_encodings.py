"""Threshold relative attention, selective attention and contextual rotary positions, which change logits pair by pair."""

import numpy as np

import tape
from position_encodings import SAME_POSITION, contextual_positions, distances, encoding, gate_shapes


@encoding("tra", "shapes")
def tra_shapes(sizes, options):
    return {"threshold.weight": (sizes.heads, sizes.width), "threshold.bias": (sizes.heads,)}


@encoding("tra", "prepare")
def tra_rows(layer, q, k, v):
    """y / sqrt(mean(y²) + 1e-6), of q and k"""
    def normed(rows):
        return rows / tape.sqrt((rows * rows).mean(-1) + 1e-6)
    return normed(q), normed(k), v


@encoding("tra", "score")
def tra(layer):
    """delta_i n_ij where s_ij > 0, delta_i = log sigmoid(w_h . x_i + b_h), n_ij the number of such keys from j up to i; the
    others have no weight (arXiv 2503.23174). Close to 0 only rounding decides. There the program's gates decide."""
    tape.has_kink_at_zero(layer.s.value[..., layer.seen])
    above, dumped = layer.s.value > 0, layer.dumped.get("gates")
    if dumped is not None:
        above = np.where(np.abs(layer.s.value) < SAME_POSITION, dumped > 0, above)
    layer.alive = above & layer.seen
    count = np.cumsum(layer.alive[..., ::-1], axis=-1)[..., ::-1].astype(layer.s.value.dtype)
    layer.record("gates", tape.Node(layer.alive.astype(count.dtype)))
    layer.record("positions", tape.Node(count))
    opening = layer.x @ layer.parameter("threshold.weight").swap_last() + layer.parameter("threshold.bias")
    delta = tape.softplus(opening * -1) * -1  # [B,T,H]
    b, t, h = delta.shape
    return delta.transpose(0, 2, 1).reshape(b, h, t, 1) * count


@encoding("selective", "shapes")
def selective_shapes(sizes, options):
    if options["selector"] != "projection":
        return {}
    return {f"selector.{part}.weight": (sizes.head_width, sizes.width) for part in ("query", "key")}


@encoding("selective", "score")
def selective(layer):
    """-F_ij = -sum_{k<i} S_kj, S_kj = relu(selector's score) for j < k that k may attend to; j > 0 with bos (arXiv
    2410.02703)"""
    chosen, t = layer.s, layer.s.shape[-1]
    if layer.options["selector"] == "first":
        chosen = chosen[:, :1]
    if layer.options["selector"] == "projection":
        q, k = (layer.x @ layer.parameter(f"selector.{part}.weight").swap_last() for part in ("query", "key"))
        products = (q @ k.swap_last()) * layer.scale
        chosen = products.reshape(products.shape[0], 1, t, t)
    tape.has_kink_at_zero(chosen.value[..., distances(t) > 0])
    masks = layer.seen & (distances(t) > 0)
    if layer.options["bos"]:
        masks = masks & (np.arange(t) > 0)
    masked = tape.relu(tape.where(masks, chosen, 0))
    earlier = (distances(t) > 0).astype(layer.s.value.dtype)
    return tape.Node(-earlier) @ masked


encoding("contextual-rotary", "shapes")(gate_shapes)


@encoding("contextual-rotary", "score")
def contextual_rotary(layer):
    """sum_n (a a' + b b') (cos(p_ij theta_n) - 1) + (a b' - b a') sin(p_ij theta_n), over sqrt(d), of q_i = (a, b) and k_j =
    (a', b') in plane n, theta_n = base^(-2n/r) (CoPE's positions in RoPE's planes; not published)"""
    q, k, options = layer.rotated_q, layer.rotated_k, layer.options
    r = int(options["rotary-dims"]) or q.shape[-1]
    positions = contextual_positions(layer, options["own"])
    theta, joined = float(options["base"]) ** (-np.arange(0, r, 2) / r), 0
    for n in range(r // 2):
        first, second = (n, n + r // 2) if options["layout"] == "half" else (2 * n, 2 * n + 1)
        angle = positions * theta[n]
        a, b = q[..., first:first + 1], q[..., second:second + 1]  # [B,H,T,1]
        c, d = (k[..., at:at + 1].swap_last() for at in (first, second))  # [B,H,1,T]
        joined = joined + (a * c + b * d) * (tape.cos(angle) - 1.0) + (a * d - b * c) * tape.sin(angle)
    return joined * layer.product_scale
