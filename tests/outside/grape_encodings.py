"""GRAPE in its additive and multiplicative forms, and BAM's prior of the distance."""

import numpy as np

import tape
from position_encodings import alibi_slopes, distances, encoding, repeat_kv, split_heads
from rotation_encodings import along_tokens, turned, turned_by


def slopes_of(layer):
    """ALiBi's slopes [H,1,1]."""
    return alibi_slopes(layer.q.shape[1]).astype(layer.q.value.dtype).reshape(-1, 1, 1)


@encoding("grape-a", "shapes")
def grape_a_shapes(sizes, options):
    shapes, gate = {"rate": (sizes.heads,)}, options["gate"]
    shapes |= {"query": (sizes.heads, sizes.head_width)} if gate != "key" else {}
    return shapes | ({"key": (sizes.key_heads, sizes.head_width)} if gate != "query" else {})


@encoding("grape-a", "score")
def grape_a(layer):
    """-m_h softplus(w_h) (i-j) (a_i + c_j) with a or c alone for one gate, a_i = softplus(v_h . q_i / (|v_h| sqrt(d))), c_j
    likewise of k_j (arXiv 2512.07805)"""
    def gate(rows, name):
        direction = repeat_kv(layer.parameter(name), rows.shape[1], 0)
        unit = direction / tape.sqrt((direction * direction).sum(-1) + 1e-14)
        return tape.softplus((rows * unit.reshape(unit.shape[0], 1, unit.shape[1])).sum(-1) * layer.scale)  # [B,H,T,1]

    kind, gates = layer.options["gate"], 0
    if kind != "key":
        gates = gates + gate(layer.q, "query")
    if kind != "query":
        gates = gates + gate(layer.k, "key").swap_last()
    n = np.maximum(distances(layer.q.shape[2]), 0)
    rate = tape.softplus(layer.parameter("rate")).reshape(-1, 1, 1) * -slopes_of(layer)
    return rate * gates * n.astype(layer.q.value.dtype)


@encoding("grape-ap", "shapes")
def grape_ap_shapes(sizes, options):
    width = int(options["width"])
    of_keys = (sizes.key_heads * width, sizes.width)
    if options["form"] == "turned":
        return {"path.weight": of_keys}
    return {"query.weight": (sizes.heads * width, sizes.width), "key.weight": of_keys}


@encoding("grape-ap", "score")
def grape_ap(layer):
    """sum_{k=j+1..i} m_h log sigmoid(p_i . R(k) p_k / (w rms(p_k))), R(k): (a, b) -> (a cos k + b sin k, b cos k - a sin k)
    (arXiv 2512.07805, the released code); per-row: sum_{k=j..i-1} log sigmoid(a_i . b_k / sqrt(w)) (x-transformers)"""
    heads, t, width = layer.q.shape[1], layer.q.shape[2], int(layer.options["width"])

    def rows(name):
        projected = layer.x @ layer.parameter(f"{name}.weight").swap_last()
        return repeat_kv(split_heads(projected, projected.shape[2] // width), heads, 1)

    if layer.options["form"] == "turned":
        p = rows("path")
        normed = p / tape.sqrt((p * p).mean(-1) + 2.0 ** -23)
        angle = np.broadcast_to(np.arange(t)[:, None], (t, width // 2))
        dtype = p.value.dtype
        keys = turned(normed, "half", np.cos(angle).astype(dtype), -np.sin(angle).astype(dtype))
        logits, counted = p @ keys.swap_last() * (1 / width), layer.seen
    else:
        logits = rows("query") @ rows("key").swap_last() * width ** -0.5
        counted = layer.seen & (distances(t) > 0)
    gates = tape.where(counted, tape.softplus(logits * -1), 0)
    sums = tape.suffix_sum(gates)
    if layer.options["form"] == "turned":
        sums = sums - gates  # the key's own is not in
    layer.record("gates", gates)
    layer.record("positions", sums)
    return sums * (-slopes_of(layer) if layer.options["form"] == "turned" else -1)


@encoding("grape-m", "shapes")
def grape_m_shapes(sizes, options):
    sets = sizes.key_heads if options["share"] == "none" else 1
    steps = {} if options["steps"] == "one" else {"step.weight": (1, sizes.width), "step.bias": (1,)}
    return {"frequencies": (sets * (sizes.head_width // 2),)} | steps


@encoding("grape-m", "rotate")
def grape_m(layer, q, k, v):
    """Plane n is turned by phi_t e^a_n, phi_t = t or sum_{u<t} omega_u, omega_u = softplus(w . x_u + b) or sigmoid((w . x_u
    + b) / 16) (arXiv 2512.07805 and the released code)"""
    t, steps = q.shape[2], layer.options["steps"]
    theta = tape.exp(layer.parameter("frequencies"))
    theta = theta.reshape(-1, 1, q.shape[3] // 2)  # [1 or G,1,d/2]
    position = np.arange(t, dtype=q.value.dtype).reshape(1, 1, t, 1)
    if steps != "one":
        chosen = layer.x @ layer.parameter("step.weight").swap_last() + layer.parameter("step.bias")  # [B,T,1]
        step = tape.softplus(chosen) if steps == "softplus" else tape.sigmoid(chosen * (1 / 16))
        position = (along_tokens(step) - step).reshape(-1, 1, t, 1)
    angle = theta * position if steps == "one" else position * theta
    return turned_by(angle, layer.options["layout"], q, k, v)


@encoding("bam", "shapes")
def bam_shapes(sizes, options):
    names = ("scale", "shape", *(["location"] if options["location"] else []))
    return {name: (sizes.heads,) for name in names}


@encoding("bam", "score")
def bam(layer):
    """-e^a_h (|i-j - mu_h| + 1e-5)^b_h, mu_h = e^m_h - e^-m_h, or 0 (arXiv 2505.22842; there m has the other sign)"""
    n = np.maximum(distances(layer.q.shape[2]), 0).astype(layer.q.value.dtype)
    a, b = (layer.parameter(name).reshape(-1, 1, 1) for name in ("scale", "shape"))
    distance = tape.Node(n)
    if layer.options["location"]:
        m = layer.parameter("location").reshape(-1, 1, 1)
        apart = (tape.exp(m) - tape.exp(m * -1)) * -1 + n
        tape.has_kink_at_zero(apart.value)
        distance = apart * np.sign(apart.value)
    return tape.exp(a + b * tape.log(distance + 1e-5)) * -1.0
