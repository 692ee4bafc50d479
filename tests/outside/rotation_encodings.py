"""RoPE with its stretched forms and other frequencies, xPos, and rotations by content."""

import math

import numpy as np

import tape
from position_encodings import encoding, repeat_kv


def rotated(x, layout, angle, size=1.0):
    """x with the pairs of its first dims, as many as there are columns in angle [T,r/2], turned and multiplied by size."""
    dtype = x.value.dtype
    return turned(x, layout, (np.cos(angle) * size).astype(dtype), (np.sin(angle) * size).astype(dtype))


def turned(x, layout, cos, sin):
    r = 2 * cos.shape[-1]
    if layout == "half":
        a, b = x[..., :r // 2], x[..., r // 2:r]
        result = tape.concatenate([a * cos - b * sin, a * sin + b * cos])
    else:
        a, b = x[..., 0:r:2], x[..., 1:r:2]
        result = tape.stack_last([a * cos - b * sin, a * sin + b * cos]).reshape(*x.shape[:-1], r)
    return result if r == x.shape[-1] else tape.concatenate([result, x[..., r:]])


def angles_by_parts(theta, base, s, trained, options):
    """YaRN: planes that turn more than beta-fast times within the trained length keep theta, those that turn less often
    than beta-slow have theta/s."""
    d, betas = 2 * len(theta), (float(options["beta-fast"]), float(options["beta-slow"]))
    low, high = (d * math.log(trained / (2 * math.pi * turns)) / (2 * math.log(base)) for turns in betas)
    if options["truncate"]:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, d - 1)
    ramp = np.clip((np.arange(d // 2) - low) / (high - low if high != low else 0.001), 0, 1)
    return theta / s * ramp + theta * (1 - ramp)


def fewer_frequencies(theta, options):
    """The angles, fastest first, with the slower ones at 0 or on their way to it."""
    kind, planes = options["frequencies"], len(theta)
    factor = np.ones(planes)
    if kind == "fastest":
        factor[math.floor(float(options["fastest"]) * planes):] = 0
    elif kind != "all":
        n = min(int(options["clipped"]), planes)
        ramp = (1 + np.cos(np.pi * np.arange(n) / max(n - 1, 1))) / 2
        factor[planes - n:] = ramp if kind == "clip" and n > 1 else 0
    return theta * factor


@encoding("rope", "rotate")
def rope(layer, q, k, v):
    """(a cos(t theta_i) - b sin(t theta_i), a sin(t theta_i) + b cos(t theta_i)) of each pair (a, b) at position t,
    theta_i = base^(-2i/r) (arXiv 2104.09864, equations 15 and 34). Stretched: pi (arXiv 2306.15595), ntk and yarn (arXiv
    2309.00071), llama3 (the released code of Llama 3.1), longrope (arXiv 2402.13753); fewer frequencies: fastest (arXiv
    2410.06205), clip (arXiv 2602.05258)."""
    options, t = layer.options, np.arange(q.shape[2])[:, None]
    stretch, s, base = options["stretch"], float(options["factor"]), float(options["base"])
    r = int(options["rotary-dims"]) or layer.q.shape[-1]
    trained = int(options["trained-length"])
    if r > 2:  # a single plane has the angle 1 with any base
        if stretch == "ntk":
            base = base * s ** (r / (r - 2))
        if stretch == "dynamic" and len(t) > trained:
            base = base * (s * len(t) / trained - s + 1) ** (r / (r - 2))
    theta, size = base ** (-np.arange(0, r, 2) / r), 1.0
    if stretch == "pi":
        theta = theta / s
    if stretch == "yarn":
        theta, size = angles_by_parts(theta, base, s, trained, options), 0.1 * math.log(max(s, 1)) + 1
    if stretch == "llama3":  # between high and low turns within the trained length from theta to theta/s
        low, high = (float(options[f"{name}-freq-factor"]) for name in ("low", "high"))
        turns = trained * theta / (2 * math.pi)
        theta = theta * np.interp(turns, (low, high), (1 / s, 1))
    if stretch == "longrope":  # every plane slower by its own factor, from another list in a longer text
        factors = options["long-factors" if len(t) > trained else "short-factors"]
        theta = theta / (np.array(factors.split("/"), float) if factors else 1)
        size = math.sqrt(1 + math.log(s) / math.log(trained))
    size = float(options["attention-factor"]) or size
    theta = fewer_frequencies(theta, options)
    return rotated(q, options["layout"], t * theta, size), rotated(k, options["layout"], t * theta, size), v


@encoding("xpos", "rotate")
def xpos(layer, q, k, v):
    """RoPE, then q zeta_i^(t/512) and k zeta_i^(-t/512), zeta_i = (2i + 0.4 d) / (1.4 d) (arXiv 2212.10554)"""
    d, t = layer.q.shape[-1], np.arange(q.shape[2])[:, None]
    even, layout = np.arange(0, d, 2), layer.options["layout"]
    angle, zeta = t * 10000.0 ** (-even / d), (even + 0.4 * d) / (1.4 * d)
    return rotated(q, layout, angle, zeta ** (t / 512)), rotated(k, layout, angle, zeta ** (-t / 512)), v


def along_tokens(x):
    """Sums from the first token on, [..., T, n]."""
    return tape.suffix_sum(x.swap_last()[..., ::-1])[..., ::-1].swap_last()


def turned_by(angle, layout, q, k, v):
    """angle [B,G,T,d/2], of each head of keys and those of queries that share it."""
    angle = repeat_kv(angle, q.shape[1], 1)
    cos, sin = tape.cos(angle), tape.sin(angle)
    return turned(q, layout, cos, sin), turned(k, layout, cos, sin), v


@encoding("carope", "shapes")
def carope_shapes(sizes, options):
    return {"frequency.weight": (sizes.key_heads, sizes.width), "frequency.bias": (sizes.key_heads,)}


@encoding("carope", "rotate")
def carope(layer, q, k, v):
    """Pair i is turned by sum_{m<=t} f_m^i, f_t = 1 / (softplus(w_h . x_t + b_h) + 1) (arXiv 2507.23083)"""
    content = layer.x @ layer.parameter("frequency.weight").swap_last() + layer.parameter("frequency.bias")
    f = tape.Node(np.ones((), q.value.dtype)) / (tape.softplus(content) + 1.0)  # [B,T,G]
    powers = [tape.Node(np.ones_like(f.value))]
    while len(powers) < q.shape[-1] // 2:
        powers.append(powers[-1] * f)
    angle = along_tokens(tape.stack_last(powers).transpose(0, 2, 1, 3))
    return turned_by(angle, layer.options["layout"], q, k, v)


def unit(x):
    return x / tape.sqrt((x * x).sum(-1) + 1e-6)


def convolved(rows, weight):
    """Every number of rows [B,G,T,n] over the last tokens, by weight [G,n,taps]; the last tap is for the token itself."""
    t, (heads, width, taps) = rows.shape[2], weight.shape
    total = 0
    for tap in range(taps):
        earlier = np.eye(t, k=tap - taps + 1, dtype=rows.value.dtype)
        total = total + (tape.Node(earlier) @ rows) * weight[:, :, tap].reshape(heads, 1, width)
    return total


@encoding("selective-rope", "shapes")
def selective_rope_shapes(sizes, options):
    heads, planes = sizes.key_heads, sizes.head_width // 2
    shapes = {"angle.weight": (heads, planes, sizes.head_width), "conv.weight": (heads, planes, 4)}
    if options["phase-gate"]:
        shapes |= {"gate.weight": (heads, sizes.width), "gate.bias": (heads,)}
    return shapes | ({"temperature": (planes,)} if options["temperature"] == "learned" else {})


@encoding("selective-rope", "rotate")
def selective_rope(layer, q, k, v):
    """Pair p is turned by tau_p sum_{m<=t} g_m conv(W_h q/|q|)_mp, g_t = sigmoid(w_h . x_t/|x_t| + b_h), tau_p =
    base^(-2p/d) (arXiv 2511.17388, figure 9)"""
    weight, taps = layer.parameter("angle.weight"), layer.parameter("conv.weight")  # [G,d/2,d], [G,d/2,4]
    heads, planes = weight.shape[:2]
    first = layer.q[:, ::layer.q.shape[1] // heads]  # of each group that shares a head of keys
    content = unit(first) @ weight.swap_last()
    angle = convolved(content, taps)
    if layer.options["phase-gate"]:
        gate = tape.sigmoid(unit(layer.x) @ layer.parameter("gate.weight").swap_last() + layer.parameter("gate.bias"))
        angle = angle * gate.transpose(0, 2, 1).reshape(-1, heads, content.shape[2], 1)
    slower = (float(layer.options["base"]) ** (-np.arange(planes) / planes)).astype(q.value.dtype)
    if layer.options["temperature"] == "learned":
        slower = layer.parameter("temperature")
    return turned_by(along_tokens(angle) * slower, "interleaved", q, k, v)
