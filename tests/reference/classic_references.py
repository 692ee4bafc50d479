"""Reference values: no encoding, absolute, sinusoidal, relative, ALiBi, CoPE, and sums."""

import math

import numpy as np

from reference_case import (CASES, H, T, Case, by_distance, dot, encoding, interpolated, scaled, scores, sigmoid,
                            triangle)


@encoding("absolute", "shapes")
def absolute_shapes(case, options):
    return {"table": (case.max_length, case.D)}


@encoding("absolute", "embed")
def absolute(case, own, x):
    """x_t += e[t]"""
    return [[a + e for a, e in zip(x[t], own["table"][t])] for t in range(T)]


@encoding("sinusoidal", "embed")
def sinusoidal(case, own, x):
    """x_t[2i] += sin(t / 10000^(2i/D)), x_t[2i+1] += cos(the same)"""
    output = [list(row) for row in x]
    for t in range(T):
        for n in range(case.D):
            angle = t / 10000 ** ((n - n % 2) / case.D)
            output[t][n] += math.cos(angle) if n % 2 else math.sin(angle)
    return output


@encoding("relative", "shapes")
def relative_shapes(case, options):
    return {"table": (int(options.get("distances", 0)) or case.max_length, case.d)}


@encoding("relative", "score")
def relative(head):
    """scale * q_i . e[i-j]"""
    bias, table = triangle(), head.own["table"]
    for i in range(T):
        for j in range(i + 1):
            n = i - j
            if n >= len(table) and head.options["far"] == "none":
                continue
            bias[i][j] = scaled(head.query()[i], table[min(n, len(table) - 1)])  # far = refuse never gets here
    return bias


def published_slopes(heads):
    """m_h = 2^(-8h/H); else the slopes of the power of two below, then every second slope of twice that power."""
    def of_power(n):
        return [2.0 ** (-8.0 * h / n) for h in range(1, n + 1)]
    power = 1
    while 2 * power <= heads:
        power *= 2
    return of_power(power) + of_power(2 * power)[0::2][:heads - power]


@encoding("alibi", "shapes")
def alibi_shapes(case, options):
    return {"slopes": (H,)} if options["learned"] == "true" else {}


@encoding("alibi", "score")
def alibi(head):
    """-m (i-j)"""
    slopes = head.own["slopes"] if head.options["learned"] == "true" else published_slopes(H)
    return by_distance(lambda n: -slopes[head.h] * n)


def gate_shapes(case, options):
    return {"gate.weight": (case.D, case.D), "gate.bias": (case.D,)} if options["gates"] == "sep-keys" else {}


def contextual_positions(head):
    """p_ij = sum_{k=j..i} g_ik over the keys that are seen"""
    q, own, gate_scores = head.query(), head.own, head.s
    if head.options["gates"] == "values":
        gate_scores = scores(q, head.v)
    if head.options["gates"] == "sep-keys":
        gate_keys = [[dot(own["gate.weight"][row], x) + own["gate.bias"][row] for row in head.rows()] for x in head.x]
        gate_scores = scores(q, gate_keys)
    gates, positions = triangle(), triangle()
    for i in range(T):
        p, keys = 0, head.case.keys(i)
        for j in range(i, -1, -1):
            if j in keys:
                gates[i][j] = sigmoid(gate_scores[i][j])
                p = p + gates[i][j]
            positions[i][j] = p
    head.result |= {"gates": gates, "positions": positions}
    return positions


@encoding("cope", "shapes")
def cope_shapes(case, options):
    table = (int(options["p-max"]) + 1, case.d)
    return {"table": (H, *table) if options["share"] == "none" else table} | gate_shapes(case, options)


@encoding("cope", "score")
def cope(head):
    """z_i interpolated at p_ij"""
    table = head.own["table"][head.h] if head.options["share"] == "none" else head.own["table"]
    product = {"none": dot, "sqrt-d": scaled}[head.options["position-scale"]]
    positions, bias = contextual_positions(head), triangle()
    for i in range(T):
        z = [product(head.query()[i], row) for row in table]
        for j in range(i + 1):
            bias[i][j] = interpolated(z, positions[i][j])
            head.kinks.append(positions[i][j].real)
    return bias


# ---------------------------------------------------------------------------------------------------------------------
# The files.


def cope_options(p_max, prefix="", **changed):
    options = {"p-max": str(p_max), "position-scale": "none", "share": "heads", "gates": "keys"}
    options |= {key.replace("_", "-"): value for key, value in changed.items()}
    return {prefix + key: value for key, value in options.items()}


def components_near(a):
    """Components of q and k near a: s near a² d scale, so gates of 0.95 (a = 1.25, s = 3) or 1 to the last bit (5, 50)."""
    def adjust(inputs):
        for name in "qk":
            inputs[name] = a + np.round(inputs[name] * 128) / 1024
    return adjust


CASES += [
    Case("none", "none"),
    Case("absolute", "absolute", max_length=9),
    Case("sinusoidal", "sinusoidal"),
    Case("relative", "relative", {"far": "refuse"}),
    Case("relative-far-cap", "relative", {"far": "cap"}, max_length=4),
    Case("relative-far-none", "relative", {"far": "none"}, max_length=4),
    Case("relative-share-model", "relative", {"far": "refuse", "share": "model"}),
    Case("relative-distances", "relative", {"far": "cap", "distances": "3"}),
    Case("alibi", "alibi", {"learned": "false"}),
    Case("alibi-learned", "alibi", {"learned": "true"}),
    Case("cope-unsaturated", "cope", cope_options(8)),
    Case("cope-saturated", "cope", cope_options(2)),
    Case("cope-p-max-1", "cope", cope_options(1)),
    Case("cope-sqrt-d", "cope", cope_options(8, position_scale="sqrt-d")),
    Case("cope-sqrt-d-saturated", "cope", cope_options(2, position_scale="sqrt-d")),
    Case("cope-gates-large", "cope", cope_options(8), adjust=components_near(1.25)),
    Case("cope-gates-large-saturated", "cope", cope_options(3), adjust=components_near(1.25)),
    Case("cope-gates-one", "cope", cope_options(7), adjust=components_near(5.0), at_kinks=True),
    Case("cope-sep-keys", "cope", cope_options(8, gates="sep-keys")),
    Case("cope-sep-keys-saturated", "cope", cope_options(2, gates="sep-keys")),
    Case("cope-values", "cope", cope_options(8, gates="values")),
    Case("cope-values-saturated", "cope", cope_options(2, gates="values")),
    Case("cope-share-layers", "cope", cope_options(3, share="layers")),
    Case("cope-share-none", "cope", cope_options(3, share="none")),
    Case("cope-share-none-sqrt-d-sep-keys", "cope",
         cope_options(3, share="none", position_scale="sqrt-d", gates="sep-keys")),
    Case("cope+rope", "cope+rope", {**cope_options(3, "cope."), "rope.layout": "half"}),
    Case("cope+rope-sep-keys", "cope+rope", {**cope_options(3, "cope.", gates="sep-keys"), "rope.layout": "half"}),
    Case("cope+rope-rotated-query", "cope+rope",
         {**cope_options(3, "cope.", gates="sep-keys"), "cope.rotated-query": "true", "rope.layout": "half"}),
    Case("relative+rope", "relative+rope", {"relative.far": "refuse", "rope.layout": "half"}),
    Case("relative+rope-rotated-query", "relative+rope",
         {"relative.far": "refuse", "relative.rotated-query": "true", "rope.layout": "half"}),
    Case("cope+relative", "cope+relative", {**cope_options(3, "cope."), "relative.far": "refuse"}),
    Case("alibi+cope", "alibi+cope", {"alibi.learned": "false", **cope_options(3, "cope.")}),
    Case("alibi+rope", "alibi+rope", {"alibi.learned": "true", "rope.layout": "interleaved"}),
]
