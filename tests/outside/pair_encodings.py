"""Threshold relative attention, selective attention and contextual rotary positions, which change logits pair by pair."""

import numpy as np

import tape
from position_encodings import SAME_POSITION, contextual_positions, distances, encoding


@encoding("tra", "prepare")
def tra_rows(layer, q, k, v):
    def normed(rows):
        return rows / tape.sqrt((rows * rows).mean(-1) + 1e-6)
    return normed(q), normed(k), v


@encoding("tra", "score")
def tra(layer):
    """delta_i n_ij where s_ij > 0, n_ij the number of such keys from j up to i; the others have no weight. Beside 0
    rounding alone decides: there the program's gates are the choice."""
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


@encoding("selective", "score")
def selective(layer):
    """-F_ij, what queries k < i that see j have masked of it: relu of the selector's score, j < k, and j > 0 with bos"""
    chosen, t = layer.s, layer.s.shape[-1]
    if layer.options["selector"] == "first":
        chosen = chosen[:, :1]
    if layer.options["selector"] == "projection":
        q, k = (layer.x @ layer.parameter(f"selector.{part}.weight").swap_last() for part in ("query", "key"))
        products = (q @ k.swap_last()) * layer.scale
        chosen = products.reshape(products.shape[0], 1, t, t)
    masks = layer.seen & (distances(t) > 0)
    if layer.options["bos"]:
        masks = masks & (np.arange(t) > 0)
    masked = tape.relu(tape.where(masks, chosen, 0))
    earlier = (distances(t) > 0).astype(layer.s.value.dtype)
    return tape.Node(-earlier) @ masked


@encoding("contextual-rotary", "score")
def contextual_rotary(layer):
    """What the product gets when each plane of q_i is turned by p_ij theta_n before it meets k_j"""
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
