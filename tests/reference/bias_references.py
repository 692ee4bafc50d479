"""Reference values: T5, Transformer-XL, KERPLE, FIRE, nexus; hard attention."""

import cmath
import math

import numpy as np

from classic_references import cope_options
from reference_case import (CASES, H, T, Case, by_distance, dot, encoding, interpolated, scaled, sigmoid, softmax,
                            triangle)


def t5_bucket(n):
    if n < 16:
        return n
    return min(31, 16 + math.floor(math.log(n / 16) / math.log(128 / 16) * 16))


@encoding("t5", "shapes")
def t5_shapes(case, options):
    return {"biases": (H, 32)}


@encoding("t5", "score")
def t5(head):
    """b_h[bucket(i-j)]"""
    return by_distance(lambda n: head.own["biases"][head.h][t5_bucket(n)])


@encoding("transformer-xl", "shapes")
def transformer_xl_shapes(case, options):
    return {"content": (H, case.d), "place": (H, case.d), "distances": (case.D, case.D)}


@encoding("transformer-xl", "score")
def transformer_xl(head):
    """scale * (u . k_j + (q_i + v) . (W_r R[i-j]))"""
    own, D, bias = head.own, head.case.D, triangle()
    u, v = own["content"][head.h], own["place"][head.h]

    def known(n):
        angles = [n * 10000 ** (-2 * m / D) for m in range(math.ceil(D / 2))]
        return ([math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles])[:D]
    for i in range(T):
        moved = [a + b for a, b in zip(head.q[i], v)]
        for j in range(i + 1):
            mapped = [dot(own["distances"][row], known(i - j)) for row in head.rows()]
            bias[i][j] = scaled(u, head.k[j]) + scaled(moved, mapped)
    return bias


@encoding("kerple", "shapes")
def kerple_shapes(case, options):
    return {"r1": (H,), "r2": (H,)}


@encoding("kerple", "score")
def kerple(head):
    """-r1 ln(1 + r2 n), or -r1 n^r2"""
    r1, r2 = head.own["r1"][head.h], head.own["r2"][head.h]
    if head.options["kernel"] == "log":
        return by_distance(lambda n: -r1 * cmath.log(1 + r2 * n))
    return by_distance(lambda n: -r1 * n ** r2 if n > 0 else 0.0)


def positive(inputs):
    """r1 and r2 of KERPLE to where they may be."""
    for name in ("r1", "r2"):
        inputs[name] = 0.25 + np.minimum(np.abs(inputs[name]), 1.5)


@encoding("fire", "shapes")
def fire_shapes(case, options):
    return {"c": (1,), "m": (1,), "hidden.weight": (32, 1), "hidden.bias": (32,), "output.weight": (H, 32),
            "output.bias": (H,)}


def magnitude(x):
    return x if x.real >= 0 else -x


@encoding("fire", "score")
def fire(head):
    """f_h( ln(|c| (i-j) + 1) / (ln(|c| max(i, L) + 1) + 1e-6) ), L = |512 m|"""
    own, bias = head.own, triangle()
    c, threshold = magnitude(own["c"][0]), magnitude(512 * own["m"][0])
    for i in range(T):
        for j in range(i + 1):
            length = threshold if threshold.real > i else i
            x = cmath.log(c * (i - j) + 1) / (cmath.log(c * length + 1) + 1e-6)
            hidden = [w[0] * x + b for w, b in zip(own["hidden.weight"], own["hidden.bias"])]
            hidden = [a if a.real > 0 else 0.0 for a in hidden]
            bias[i][j] = dot(own["output.weight"][head.h], hidden) + own["output.bias"][head.h]
    return bias


def short_threshold(inputs):
    """L = |512 m| of 3.5 tokens."""
    inputs["m"] = np.array([-7 / 1024])


@encoding("nexus", "shapes")
def nexus_shapes(case, options):
    return {"gate.weight": (H, case.D), "gate.bias": (H,), "query.weight": (case.d, case.d),
            "table": (int(options["p-max"]) + 1, case.d)}


@encoding("nexus", "score")
def nexus(head):
    """scale * (W_p q_i) . e(p_j), p_j = sum_{u<=j} sigmoid(w_h . x_u + b_h)"""
    own, bias, p, entries = head.own, triangle(), 0, []
    for x in head.x:
        p = p + sigmoid(dot(own["gate.weight"][head.h], x) + own["gate.bias"][head.h])
        head.kinks.append(p.real)
        entries.append([interpolated(column, p) for column in zip(*own["table"])])
    for i in range(T):
        query = [dot(row, head.q[i]) for row in own["query.weight"]]
        for j in range(i + 1):
            bias[i][j] = scaled(query, entries[j])
    return bias


@encoding("hard", "weights")
def hard(head, logits):
    """1 at the largest logit of a row, the nearest of equal ones. The imaginary parts are those of the softmax: then the
    complex step gives the output's derivative straight through it."""
    weights = softmax(head.case, logits)
    for i in range(T):
        keys = head.case.keys(i)
        largest = max(keys, key=lambda j: (logits[i][j].real, j))
        for j in keys:
            weights[i][j] = complex(j == largest, weights[i][j].imag)
    return weights


def ties(inputs):
    """Keys that repeat: several logits of a row are the largest."""
    inputs["k"][:, :, 3:] = inputs["k"][:, :, :4]


CASES += [
    Case("t5", "t5"),
    Case("transformer-xl", "transformer-xl"),
    Case("transformer-xl-odd-width", "transformer-xl", d=3),
    Case("rope+transformer-xl", "rope+transformer-xl", {"rope.layout": "half"}),
    Case("kerple-log", "kerple", {"kernel": "log"}, adjust=positive),
    Case("kerple-power", "kerple", {"kernel": "power"}, adjust=positive),
    Case("fire-below-threshold", "fire"),
    Case("fire-beyond-threshold", "fire", adjust=short_threshold),
    Case("nexus", "nexus", {"p-max": "8"}),
    Case("nexus-saturated", "nexus", {"p-max": "2"}, d=3),
    Case("cope+nexus", "cope+nexus", {**cope_options(3, "cope."), "nexus.p-max": "8"}),
    Case("hard", "hard"),
    Case("hard-ties", "hard", adjust=ties),
    Case("alibi+hard", "alibi+hard", {"alibi.learned": "true"}),
]
