"""RoPE with its stretched forms, and xPos."""

import math

import numpy as np

import tape
from position_encodings import encoding


def rotated(x, layout, angle, size=1.0):
    """x with the pairs of its first dims, as many as there are columns in angle [T,r/2], turned and multiplied by size."""
    r, dtype = 2 * angle.shape[1], x.value.dtype
    cos, sin = (np.cos(angle) * size).astype(dtype), (np.sin(angle) * size).astype(dtype)
    if layout == "half":
        a, b = x[..., :r // 2], x[..., r // 2:r]
        turned = tape.concatenate([a * cos - b * sin, a * sin + b * cos])
    else:
        a, b = x[..., 0:r:2], x[..., 1:r:2]
        turned = tape.stack_last([a * cos - b * sin, a * sin + b * cos]).reshape(*x.shape[:-1], r)
    return turned if r == x.shape[-1] else tape.concatenate([turned, x[..., r:]])


def angles_by_parts(theta, base, s, trained):
    """YaRN: planes that turn more than 32 times within the trained length keep theta, those below one turn have theta/s."""
    d = 2 * len(theta)
    low, high = (d * math.log(trained / (2 * math.pi * turns)) / (2 * math.log(base)) for turns in (32, 1))
    low, high = max(math.floor(low), 0), min(math.ceil(high), d - 1)
    ramp = np.clip((np.arange(d // 2) - low) / (high - low if high != low else 0.001), 0, 1)
    return theta / s * ramp + theta * (1 - ramp)


@encoding("rope", "rotate")
def rope(layer, q, k, v):
    options, t = layer.options, np.arange(q.shape[2])[:, None]
    stretch, s, base = options["stretch"], float(options["factor"]), float(options["base"])
    r = int(options["rotary-dims"]) or layer.q.shape[-1]
    if stretch == "ntk" and r > 2:  # a single plane has the angle 1 with any base
        base = base * s ** (r / (r - 2))
    theta, size = base ** (-np.arange(0, r, 2) / r), 1.0
    if stretch == "pi":
        theta = theta / s
    if stretch == "yarn":
        theta, size = angles_by_parts(theta, base, s, int(options["trained-length"])), 0.1 * math.log(max(s, 1)) + 1
    if stretch == "llama3":  # between high and low turns within the trained length from theta to theta/s
        low, high = (float(options[f"{name}-freq-factor"]) for name in ("low", "high"))
        turns = int(options["trained-length"]) * theta / (2 * math.pi)
        theta = theta * np.interp(turns, (low, high), (1 / s, 1))
    return rotated(q, options["layout"], t * theta, size), rotated(k, options["layout"], t * theta, size), v


@encoding("xpos", "rotate")
def xpos(layer, q, k, v):
    d, t = layer.q.shape[-1], np.arange(q.shape[2])[:, None]
    even, layout = np.arange(0, d, 2), layer.options["layout"]
    angle, zeta = t * 10000.0 ** (-even / d), (even + 0.4 * d) / (1.4 * d)
    return rotated(q, layout, angle, zeta ** (t / 512)), rotated(k, layout, angle, zeta ** (-t / 512)), v
