"""Reference values: PaTH and Wall, whose keys are changed by every token between them and the query."""

import cmath

from classic_references import cope_options
from contextual_references import forget, forget_shapes, normed
from normaliser_references import SINK, within
from reference_case import CASES, H, T, Case, dot, encoding, scaled, sigmoid, triangle
from rotation_references import of_length_one


def norm_shapes(case, options):
    return {f"{part}-norm.weight": (H, case.d) for part in ("query", "key")} if options["qk-norm"] == "true" else {}


def normed_rows(head, q, k, v):
    """q and k through RMSNorm per head, with qk-norm"""
    if head.options["qk-norm"] == "false":
        return q, k, v
    return normed(head, q, "query"), normed(head, k, "key"), v


for name in ("path", "wall"):
    encoding(name, "prepare")(normed_rows)


def changed(head, logit):
    """logit(q_i, k_j, i, j) less the plain product, of the rows that make the product"""
    q, k = head.result.get("rotated_q", head.q), head.result.get("rotated_k", head.k)
    bias = triangle()
    for i in range(T):
        for j in range(i + 1):
            bias[i][j] = logit(q[i], k[j], i, j) - head.s[i][j]
    return bias


def joined(a, b):
    return [[x + y for x, y in zip(*rows)] for rows in zip(a, b)]


@encoding("path", "shapes")
def path_shapes(case, options):
    rank, size = int(options.get("rank", 32)), int(options.get("conv-size", 3))
    shapes = {"down.weight": (rank, case.D), "up.weight": (case.D, rank)} if rank else {
        "direction.weight": (case.D, case.D)}
    if options["conv"] == "true":
        shapes["conv.weight"] = (H, case.d, size)
    shapes |= {"strength.weight": (H, case.D), "strength.bias": (H,)} | norm_shapes(case, options)
    return shapes | (forget_shapes(case) if options["forget"] == "true" else {})


def path_directions(head):
    """w_t = y_t / |y_t|, y = silu(conv(W2 W1 x)) or W2 W1 x"""
    own, options = head.own, head.options
    y = []
    for x in head.x:
        inside = x if "direction.weight" in own else [dot(row, x) for row in own["down.weight"]]
        up = own["direction.weight"] if "direction.weight" in own else own["up.weight"]
        y.append([dot(up[row], inside) for row in head.rows()])
    if options["conv"] == "true":
        size, convolved = int(options.get("conv-size", 3)), []
        for t in range(T):
            sums = [sum(head.own["conv.weight"][head.h][n][size - 1 - back] * y[t - back][n]
                        for back in range(size) if back <= t) for n in range(head.d)]
            convolved.append([u * sigmoid(u) for u in sums])
        y = convolved
    return [of_length_one(row) for row in y]


@encoding("path", "score")
def path(head):
    """q_i . (H_i (H_{i-1} ... (H_{j+1} k_j))), H_t = I - beta_t w_t w_t', as matrices, pair by pair"""
    own, w, matrices = head.own, path_directions(head), []
    for t in range(T):
        beta = 2 * sigmoid(dot(own["strength.weight"][head.h], head.x[t]) + own["strength.bias"][head.h])
        matrices.append([[(a == b) - beta * w[t][a] * w[t][b] for b in range(head.d)] for a in range(head.d)])

    def logit(q, k, i, j):
        for t in range(j + 1, i + 1):
            k = [dot(row, k) for row in matrices[t]]
        return product(q, k)
    product = own_product(head)
    bias = changed(head, logit)
    if head.options["forget"] == "true":
        over = head.d ** 0.5 if head.options.get("gate-scale", "sqrt-d") == "sqrt-d" else 1
        bias = joined(bias, [[term / over for term in row] for row in forget(head)])
    return bias


def own_product(head):
    """That of the scores: fox beside it may leave out the division by sqrt(d)"""
    return dot if head.case.all_options.get("fox.score-scale") == "none" else scaled


@encoding("wall", "shapes")
def wall_shapes(case, options):
    shapes = {"decay.weight": (case.D, case.D), "decay.bias": (case.D,)} | norm_shapes(case, options)
    return shapes | (forget_shapes(case) if options["scalar-gate"] == "true" else {})


@encoding("wall", "score")
def wall(head):
    """sum_n q_in k_jn f_j+1,n ... f_in, f_t = sigmoid(W x_t + b)"""
    own = head.own
    kept = [[sigmoid(dot(own["decay.weight"][row], x) + own["decay.bias"][row]) for row in head.rows()] for x in head.x]

    def logit(q, k, i, j):
        for t in range(j + 1, i + 1):
            k = [a * f for a, f in zip(k, kept[t])]
        return product(q, k)
    product = own_product(head)
    bias = changed(head, logit)
    return joined(bias, forget(head)) if head.options["scalar-gate"] == "true" else bias


PATH = {"rank": "2", "conv": "true", "qk-norm": "false", "forget": "false"}
WALL = {"scalar-gate": "false", "qk-norm": "false"}
STICK = {"stick-breaking.remainder": "value", "stick-breaking.attend-current": "false"}

CASES += [
    Case("path", "path", PATH),
    Case("path-full-rank", "path", PATH | {"rank": "0"}),
    Case("path-conv-size", "path", PATH | {"conv-size": "5"}, d=3),
    Case("path-no-conv", "path", PATH | {"conv": "false"}),
    Case("path-qk-norm", "path", PATH | {"qk-norm": "true", "conv-size": "1"}, d=6),
    Case("path-forget", "path", PATH | {"forget": "true", "gate-scale": "sqrt-d"}),
    Case("path-forget-gate-scale-none", "path", PATH | {"forget": "true", "gate-scale": "none", "qk-norm": "true"}),
    Case("path-window-first", "path[window=3,first=1]", PATH | {"forget": "true", "gate-scale": "none"}),
    Case("path+rope", "path+rope", within("path", PATH | {"qk-norm": "true"}) | {"rope.layout": "half"}),
    # The score as a whole is not divided, what its matrices change no more than the rest.
    Case("fox+path-score-scale-none", "fox+path",
         {"fox.sign": "plus", "fox.score-scale": "none"} | within("path", PATH)),
    # Gates see the plain product.
    Case("cope+path", "cope+path", cope_options(3, "cope.") | within("path", PATH)),
    Case("path+sink", "path+sink", within("path", PATH) | within("sink", SINK)),
    Case("path+stick-breaking", "path+stick-breaking", within("path", PATH | {"conv": "false"}) | STICK),
    Case("wall", "wall", WALL),
    Case("wall-qk-norm", "wall", WALL | {"qk-norm": "true"}, d=3),
    Case("wall-scalar-gate", "wall", WALL | {"scalar-gate": "true"}),
    Case("wall-window", "wall[window=3]", WALL | {"scalar-gate": "true", "qk-norm": "true"}),
    Case("rope+wall", "rope+wall", within("wall", WALL) | {"rope.layout": "interleaved"}),
    Case("fox+wall-score-scale-none", "fox+wall",
         {"fox.sign": "plus", "fox.score-scale": "none"} | within("wall", WALL | {"qk-norm": "true"})),
]
