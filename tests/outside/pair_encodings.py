"""Threshold relative attention and selective attention, which change logits pair by pair."""

import numpy as np

import tape
from position_encodings import SAME_POSITION, distances, encoding


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
