"""Reference values: rules that see the logits of all heads (DAPE, DAPE-V2), and of other queries and keys (multi-token
attention)."""

import copy

import numpy as np

from reference_case import CASES, H, HOOKS, T, Case, dot, encoding, sigmoid, softmax, triangle

HEADS = range(H)


def bias_of(head):
    """[T][T] of the bias of distance that the network sees, or nothing."""
    name = head.options["bias"]
    if name == "none":
        return None
    own = copy.copy(head)
    own.options = {"kernel": "log", "learned": "false"}
    own.own = {key.removeprefix("bias."): value for key, value in head.own.items()}
    return HOOKS["score"][name](own)


def network_shapes(case, options, taps):
    inputs, hidden = H if options["bias"] == "none" else 2 * H, int(options["hidden"])
    bias = {"bias.r1": (H,), "bias.r2": (H,)} if options["bias"] == "kerple" else {}
    return bias | {"hidden.weight": (hidden, inputs) + taps, "hidden.bias": (hidden,),
                   "output.weight": (H, hidden) + taps, "output.bias": (H,)}


@encoding("dape", "shapes")
def dape_shapes(case, options):
    return network_shapes(case, options, ())


@encoding("dape2", "shapes")
def dape2_shapes(case, options):
    return network_shapes(case, options, (int(options["kernel"]),))


def rectified(head, x):
    """x, or slope x below 0, where it bends."""
    head.kinks.append(max(-0.5, min(0.5, x.real)))
    return x if x.real > 0 else float(head.options["slope"]) * x


def changed(heads, logits, row):
    """Softmax of s + b + what row(i, seen) -> {(h, j): ..} makes of a row; seen: {(channel, j): ..} of s, then b."""
    head, biases = heads[0], [bias_of(one) for one in heads]
    channels = list(logits) + (biases if biases[0] else [])
    result = [triangle() for _ in HEADS]
    for i in range(T):
        keys = head.case.keys(i)
        change = row(i, {(c, j): channel[i][j] for c, channel in enumerate(channels) for j in keys})
        for h in HEADS:
            for j in keys:
                result[h][i][j] = sum(channel[i][j] for channel in channels[h::H]) + change[h, j]
    return [softmax(head.case, one) for one in result]


@encoding("dape", "mixed_weights")
def dape(heads, logits):
    """s + b + W2 leaky(W1 [s ; b] + b1) + b2"""
    head, own = heads[0], heads[0].own

    def row(i, seen):
        change = {}
        for j in head.case.keys(i):
            inputs = [seen[c, j] for c in range(len(own["hidden.weight"][0]))]
            hidden = [rectified(head, dot(w, inputs) + b) for w, b in zip(own["hidden.weight"], own["hidden.bias"])]
            for h in HEADS:
                change[h, j] = dot(own["output.weight"][h], hidden) + own["output.bias"][h]
        return change
    return changed(heads, logits, row)


@encoding("dape2", "mixed_weights")
def dape2(heads, logits):
    """The same with sums over the neighbours of a key: 0 where a pair is not seen; the hidden layer has no keys before 0,
    but all that the last key's neighbours reach to, with `edge` = authors up to the last of the text."""
    head, own, half = heads[0], heads[0].own, int(heads[0].options["kernel"]) // 2
    taps, units = range(-half, half + 1), range(int(heads[0].options["hidden"]))

    def row(i, seen):
        hidden = {}
        for u in range(min(i + half + 1, T) if head.options.get("edge") == "authors" else i + half + 1):
            for n in units:
                total = own["hidden.bias"][n]
                for c, weights in enumerate(own["hidden.weight"][n]):
                    total = total + sum(weights[half + k] * seen.get((c, u + k), 0.0) for k in taps)
                hidden[n, u] = rectified(head, total)
        change = {}
        for j in head.case.keys(i):
            for h in HEADS:
                weights = own["output.weight"][h]
                change[h, j] = own["output.bias"][h] + sum(weights[n][half + k] * hidden.get((n, j + k), 0.0)
                                                           for n in units for k in taps)
        return change
    return changed(heads, logits, row)


def group_of(options):
    return min(H, int(options["group"]) or H)


@encoding("mta", "shapes")
def mta_shapes(case, options):
    kernel, n = (H, int(options["queries"]), int(options["keys"])), group_of(options)
    shapes = {"kernel": kernel}
    if options["after"] == "true":
        shapes["kernel-after"] = kernel
    if options["mix"] in ("both", "before"):
        shapes["mix"] = (H, H)
    if options["mix"] in ("both", "after"):
        shapes["mix-after"] = (H // n, n, n)
    if options["norm"] == "true":
        shapes["norm.weight"] = (case.d,)
    if options["gate"] == "true":
        shapes |= {"gate.weight": (1, case.d), "gate.bias": (1,)}
    return shapes


def summed_around(case, x, kernel):
    """sum_ab K[a][b] x[i-cq+1+a][j-(ck-1)/2+b] of pairs that are seen"""
    result, queries, keys = triangle(), len(kernel), len(kernel[0])
    for i in range(T):
        for j in case.keys(i):
            for a in range(queries):
                row = i - queries + 1 + a
                for b in range(keys):
                    column = j - (keys - 1) // 2 + b
                    if row >= 0 and column in case.keys(row):
                        result[i][j] += kernel[a][b] * x[row][column]
    return result


def of_heads(factors, maps):
    """[T][T] of sum_g factors[g] maps[g]."""
    return [[sum(f * one[i][j] for f, one in zip(factors, maps)) for j in range(T)] for i in range(T)]


@encoding("mta", "mixed_weights")
def mta(heads, logits):
    head, own = heads[0], heads[0].own
    scores = [summed_around(head.case, logits[h], own["kernel"][h]) for h in HEADS]
    if "mix" in own:
        scores = [of_heads(own["mix"][h], scores) for h in HEADS]
    weights = [softmax(head.case, one) for one in scores]
    if "kernel-after" in own:
        weights = [summed_around(head.case, weights[h], own["kernel-after"][h]) for h in HEADS]
    if "mix-after" in own:
        n, mixed = group_of(head.options), []
        for h in HEADS:
            matrix, first = own["mix-after"][h // n], h // n * n
            mixed.append(of_heads([matrix[g][h % n] for g in range(n)], weights[first:first + n]))
        weights = mixed
    return weights


@encoding("mta", "finish")
def mta_finish(head, weights, output):
    """o / sqrt(mean o^2 + 1e-5) w, then times sigmoid(w . o + c)"""
    own, result = head.own, []
    for o in output:
        if "norm.weight" in own:
            size = (dot(o, o) / head.d + 1e-5) ** 0.5
            o = [a / size * w for a, w in zip(o, own["norm.weight"])]
        if "gate.weight" in own:
            gate = sigmoid(dot(own["gate.weight"][0], o) + own["gate.bias"][0])
            o = [a * gate for a in o]
        result.append(o)
    return result


def positive(inputs):
    """r1 and r2 of KERPLE to where they may be."""
    for name in inputs:
        if name.endswith(("bias.r1", "bias.r2")):
            inputs[name] = 0.25 + np.minimum(np.abs(inputs[name]), 1.5)


def within(name, options):
    return {f"{name}.{key}": value for key, value in options.items()}


def network_case(file, encoding_text, options):
    """The part that is one of the two has these options, beside rope's."""
    name = next(part for part in encoding_text.partition("[")[0].split("+") if part.startswith("dape"))
    if "+" in encoding_text:
        rest = {"rope.layout": "half"} if "rope" in encoding_text else {"alibi.learned": "true"}
        options = within(name, options) | rest
    return Case(file, encoding_text, options, adjust=positive)


DAPE = {"bias": "kerple", "hidden": "4", "slope": "0.01"}
DAPE2 = DAPE | {"kernel": "3", "hidden": "3"}
MTA = {"queries": "3", "keys": "5", "mix": "both", "group": "0", "after": "true", "norm": "true", "gate": "true"}
PLAIN = {"norm": "false", "gate": "false"}

CASES += [
    network_case("dape", "dape", DAPE),
    network_case("dape-none", "dape", DAPE | {"bias": "none"}),
    network_case("dape-alibi", "dape", DAPE | {"bias": "alibi", "slope": "0.25"}),
    network_case("alibi+dape", "alibi+dape", DAPE | {"bias": "none"}),
    network_case("dape+rope", "dape+rope", DAPE),
    network_case("dape-window-first", "dape[window=3,first=1]", DAPE | {"slope": "0.25"}),
    network_case("dape2", "dape2", DAPE2),
    network_case("dape2-none", "dape2", DAPE2 | {"bias": "none", "slope": "0.25"}),
    network_case("dape2-alibi", "dape2", DAPE2 | {"bias": "alibi"}),
    network_case("dape2-five-keys", "dape2", DAPE2 | {"bias": "none", "kernel": "5", "hidden": "2"}),
    network_case("dape2-authors", "dape2", DAPE2 | {"edge": "authors"}),
    network_case("dape2-authors-five-keys", "dape2", DAPE2 | {"edge": "authors", "kernel": "5", "hidden": "2"}),
    network_case("dape2+rope", "dape2+rope", DAPE2),
    network_case("dape2-window-first", "dape2[window=3,first=1]", DAPE2 | {"slope": "0.25"}),
    Case("mta", "mta", MTA),
    Case("mta-published-size", "mta", MTA | PLAIN | {"queries": "6", "keys": "11", "mix": "none"}),
    Case("mta-before", "mta", MTA | {"mix": "before", "after": "false", "gate": "false"}),
    Case("mta-after", "mta", MTA | {"mix": "after", "norm": "false"}),
    Case("mta-groups-of-one", "mta", MTA | PLAIN | {"group": "1"}),  # a norm would hide M
    Case("mta+rope", "mta+rope", within("mta", MTA | {"group": "2"}) | {"rope.layout": "half"}),
    Case("mta-window-first", "mta[window=3,first=1]", MTA),
]
