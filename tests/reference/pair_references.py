"""Reference values: threshold relative attention, selective attention and contextual rotary positions, which change logits
pair by pair."""

import cmath
import math

from classic_references import contextual_positions, cope_options, gate_shapes
from normaliser_references import SINK, within
from reference_case import CASES, H, T, Case, dot, encoding, scaled, scores, sigmoid, triangle
from rotation_references import pairs

STICK = {"stick-breaking.remainder": "value", "stick-breaking.attend-current": "false"}


def bends(head, number):
    """At 0 alone."""
    head.kinks.append(max(-0.5, min(0.5, number.real)))


@encoding("tra", "shapes")
def tra_shapes(case, options):
    return {"threshold.weight": (H, case.D), "threshold.bias": (H,)}


@encoding("tra", "prepare")
def tra_rows(head, q, k, v):
    """y / sqrt(mean(y²) + 1e-6), of q and k"""
    def normed(rows):
        return [[y / cmath.sqrt(dot(row, row) / head.d + 1e-6) for y in row] for row in rows]
    return normed(q), normed(k), v


@encoding("tra", "score")
def tra(head):
    """delta_i n_ij, n_ij the keys from j up to i with s_im > 0, delta_i = log sigmoid(w . x_i + b)"""
    own, bias, gates, positions = head.own, triangle(), triangle(), triangle()
    for i in range(T):
        delta = cmath.log(sigmoid(dot(own["threshold.weight"][head.h], head.x[i]) + own["threshold.bias"][head.h]))
        count, seen = 0, head.case.keys(i)
        for j in range(i, -1, -1):
            if j in seen:
                gates[i][j] = complex(head.s[i][j].real > 0)
                bends(head, head.s[i][j])
            count += gates[i][j]
            bias[i][j], positions[i][j] = delta * count, count
    head.result |= {"gates": gates, "positions": positions}
    return bias


@encoding("tra", "hides")
def tra_hides(head):
    return [(i, j) for i in range(T) for j in range(i + 1) if head.s[i][j].real <= 0]


@encoding("selective", "shapes")
def selective_shapes(case, options):
    if options["selector"] != "projection":
        return {}
    return {"selector.query.weight": (case.d, case.D), "selector.key.weight": (case.d, case.D)}


@encoding("selective", "score")
def selective(head):
    """-sum_{k<i} S_kj, S_kj = relu(selector's score of k and j) for j < k that k sees; j > 0 with bos"""
    if head.options["selector"] == "own":
        chosen = head.s
    else:
        if head.options["selector"] == "first":
            q, k = head.first()
        else:
            q, k = ([[dot(row, x) for row in head.own[f"selector.{part}.weight"]] for x in head.x]
                    for part in ("query", "key"))
        chosen = scores(q, k, scaled)
    bias = triangle()
    for i in range(T):
        for j in range(i + 1):
            if j == 0 and head.options["bos"] == "true":
                continue
            for k in range(j + 1, i):
                if j in head.case.keys(k) and chosen[k][j].real > 0:
                    bias[i][j] = bias[i][j] - chosen[k][j]
    for k in range(T):
        for j in range(k):
            bends(head, chosen[k][j])
    return bias


@encoding("contextual-rotary", "shapes")
def contextual_rotary_shapes(case, options):
    return gate_shapes(case, options)


@encoding("contextual-rotary", "score")
def contextual_rotary(head):
    """The product of q_i, turned in each plane by p_ij theta_n, with k_j, less that of q_i itself"""
    q, k = head.result.get("rotated_q", head.q), head.result.get("rotated_k", head.k)
    r = int(head.options["rotary-dims"]) or head.d
    positions, bias = contextual_positions(head), triangle()
    for i in range(T):
        for j in range(i + 1):
            if head.options["own"] == "false":
                positions[i][j] = positions[i][j] - head.result["gates"][i][j]
            if j not in head.case.keys(i):
                continue
            for n, (first, second) in enumerate(pairs(head.options["layout"], r)):
                angle = positions[i][j] * float(head.options["base"]) ** (-2 * n / r)
                cosine, sine = cmath.cos(angle), cmath.sin(angle)
                a, b = q[i][first], q[i][second]
                turned = [a * cosine - b * sine - a, a * sine + b * cosine - b]
                bias[i][j] = bias[i][j] + dot(turned, [k[j][first], k[j][second]]) / math.sqrt(head.d)
    return bias


SELECTIVE = {"selector": "first", "bos": "true"}
ROTARY = {"layout": "half", "base": "10000", "rotary-dims": "0", "own": "true", "gates": "keys"}

CASES += [
    Case("tra", "tra"),
    Case("tra-window-first", "tra[window=3,first=1]", d=6),
    Case("rope+tra", "rope+tra", {"rope.layout": "half"}),
    Case("alibi+tra", "alibi+tra", {"alibi.learned": "true"}),
    # Rows without a key have no weight under any rule; a sink takes all of it.
    Case("sink+tra", "sink+tra", within("sink", SINK | {"remainder": "value"})),
    Case("softpick+tra", "softpick+tra", {"softpick.remainder": "drop"}),
    Case("contextual-rotary", "contextual-rotary", ROTARY),
    Case("contextual-rotary-interleaved", "contextual-rotary", ROTARY | {"layout": "interleaved", "base": "100"}, d=6),
    Case("contextual-rotary-dims", "contextual-rotary", ROTARY | {"rotary-dims": "2"}),
    Case("contextual-rotary-from-next", "contextual-rotary", ROTARY | {"own": "false"}),
    Case("contextual-rotary-sep-keys", "contextual-rotary", ROTARY | {"gates": "sep-keys"}),
    Case("contextual-rotary-values", "contextual-rotary", ROTARY | {"gates": "values"}),
    Case("contextual-rotary+rope-rotated-query", "contextual-rotary+rope",
         within("contextual-rotary", ROTARY | {"gates": "sep-keys", "rotated-query": "true"}) | {"rope.layout": "half"}),
    Case("contextual-rotary-window-first", "contextual-rotary[window=3,first=1]", ROTARY),
    Case("contextual-rotary+rope", "contextual-rotary+rope", within("contextual-rotary", ROTARY) | {"rope.layout": "half"}),
    Case("contextual-rotary+fox", "contextual-rotary+fox", within("contextual-rotary", ROTARY)),
    Case("selective", "selective", SELECTIVE),
    Case("selective-no-bos", "selective", SELECTIVE | {"bos": "false"}),
    Case("selective-own", "selective", SELECTIVE | {"selector": "own"}),
    Case("selective-projection", "selective", SELECTIVE | {"selector": "projection"}, d=3),
    Case("selective-window", "selective[window=4]", SELECTIVE | {"bos": "false"}),
    Case("rope+selective", "rope+selective", {"rope.layout": "half"} | within("selective", SELECTIVE)),
    Case("fox+selective", "fox+selective", within("selective", SELECTIVE | {"selector": "own"})),
    Case("cope+selective", "cope+selective", cope_options(3, "cope.") | within("selective", SELECTIVE)),
    Case("selective+stick-breaking", "selective+stick-breaking", within("selective", SELECTIVE) | STICK),
]
