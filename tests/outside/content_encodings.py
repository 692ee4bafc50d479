"""Distances and positions that each token sets: the relative bank, polar coordinates and RePo."""

import math

import numpy as np

import tape
from position_encodings import Sight, distances, encoding, repeat_kv, split_heads
from rotation_encodings import convolved, rotated, turned_by


@encoding("relative-bank", "shapes")
def relative_bank_shapes(sizes, options):
    w, taps, d = int(options["width"]), int(options["conv-size"]), sizes.head_width
    shapes = {"mix.weight": (sizes.heads * w, sizes.width), "bank": (int(options["extent"]), w)}
    if taps:
        shapes |= {f"{part}-conv.weight": (sizes.key_heads, d, taps) for part in ("key", "value")}
    return shapes | ({f"{part}-norm.weight": (d,) for part in ("query", "key")} if options["qk-norm"] else {})


def log_factor(layer):
    """tau_i = 1 + alpha ln max((i+1) / n0, 1) [T,1], or 1 with an attention mask"""
    t, dtype, start = layer.q.shape[2], layer.q.value.dtype, int(layer.options["log-length"])
    if not start or layer.sight != Sight():
        return np.ones((t, 1), dtype)
    grown = np.log(np.maximum(np.arange(1, t + 1) / start, 1))
    return (1 + float(layer.options["log-scale"]) * grown)[:, None].astype(dtype)


@encoding("relative-bank", "prepare")
def relative_bank_rows(layer, q, k, v):
    """k, v: y_t = x_t + sum_m c_m x_{t-m}; then q, k: y / sqrt(mean(y²) + 1e-6) weight; q times tau_i"""
    heads = q.shape[1]
    if int(layer.options["conv-size"]):
        k, v = (x + convolved(x, repeat_kv(layer.parameter(f"{part}-conv.weight"), heads, 0))
                for x, part in ((k, "key"), (v, "value")))
    if layer.options["qk-norm"]:
        q, k = (x / tape.sqrt((x * x).mean(-1) + 1e-6) * layer.parameter(f"{part}-norm.weight")
                for x, part in ((q, "query"), (k, "key")))
    return q * log_factor(layer), k, v


@encoding("relative-bank", "scale")
def relative_bank_scale(layer):
    return layer.scale ** 2 if layer.options["score-scale"] == "d" else layer.scale


@encoding("relative-bank", "score")
def relative_bank(layer):
    """tau_i r_i . e[i-j] for i-j < E, else 0; r_i = W_r x_i (the released code of Inkling, in huggingface/transformers)"""
    bank, n = layer.parameter("bank"), distances(layer.q.shape[2])
    mix = split_heads(layer.x @ layer.parameter("mix.weight").swap_last(), layer.q.shape[1])
    index = np.broadcast_to(np.clip(n, 0, bank.shape[0] - 1), layer.s.shape)
    picked = tape.pick(mix @ bank.swap_last(), index)
    return tape.where((n >= 0) & (n < bank.shape[0]), picked, 0) * log_factor(layer)


def polar_dims(width, options):
    return int(options["rotary-dims"]) or width


@encoding("pope", "shapes")
def pope_shapes(sizes, options):
    return {"delta": (sizes.heads, polar_dims(sizes.head_width, options))}


@encoding("pope", "rotate")
def pope(layer, q, k, v):
    """(u cos phi, u sin phi, rest), u = softplus of the first r dims, phi_c = t theta_c, minus delta_hc for a query, theta_c
    = base^(-c/r) (arXiv 2509.10534; there delta is added for a key)"""
    r, t = polar_dims(layer.q.shape[-1], layer.options), np.arange(q.shape[2])[:, None]
    angle = (t * float(layer.options["base"]) ** (-np.arange(r) / r)).astype(q.value.dtype)
    delta = layer.parameter("delta").reshape(-1, 1, r)

    def widened(x, angle):
        size = tape.softplus(x[..., :r])
        parts = [size * tape.cos(angle), size * tape.sin(angle)]
        return tape.concatenate(parts + ([x[..., r:]] if r < x.shape[-1] else []))
    return widened(q, angle - delta), widened(k, tape.Node(angle)), v


@encoding("repo", "shapes")
def repo_shapes(sizes, options):
    """Of layer 0."""
    if int(options["rope-layers"]):
        return {}
    hidden = int(options["hidden"]) or max(1, sizes.width // 8)
    return {"gate.weight": (hidden, sizes.width), "content.weight": (hidden, sizes.width),
            "position.weight": (sizes.key_heads, hidden)}


@encoding("repo", "rotate")
def repo(layer, q, k, v):
    """Planes turned by z_t theta, z = W_z (silu(W_g x) * (W_c x)) per head of keys, theta_p = base^(-2p/d); by t theta in the
    first layers (arXiv 2512.14391)"""
    d = layer.q.shape[-1]
    theta = (float(layer.options["base"]) ** (-np.arange(0, d, 2) / d)).astype(q.value.dtype)
    if layer.index < int(layer.options["rope-layers"]):
        angle = np.arange(q.shape[2])[:, None] * theta
        return rotated(q, "half", angle), rotated(k, "half", angle), v
    gate, content = (layer.x @ layer.parameter(f"{part}.weight").swap_last() for part in ("gate", "content"))
    z = (gate * tape.sigmoid(gate) * content) @ layer.parameter("position.weight").swap_last()  # [B,T,G]
    b, t, heads = z.shape
    return turned_by(z.transpose(0, 2, 1).reshape(b, heads, t, 1) * theta, "half", q, k, v)
