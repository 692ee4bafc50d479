"""T5, Transformer-XL, KERPLE, FIRE, nexus, and hard attention."""

import math

import numpy as np

import tape
from position_encodings import SAME_POSITION, distances, encoding, repeat_kv, interpolate, split_heads


def no_later(layer):
    """i - j [T,T], 0 where the key comes later."""
    return np.maximum(distances(layer.q.shape[2]), 0)


def t5_bucket(n):
    """n below 16, else min(31, 16 + floor(ln(n/16) / ln(128/16) 16))"""
    far = np.minimum(31, 16 + np.floor(np.log(np.maximum(n, 16) / 16) / math.log(128 / 16) * 16))
    return np.where(n < 16, n, far).astype(np.int64)


@encoding("t5", "shapes")
def t5_shapes(sizes, options):
    return {"biases": (sizes.heads, 32)}


@encoding("t5", "score")
def t5(layer):
    """b_h[bucket(i-j)] (arXiv 1910.10683, section 2.1; buckets of the released code)"""
    bucket, biases = t5_bucket(no_later(layer)), layer.parameter("biases")
    picked = tape.pick(biases, np.broadcast_to(bucket.reshape(-1), (biases.shape[0], bucket.size)))
    return picked.reshape(-1, *bucket.shape)


@encoding("transformer-xl", "shapes")
def transformer_xl_shapes(sizes, options):
    heads, d = sizes.heads, sizes.head_width
    return {"content": (heads, d), "place": (heads, d), "distances": (heads * d, sizes.width)}


@encoding("transformer-xl", "score")
def transformer_xl(layer):
    """(u . k_j + (q_i + v) . (W_r R[i-j])) / sqrt(d), R[n] = [sin(n w_m)], then [cos(n w_m)], w_m = 10000^(-2m/D) (arXiv
    1901.02860, section 3.3)"""
    q, width = layer.q, layer.x.shape[-1]
    u, v = (layer.parameter(name).reshape(q.shape[1], 1, -1) for name in ("content", "place"))
    sines, cosines = ((width + 1) // 2, width // 2)
    angle = np.arange(q.shape[2])[:, None] * 10000.0 ** (-2 * np.arange(sines) / width)
    known = np.concatenate([np.sin(angle), np.cos(angle[:, :cosines])], axis=1).astype(q.value.dtype)
    mapped = split_heads(tape.Node(known[None]) @ layer.parameter("distances").swap_last(), q.shape[1])
    by_distance = tape.pick((q + v) @ mapped.swap_last(), np.broadcast_to(no_later(layer), layer.s.shape))
    return (u @ layer.k.swap_last() + by_distance) * layer.scale


@encoding("kerple", "shapes")
def kerple_shapes(sizes, options):
    return {"r1": (sizes.heads,), "r2": (sizes.heads,)}


@encoding("kerple", "score")
def kerple(layer):
    """-r1 ln(1 + r2 (i-j)), or -r1 (i-j)^r2, which is 0 at i = j (arXiv 2205.09921)"""
    n, dtype = no_later(layer), layer.q.value.dtype
    r1, r2 = (layer.parameter(name).reshape(-1, 1, 1) for name in ("r1", "r2"))
    if layer.options["kernel"] == "log":
        return r1 * tape.log(r2 * n.astype(dtype) + 1.0) * -1.0
    power = tape.exp(r2 * np.log(np.maximum(n, 1)).astype(dtype))
    return r1 * tape.where(n > 0, power, 0) * -1.0


@encoding("fire", "shapes")
def fire_shapes(sizes, options):
    return {"c": (1,), "m": (1,), "hidden.weight": (32, 1), "hidden.bias": (32,), "output.weight": (sizes.heads, 32),
            "output.bias": (sizes.heads,)}


@encoding("fire", "score")
def fire(layer):
    """f_h( ln(|c| (i-j) + 1) / (ln(|c| max(i, L) + 1) + 1e-6) ), L = |512 m|, f = W2 relu(w1 x + b1) + b2 (arXiv
    2310.04418)"""
    n, dtype = no_later(layer), layer.q.value.dtype
    index = np.arange(n.shape[0], dtype=dtype)[:, None]
    c, m = layer.parameter("c"), layer.parameter("m")
    c, length = c * np.sign(c.value), m * (512 * np.sign(m.value)).astype(dtype)
    own = length.value >= index
    length = tape.where(own, length + np.zeros_like(index), 0) + np.where(own, 0, index).astype(dtype)
    x = tape.log(c * n.astype(dtype) + 1.0) / (tape.log(c * length + 1.0) + 1e-6)
    hidden = x.reshape(*n.shape, 1) @ layer.parameter("hidden.weight").swap_last() + layer.parameter("hidden.bias")
    f = tape.relu(hidden) @ layer.parameter("output.weight").swap_last() + layer.parameter("output.bias")
    return f.transpose(2, 0, 1)


@encoding("nexus", "shapes")
def nexus_shapes(sizes, options):
    d, heads = sizes.head_width, sizes.key_heads
    return {"gate.weight": (heads, sizes.width), "gate.bias": (heads,), "query.weight": (d, d),
            "table": (int(options["p-max"]) + 1, d)}


@encoding("nexus", "score")
def nexus(layer):
    """(W_p q_i) . e(p_j) / sqrt(d), p_j = sum_{u<=j} sigmoid(w_h . x_u + b_h) (nn/position/errata.md)"""
    gates = tape.sigmoid(layer.x @ layer.parameter("gate.weight").swap_last() + layer.parameter("gate.bias"))
    heads = gates.transpose(0, 2, 1)                       # [B,H,T]
    positions = tape.suffix_sum(heads[..., ::-1])[..., ::-1]  # sums from the start
    table = layer.parameter("table")
    b, h, t = positions.shape
    columns = positions.reshape(1, b * h * t) + np.zeros((table.shape[1], 1), table.value.dtype)  # the same for all
    entries = interpolate(table.swap_last(), columns).swap_last().reshape(b, h, t, table.shape[1])
    entries = repeat_kv(entries, layer.q.shape[1], 1)
    return (layer.q @ layer.parameter("query.weight").swap_last()) @ entries.swap_last() * layer.scale


@encoding("hard", "weights")
def hard(layer, logits, dumped):
    """1 at the largest logit of a row, the nearest of equal ones; its gradient is the softmax's (straight-through,
    arXiv 1308.3432).

    Only rounding decides between logits that are almost equal. If the program's weights are known and their key's
    logit is the largest up to rounding, the program's choice is taken.
    """
    seen, keys = layer.seen, np.arange(logits.shape[2])
    value = np.where(seen, logits.value, -np.inf)
    largest = value.max(axis=-1, keepdims=True)
    near = value >= largest - SAME_POSITION
    nearest = np.where(value == largest, keys, -1).max(axis=-1)
    if dumped is not None:
        theirs = dumped.argmax(axis=-1)
        known = np.take_along_axis(near, theirs[..., None], axis=-1)[..., 0]
        nearest = np.where(known, theirs, nearest)
    chosen = (keys == nearest[..., None]).astype(logits.value.dtype)
    return tape.Node(chosen, (tape.softmax(logits, seen), lambda g: g))
