"""What the reference values of all encodings share: sizes, small formulas, the registry, attention around the hooks.

A module *_references.py registers one function for each hook where its encodings act, and adds the files it wants to
CASES. The hooks, by the name of an encoding:
    shapes(case, options)      {name: shape} of its parameters
    embed(case, own, x)        the new token embeddings [T][D] of one sequence; own: its parameters
    prepare(head, q, k, v)     q, k, v [T][d] as projected, before all of rotate; returns the new ones
    rotate(head, q, k, v)      q, k, v [T][d] before the product; returns the new ones
    product(head)              the product of two rows that makes s; divided by sqrt(d) where no encoding says otherwise
    score(head)                what joins the scaled products, [T][T]
    factor(head)               what all logits of query i are multiplied by, [T]
    weights(head, logits)      the attention weights [T][T]; softmax of every row where no encoding says otherwise
    mixed_weights(heads, logits)  the same [H][T][T] of all heads together, where they depend on each other
    hides(head)                the pairs (i, j) that have no weight, beside those that are not seen
    rest(head, weights)        [T][d] that joins the sum of values, before any finish
    finish(head, weights, output)  output [T][d]; returns the new one

Forward only: plain loops over Python numbers, one head at a time, query i, key j <= i that it sees. Numbers may be
complex, so branches (floor, min) look at real parts alone.
"""

import cmath
import copy
import math

B, H, T = 2, 2, 7
KINK = 1e-3  # distance kept by every position from the places where its formula bends

CASES = []
HOOKS = {hook: {} for hook in ("shapes", "embed", "prepare", "rotate", "product", "score", "factor", "hides", "weights",
                               "mixed_weights", "rest", "finish")}


def encoding(name, hook):
    def register(function):
        HOOKS[hook][name] = function
        return function
    return register


# ---------------------------------------------------------------------------------------------------------------------
# Small formulas.


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def sigmoid(x):
    return 1 / (1 + cmath.exp(-x))


def scaled(q, row):
    return dot(q, row) / math.sqrt(len(q))


def triangle():
    """[T][T] of zeros: what lies above the diagonal stays 0."""
    return [[0.0] * T for _ in range(T)]


def scores(q, k, product=scaled):
    s = triangle()
    for i in range(T):
        for j in range(i + 1):
            s[i][j] = product(q[i], k[j])
    return s


def by_distance(bias):
    """[T][T] of bias(i-j)."""
    result = triangle()
    for i in range(T):
        for j in range(i + 1):
            result[i][j] = bias(i - j)
    return result


def interpolated(z, p):
    """(1-w) z[f] + w z[min(f+1, P)], c = min(p, P), f = floor(c), w = c - f."""
    last = len(z) - 1
    c = p if p.real < last else last
    f = math.floor(c.real)
    w = c - f
    return (1 - w) * z[f] + w * z[min(f + 1, last)]


# ---------------------------------------------------------------------------------------------------------------------
# The cases.


class Case:
    """One file: `<file>.safetensors`. Encoding and options as on the command line; in a sum with its name before them.

    adjust(inputs) may move the drawn inputs and parameters, arrays by name, to where the case wants them.
    """

    def __init__(self, file, encoding, options=None, max_length=T, d=4, adjust=None, at_kinks=False):
        self.file, self.encoding, self.all_options = file, encoding, options or {}
        names, _, bracket = encoding.rstrip("]").partition("[")
        self.parts = names.split("+")
        self.sees = {name: int(number) for name, number in (limit.split("=") for limit in bracket.split(",") if limit)}
        self.max_length, self.adjust, self.at_kinks = max_length, adjust, at_kinks
        self.d, self.D = d, H * d
        self.is_embed = encoding in HOOKS["embed"]

    def keys(self, i):
        """The keys that query i sees, in order."""
        def near(j):
            in_window = "window" not in self.sees or i - j < self.sees["window"]
            in_chunk = "chunk" not in self.sees or i // self.sees["chunk"] == j // self.sees["chunk"]
            return in_window and in_chunk
        return [j for j in range(i + 1) if near(j) or j < self.sees.get("first", 0)]

    def options(self, name):
        if len(self.parts) == 1:
            return self.all_options
        start = f"{name}."
        return {key.removeprefix(start): value for key, value in self.all_options.items() if key.startswith(start)}

    def parameters(self, name, inputs):
        if len(self.parts) == 1:
            return inputs
        return {key.removeprefix(f"{name}."): value for key, value in inputs.items() if key.startswith(f"{name}.")}

    def parameter_shapes(self):
        shapes = {}
        for name in self.parts:
            own = HOOKS["shapes"][name](self, self.options(name)) if name in HOOKS["shapes"] else {}
            prefix = "" if len(self.parts) == 1 else f"{name}."
            shapes |= {prefix + key: shape for key, shape in own.items()}
        return shapes

    def metadata(self):
        options = {f"option.{key}": value for key, value in self.all_options.items()}
        return {"encoding": self.encoding, "max-length": str(self.max_length), **options}


class Head:
    """One head of one sequence, as the hooks of one encoding see it. `result`: what the file gets of it."""

    def __init__(self, case, name, inputs, b, h, result, kinks):
        self.case, self.h, self.d = case, h, case.d
        self.options, self.own = case.options(name), case.parameters(name, inputs)
        self.q, self.k, self.v = (inputs[key][b][h] for key in "qkv")  # [T][d], not rotated
        self.x = inputs["x"][b]                                        # [T][D], what the projections see
        self.rotated_v = None                                          # v after all of rotate
        self.s = None                                                  # scaled products of the (rotated) q and k
        self.first = None                # rotated q and k of the first head; a function, called where they are wanted
        self.result = result  # {name: [T][..]}, all encodings of a sum write into the same
        self.kinks = kinks    # numbers which must not lie beside an integer

    def query(self):
        """q of all products but s."""
        return self.result.get("rotated_q", self.q) if self.options.get("rotated-query") == "true" else self.q

    def rows(self):
        """Rows of a projection [D][..] that belong to this head."""
        return range(self.h * self.d, (self.h + 1) * self.d)


def softmax(case, logits):
    weights = triangle()
    for i in range(T):
        keys = case.keys(i)
        largest = max((logits[i][j].real for j in keys), default=0)
        total = sum(cmath.exp(logits[i][j] - largest) for j in keys)
        for j in keys:
            weights[i][j] = cmath.exp(logits[i][j] - largest) / total
    return weights


def leftover(head, weights):
    """What weights leave over of 1, times the token's own value as in the sum, or a vector of the head"""
    kind = head.options["remainder"]
    rows = {"drop": [[0.0] * head.d] * T, "value": head.rotated_v}.get(kind) or [head.own["remainder"][head.h]] * T
    return [[(1 - sum(taken)) * r for r in row] for taken, row in zip(weights, rows)]


def acting(heads, hook):
    """The encodings that act there, each with the head as it sees it."""
    return [(HOOKS[hook][name], head) for name, head in heads.items() if name in HOOKS[hook]]


def operands(case, inputs, b, h, kinks):
    """What the hooks of each encoding see of this head, by name, and its q, k, v after all of rotate."""
    result = {}
    heads = {name: Head(case, name, inputs, b, h, result, kinks) for name in case.parts}
    q, k, v = (inputs[name][b][h] for name in "qkv")
    for hook in ("prepare", "rotate"):
        for name in case.parts:
            if name in HOOKS[hook]:
                q, k, v = HOOKS[hook][name](heads[name], q, k, v)
                result |= {"rotated_q": q, "rotated_k": k}
    return heads, q, k, v


def without(case, hidden):
    """The case as the rules for weights see it: no keys that are hidden."""
    fewer = copy.copy(case)
    fewer.keys = lambda i: [j for j in case.keys(i) if (i, j) not in hidden]
    return fewer


def attention(case, inputs, b, kinks):
    """All heads of one sequence: everything that a file holds of them."""
    heads, logits = [], []
    for h in range(H):
        parts, q, k, v = operands(case, inputs, b, h, kinks)
        for head in parts.values():
            head.rotated_v = v
            head.first = lambda: operands(case, inputs, b, 0, [])[1:3]
        logits.append(logits_of(case, parts, q, k))
        heads.append(parts)
    results = [parts[case.parts[0]].result for parts in heads]
    weights = None
    for name in case.parts:
        if name in HOOKS["mixed_weights"]:
            weights = HOOKS["mixed_weights"][name]([parts[name] for parts in heads], logits)
    if weights is None:
        weights = [weights_of(parts, own) for parts, own in zip(heads, logits)]
    for parts, own, result in zip(heads, weights, results):
        result |= {"weights": own, "output": output_of(case, parts, own)}
    return results


def logits_of(case, heads, q, k):
    """Of one head; `heads` has it as each encoding sees it."""
    product = scaled
    for own_product, head in acting(heads, "product"):
        product = own_product(head)
    s = scores(q, k, product)
    for head in heads.values():
        head.s = s
    biases = [score(head) for score, head in acting(heads, "score")]
    factors = [factor(head) for factor, head in acting(heads, "factor")]
    hidden = [pair for hides, head in acting(heads, "hides") for pair in hides(head)]
    if hidden:
        case = without(case, set(hidden))
        for head in heads.values():
            head.case = case
    logits = triangle()
    for i in range(T):
        for j in case.keys(i):
            logits[i][j] = (s[i][j] + sum(bias[i][j] for bias in biases)) * math.prod(factor[i] for factor in factors)
    next(iter(heads.values())).result.update(s=s, logits=logits)
    return logits


def weights_of(heads, logits):
    for rule, head in acting(heads, "weights"):
        return rule(head, logits)
    return softmax(next(iter(heads.values())).case, logits)


def output_of(case, heads, weights):
    v = next(iter(heads.values())).rotated_v
    output = [[sum(weights[i][j] * v[j][n] for j in range(i + 1)) for n in range(case.d)] for i in range(T)]
    for rest, head in acting(heads, "rest"):
        output = [[o + r for o, r in zip(*rows)] for rows in zip(output, rest(head, weights))]
    for finish, head in acting(heads, "finish"):
        output = finish(head, weights, output)
    return output


def forward(case, inputs):
    """{name: nested lists [B][H]...}, and the numbers that must not lie beside an integer."""
    if case.is_embed:
        embed = HOOKS["embed"][case.encoding]
        return {"output": [embed(case, inputs, x) for x in inputs["x"]]}, []
    kinks = []
    heads = [attention(case, inputs, b, kinks) for b in range(B)]
    return {name: [[heads[b][h][name] for h in range(H)] for b in range(B)] for name in heads[0][0]}, kinks
