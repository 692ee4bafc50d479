"""Reference values: sink, sigmoid, softpick, scalable softmax, gated attention."""

import cmath
import math

from classic_references import cope_options
from reference_case import CASES, H, T, Case, dot, encoding, leftover, sigmoid, triangle


def remainder_shapes(case, options):
    return {"remainder": (H, case.d)} if options["remainder"] == "bias" else {}


@encoding("sink", "shapes")
def sink_shapes(case, options):
    return {"logit": (H,)} | remainder_shapes(case, options)


@encoding("sink", "weights")
def sink(head, logits):
    """e^l_ij / (e^c + sum_k e^l_ik)"""
    weights = triangle()
    for i in range(T):
        keys = head.case.keys(i)
        total = cmath.exp(head.own["logit"][head.h]) + sum(cmath.exp(logits[i][j]) for j in keys)
        for j in keys:
            weights[i][j] = cmath.exp(logits[i][j]) / total
    return weights


@encoding("sigmoid", "shapes")
def sigmoid_shapes(case, options):
    return remainder_shapes(case, options)


@encoding("sigmoid", "score")
def sigmoid_score(head):
    """-ln n_i for the n_i keys that query i sees, with visible"""
    if head.options["visible"] == "false":
        return triangle()
    return [[-math.log(len(head.case.keys(i)))] * T for i in range(T)]


@encoding("sigmoid", "weights")
def sigmoid_weights(head, logits):
    """sigmoid(l_ij - ln n), n fixed or in l_ij already"""
    weights = triangle()
    fixed = 1 if head.options["visible"] == "true" else int(head.options["length"])
    for i in range(T):
        for j in head.case.keys(i):
            weights[i][j] = sigmoid(logits[i][j] - math.log(fixed))
    return weights


@encoding("softpick", "shapes")
def softpick_shapes(case, options):
    return remainder_shapes(case, options)


@encoding("softpick", "weights")
def softpick(head, logits):
    """relu(e^l_ij - 1) / (sum_k |e^l_ik - 1| + 1e-8)"""
    weights = triangle()
    for i in range(T):
        keys = head.case.keys(i)
        above = {j: cmath.exp(logits[i][j]) - 1 for j in keys}
        total = sum(a if a.real > 0 else -a for a in above.values()) + 1e-8
        for j in keys:
            weights[i][j] = above[j] / total if above[j].real > 0 else 0.0
        head.kinks += [max(-0.5, min(0.5, logits[i][j].real)) for j in keys]  # it bends at 0 alone
    return weights


for name in ("sink", "sigmoid", "softpick"):
    encoding(name, "rest")(leftover)


@encoding("ssmax", "shapes")
def ssmax_shapes(case, options):
    return {"factor": (H,)} | ({"bias": (H,)} if options["bias"] == "true" else {})


def ssmax_factors(head):
    """c ln n_i + b for the n_i keys that query i sees"""
    b = head.own["bias"][head.h] if head.options["bias"] == "true" else 0
    return [head.own["factor"][head.h] * math.log(len(head.case.keys(i))) + b for i in range(T)]


@encoding("ssmax", "rotate")
def ssmax(head, q, k, v):
    if head.options.get("whole") == "true":
        return q, k, v
    return [[factor * a for a in row] for factor, row in zip(ssmax_factors(head), q)], k, v


@encoding("ssmax", "factor")
def ssmax_whole(head):
    return ssmax_factors(head) if head.options.get("whole") == "true" else [1] * T


@encoding("gated", "shapes")
def gated_shapes(case, options):
    gates = {"element": case.D, "head": H}[options["per"]]
    return {"gate.weight": (gates, case.D), "gate.bias": (gates,)}


@encoding("gated", "finish")
def gated(head, weights, output):
    """The output times sigmoid(W x + b), by number of a head or by head"""
    own, result = head.own, []
    rows = head.rows() if head.options["per"] == "element" else [head.h] * head.d
    for x, o in zip(head.x, output):
        gates = [sigmoid(dot(own["gate.weight"][row], x) + own["gate.bias"][row]) for row in rows]
        result.append([a * g for a, g in zip(o, gates)])
    return result


SINK = {"deviation": "0.02", "remainder": "drop"}
SIGMOID = {"length": "5", "visible": "false", "remainder": "drop"}


def within(name, options):
    return {f"{name}.{key}": value for key, value in options.items()}


CASES += [
    Case("sink", "sink", SINK),
    Case("sink-value", "sink", SINK | {"remainder": "value", "deviation": "0.5"}),
    Case("sink-bias", "sink", SINK | {"remainder": "bias"}),
    Case("fox-pro+sink", "fox-pro+sink", within("sink", SINK | {"remainder": "value"})),
    Case("alibi+sink", "alibi+sink", {"alibi.learned": "true"} | within("sink", SINK)),
    Case("sigmoid", "sigmoid", SIGMOID),
    Case("sigmoid-value", "sigmoid", SIGMOID | {"remainder": "value"}),
    Case("sigmoid-bias", "sigmoid", SIGMOID | {"remainder": "bias", "length": "512"}),
    Case("sigmoid-visible", "sigmoid", {"visible": "true", "remainder": "drop"}),
    Case("cope+sigmoid", "cope+sigmoid",
         cope_options(3, "cope.") | within("sigmoid", {"visible": "true", "remainder": "value"})),
    # The rows of a gradient by logits do not sum to zero: both sums of forget gates count.
    Case("fox+sigmoid", "fox+sigmoid", within("sigmoid", SIGMOID)),
    Case("softpick", "softpick", {"remainder": "drop"}),
    Case("softpick-value", "softpick", {"remainder": "value"}),
    Case("softpick-bias", "softpick", {"remainder": "bias"}),
    Case("fox+softpick", "fox+softpick", {"softpick.remainder": "drop"}),
    Case("rope+softpick", "rope+softpick", {"rope.layout": "half", "softpick.remainder": "value"}),
    Case("ssmax", "ssmax", {"start": "0.43", "bias": "false"}),
    Case("ssmax-bias", "ssmax", {"start": "1.5", "bias": "true"}),
    Case("rope+ssmax", "rope+ssmax", {"rope.layout": "half", "ssmax.bias": "true"}),
    # All that joins the score is multiplied too: of a table, by distance, of columns, a product; gates see the score alone.
    Case("ssmax-whole", "ssmax", {"bias": "true", "whole": "true"}),
    Case("cope+ssmax-whole", "cope+ssmax", cope_options(3, "cope.") | {"ssmax.bias": "true", "ssmax.whole": "true"}),
    Case("alibi+ssmax-whole", "alibi+ssmax",
         {"alibi.learned": "true", "ssmax.bias": "false", "ssmax.whole": "true"}),
    Case("fox+ssmax-whole-window", "fox+ssmax[window=4,first=1]", {"ssmax.bias": "true", "ssmax.whole": "true"}),
    Case("nexus+ssmax-whole", "nexus+ssmax", {"nexus.p-max": "8", "ssmax.bias": "true", "ssmax.whole": "true"}),
    # Gates see the score as ssmax makes it; what the table adds is not multiplied.
    Case("cope+ssmax", "cope+ssmax", cope_options(3, "cope.") | {"ssmax.bias": "true"}),
    Case("gated", "gated", {"per": "element"}),
    Case("gated-per-head", "gated", {"per": "head"}),
    Case("fox-pro+gated", "fox-pro+gated", {"gated.per": "element"}),
    Case("gated+stick-breaking", "gated+stick-breaking",
         {"gated.per": "head", "stick-breaking.remainder": "value", "stick-breaking.attend-current": "false"}),
]
