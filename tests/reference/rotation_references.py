"""Reference values: RoPE."""

import math

from reference_case import CASES, T, Case, encoding


def pairs(layout, r):
    """The dims (a, b) of every pair i."""
    return [(i, i + r // 2) if layout == "half" else (2 * i, 2 * i + 1) for i in range(r // 2)]


def turned(x, layout, r, angle):
    """x [T][d], pair i of token t turned by angle(t, i)."""
    result = [list(row) for row in x]
    for t in range(T):
        for i, (first, second) in enumerate(pairs(layout, r)):
            a, b, phi = x[t][first], x[t][second], angle(t, i)
            result[t][first] = a * math.cos(phi) - b * math.sin(phi)
            result[t][second] = a * math.sin(phi) + b * math.cos(phi)
    return result


@encoding("rope", "rotate")
def rope(head, q, k, v):
    """Every pair turned by t * base^(-2i/r)."""
    r, base = int(head.options.get("rotary-dims", head.d)), float(head.options.get("base", 10000))
    q, k = (turned(x, head.options["layout"], r, lambda t, i: t * base ** (-2 * i / r)) for x in (q, k))
    return q, k, v


CASES += [
    Case("rope-half", "rope", {"layout": "half"}),
    Case("rope-interleaved", "rope", {"layout": "interleaved"}),
    Case("rope-base", "rope", {"layout": "half", "base": "100"}),
    Case("rope-half-rotary-dims", "rope", {"layout": "half", "rotary-dims": "4"}, d=6),
    Case("rope-interleaved-rotary-dims", "rope", {"layout": "interleaved", "rotary-dims": "4"}, d=6),
]
