"""Reference values: CoPE with slopes and with a network, forgetting attention, stick-breaking."""

import cmath

import numpy as np

from classic_references import contextual_positions, gate_shapes, published_slopes
from reference_case import CASES, H, T, Case, dot, encoding, leftover, scaled, sigmoid, triangle


@encoding("cope-alibi", "shapes")
def cope_alibi_shapes(case, options):
    return ({"slopes": (H,)} if options["slopes"] == "learned" else {}) | gate_shapes(case, options)


@encoding("cope-alibi", "score")
def cope_alibi(head):
    """m p_ij, or m min(p_ij, P)"""
    sign = {"plus": 1, "minus": -1}[head.options["sign"]]
    if head.options["slopes"] == "learned":
        slope = head.own["slopes"][head.h]
    elif head.options["slopes"] == "alibi":
        slope = sign * published_slopes(H)[head.h]
    else:
        slope = sign * float(head.options["first-slope"]) * 2.0 ** -head.h
    last, positions = int(head.options.get("p-max", 0)), contextual_positions(head)
    if not last:
        return [[slope * p for p in row] for row in positions]
    head.kinks += [p.real for i, row in enumerate(positions) for p in row[:i + 1]]
    return [[slope * (p if p.real < last else last) for p in row] for row in positions]


@encoding("cope-mlp", "shapes")
def cope_mlp_shapes(case, options):
    hidden = int(options["hidden"])
    return {"hidden.weight": (hidden,), "hidden.bias": (hidden,), "output.weight": (case.d, hidden),
            "output.bias": (case.d,)} | gate_shapes(case, options)


@encoding("cope-mlp", "score")
def cope_mlp(head):
    """q_i . f(p_ij), f(p) = W2 relu(w1 p + b1) + b2"""
    own, positions, bias = head.own, contextual_positions(head), triangle()
    for i in range(T):
        for j in range(i + 1):
            inside = [w * positions[i][j] + b for w, b in zip(own["hidden.weight"], own["hidden.bias"])]
            hidden = [u if u.real > 0 else 0 for u in inside]
            f = [dot(row, hidden) + b for row, b in zip(own["output.weight"], own["output.bias"])]
            bias[i][j] = dot(head.query()[i], f)
            head.kinks += [max(-0.5, min(0.5, u.real)) for u in inside]  # relu bends at 0 alone
    return bias


def forget_shapes(case):
    return {"forget.weight": (H, case.D), "forget.bias": (H,)}


def forget(head):
    """sum_{u=j+1..i} log f_u, f_u = sigmoid(w . x_u + b), or of minus that"""
    w, b = head.own["forget.weight"][head.h], head.own["forget.bias"][head.h]
    sign = -1 if head.options.get("sign") == "minus" else 1
    bias = triangle()
    for i in range(T):
        for j in range(i - 1, -1, -1):
            bias[i][j] = bias[i][j + 1] + cmath.log(sigmoid(sign * (dot(w, head.x[j + 1]) + b)))
    return bias


@encoding("fox", "shapes")
def fox_shapes(case, options):
    return forget_shapes(case)


@encoding("fox", "product")
def fox_product(head):
    return dot if head.options.get("score-scale") == "none" else scaled


@encoding("fox", "score")
def fox(head):
    return forget(head)


@encoding("fox-pro", "shapes")
def fox_pro_shapes(case, options):
    shapes = forget_shapes(case) | {"output-gate.weight": (case.D, case.D)}
    shapes |= {f"{part}-shift.weight": (H, case.D) for part in ("key", "value")}
    return shapes | {f"{part}-norm.weight": (H, case.d) for part in ("query", "key", "output")}


def shifted(head, rows, part):
    """a_t y_{t-1} + (1-a_t) y_t, a_t = sigmoid(w . x_t)"""
    result = []
    for t in range(T):
        a = sigmoid(dot(head.own[f"{part}-shift.weight"][head.h], head.x[t]))
        before = rows[t - 1] if t > 0 else [0.0] * head.d
        result.append([a * y0 + (1 - a) * y for y0, y in zip(before, rows[t])])
    return result


def normed(head, rows, part):
    """y / sqrt(mean(y²) + 1e-6) * w"""
    weight = head.own[f"{part}-norm.weight"][head.h]
    return [[y / cmath.sqrt(dot(row, row) / head.d + 1e-6) * w for y, w in zip(row, weight)] for row in rows]


@encoding("fox-pro", "prepare")
def fox_pro_rows(head, q, k, v):
    return normed(head, q, "query"), normed(head, shifted(head, k, "key"), "key"), shifted(head, v, "value")


@encoding("fox-pro", "score")
def fox_pro(head):
    return forget(head)


@encoding("fox-pro", "finish")
def fox_pro_output(head, weights, output):
    """The norm of the output times sigmoid(W_g x)"""
    gates = [[sigmoid(dot(head.own["output-gate.weight"][row], x)) for row in head.rows()] for x in head.x]
    return [[o * g for o, g in zip(*rows)] for rows in zip(normed(head, output, "output"), gates)]


@encoding("stick-breaking", "shapes")
def stick_breaking_shapes(case, options):
    return {"remainder": (H, case.d)} if options["remainder"] == "bias" else {}


@encoding("stick-breaking", "weights")
def stick_breaking(head, logits):
    """Shares of a stick of length 1, taken from the nearest key on"""
    weights = triangle()
    for i in range(T):
        left = 1
        for j in reversed(head.case.keys(i)):
            if j == i and head.options["attend-current"] == "false":
                continue
            weights[i][j] = left * sigmoid(logits[i][j])
            left = left * (1 - sigmoid(logits[i][j]))
    return weights


@encoding("stick-breaking", "rest")
def stick_breaking_rest(head, weights):
    """What is left of the stick"""
    return leftover(head, weights)


# ---------------------------------------------------------------------------------------------------------------------
# The files.


def bend_within(inputs):
    """Moves the kinks of cope-mlp's network to where positions are: -b/w at 0.6, 1.4 and 2.3."""
    prefix = "cope-mlp." if "cope-mlp.hidden.weight" in inputs else ""
    inputs[f"{prefix}hidden.bias"] = np.round(inputs[f"{prefix}hidden.weight"] * [-0.6, -1.4, -2.3] * 1024) / 1024


def cope_case(encoding, suffix="", rope=False, **changed):
    """A file of cope-alibi or cope-mlp, by itself or with rope."""
    options = {"cope-alibi": {"slopes": "halving", "sign": "plus", "first-slope": "1"},
               "cope-mlp": {"hidden": "3", "layers": "all"}}[encoding]
    options |= {"gates": "keys", "rotated-query": "false"}
    options |= {key.replace("_", "-"): value for key, value in changed.items()}
    adjust = bend_within if encoding == "cope-mlp" else None
    if not rope:
        return Case(encoding + suffix, encoding, options, adjust=adjust)
    in_sum = {f"{encoding}.{key}": value for key, value in options.items()}
    return Case(f"{encoding}+rope{suffix}", f"{encoding}+rope", {**in_sum, "rope.layout": "half"}, adjust=adjust)


CASES += [
    cope_case("cope-alibi"),
    cope_case("cope-alibi", "-minus", sign="minus", first_slope="0.75"),
    cope_case("cope-alibi", "-slopes-alibi", slopes="alibi"),
    cope_case("cope-alibi", "-slopes-alibi-minus", slopes="alibi", sign="minus"),
    cope_case("cope-alibi", "-learned", slopes="learned"),
    cope_case("cope-alibi", "-p-max", slopes="learned", p_max="2"),
    cope_case("cope-alibi", "-sep-keys", slopes="learned", gates="sep-keys"),
    cope_case("cope-alibi", "-values", gates="values"),
    cope_case("cope-alibi", rope=True, gates="values"),
    cope_case("cope-alibi", "-rotated-query", rope=True, gates="values", rotated_query="true"),
    cope_case("cope-mlp"),
    cope_case("cope-mlp", "-layers-first", layers="first"),
    cope_case("cope-mlp", "-sep-keys", gates="sep-keys"),
    cope_case("cope-mlp", "-values", gates="values"),
    cope_case("cope-mlp", rope=True, gates="sep-keys"),
    cope_case("cope-mlp", "-rotated-query", rope=True, gates="sep-keys", rotated_query="true"),
    Case("fox", "fox"),
    Case("fox+rope", "fox+rope", {"rope.layout": "half"}),
    Case("fox-minus", "fox", {"sign": "minus", "score-scale": "sqrt-d"}),
    Case("fox-minus-score-scale-none", "fox", {"sign": "minus", "score-scale": "none"}),
    Case("fox+relative-score-scale-none", "fox+relative",
         {"fox.sign": "plus", "fox.score-scale": "none", "relative.far": "refuse"}),
    Case("fox-pro", "fox-pro"),
    Case("fox-pro+rope", "fox-pro+rope", {"rope.layout": "half"}),
    Case("fox-pro+stick-breaking", "fox-pro+stick-breaking",
         {"stick-breaking.remainder": "value", "stick-breaking.attend-current": "false"}),
    Case("relative+stick-breaking", "relative+stick-breaking",
         {"relative.far": "refuse", "stick-breaking.remainder": "value", "stick-breaking.attend-current": "false"}),
]
CASES += [Case(f"stick-breaking-{remainder}{suffix}", "stick-breaking",
               {"remainder": remainder, "attend-current": current})
          for remainder in ("drop", "value", "bias")
          for suffix, current in (("", "false"), ("-attend-current", "true"))]
