#!/usr/bin/env python3
"""Writes the reference values of the position encodings beside itself; README.md describes the files.

    make_references.py            writes the files
    make_references.py --check    compares the files that are there with what the formulas give now

Forward: the formulas in plain loops over Python numbers, nothing clever. Gradients: complex step, the imaginary part of
L(input + 1e-30 i) / 1e-30 for every single element, L = sum(output * d_output); exact to rounding, and no backward
formula to get wrong. Branches (floor, min) look at real parts alone. Needs Python 3 and numpy.
"""

import argparse
import cmath
import math
import os
import sys

try:
    import numpy as np
except ImportError:
    print("make_references.py: numpy is missing (Debian: python3-numpy); nothing was checked", file=sys.stderr)
    sys.exit(77)

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(FOLDER, "..", "outside"))
import tensor_file

B, H, T = 2, 2, 7
STEP = 1e-30
KINK = 1e-3       # distance kept from integers by every position
TOLERANCE = 1e-12  # of a tensor's largest magnitude, for --check: exp may differ in the last place elsewhere

# ---------------------------------------------------------------------------------------------------------------------
# The formulas. Query i, key j <= i; one head at a time. q, k, v, g_keys: [T][d]; parameters by name.


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def sigmoid(x):
    return 1 / (1 + cmath.exp(-x))


def scaled(q, row):
    return dot(q, row) / math.sqrt(len(q))


def triangle():
    """[T][T] of zeros: what lies above the diagonal stays 0."""
    return [[0.0] * T for _ in range(T)]


def published_slopes(heads):
    """m_h = 2^(-8h/H); else the slopes of the power of two below, then every second slope of twice that power."""
    def of_power(n):
        return [2.0 ** (-8.0 * h / n) for h in range(1, n + 1)]
    power = 1
    while 2 * power <= heads:
        power *= 2
    return of_power(power) + of_power(2 * power)[0::2][:heads - power]


def rope(x, options):
    """x [T][d], every pair (a, b) turned by t * base^(-2i/r)."""
    r, base = int(options.get("rotary-dims", len(x[0]))), float(options.get("base", 10000))
    result = [list(row) for row in x]
    for t in range(T):
        for i in range(r // 2):
            first, second = (i, i + r // 2) if options["layout"] == "half" else (2 * i, 2 * i + 1)
            angle = t * base ** (-2 * i / r)
            a, b = x[t][first], x[t][second]
            result[t][first] = a * math.cos(angle) - b * math.sin(angle)
            result[t][second] = a * math.sin(angle) + b * math.cos(angle)
    return result


def relative(q, table, far):
    """scale * q_i . e[i-j]"""
    bias = triangle()
    for i in range(T):
        for j in range(i + 1):
            n = i - j
            if n >= len(table) and far == "none":
                continue
            bias[i][j] = scaled(q[i], table[min(n, len(table) - 1)])  # far = refuse never gets here
    return bias


def alibi(slope):
    """-m (i-j)"""
    bias = triangle()
    for i in range(T):
        for j in range(i + 1):
            bias[i][j] = -slope * (i - j)
    return bias


def cope(q, gate_scores, table, position_scale):
    """Returns gates, positions and (1-w) z[f] + w z[min(f+1,P)]."""
    gates, positions, bias = triangle(), triangle(), triangle()
    last, product = len(table) - 1, {"none": dot, "sqrt-d": scaled}[position_scale]
    for i in range(T):
        z = [product(q[i], row) for row in table]
        p = 0
        for j in range(i, -1, -1):
            gates[i][j] = sigmoid(gate_scores[i][j])
            p = p + gates[i][j]
            positions[i][j] = p
            c = p if p.real < last else last
            f = math.floor(c.real)
            w = c - f
            bias[i][j] = (1 - w) * z[f] + w * z[min(f + 1, last)]
    return gates, positions, bias


def scores(q, k):
    s = triangle()
    for i in range(T):
        for j in range(i + 1):
            s[i][j] = scaled(q[i], k[j])
    return s


def head(case, inputs, b, h):
    """One head of one sequence: everything that a file holds of it."""
    q, k, v = (inputs[name][b][h] for name in "qkv")
    result, rotated_q, rotated_k = {}, q, k
    if "rope" in case.parts:
        rotated_q, rotated_k = rope(q, case.options("rope")), rope(k, case.options("rope"))
        result |= {"rotated_q": rotated_q, "rotated_k": rotated_k}
    s = scores(rotated_q, rotated_k)
    biases = []
    for name in case.parts:
        options, own = case.options(name), case.parameters(name, inputs)
        if name == "relative":
            biases.append(relative(q, own["table"], options["far"]))
        if name == "alibi":
            slopes = own["slopes"] if options["learned"] == "true" else published_slopes(H)
            biases.append(alibi(slopes[h]))
        if name == "cope":
            gate_scores = s
            if options["gates"] == "values":
                gate_scores = scores(q, v)
            if options["gates"] == "sep-keys":
                rows = range(h * case.d, (h + 1) * case.d)
                g_keys = [[dot(own["gate.weight"][row], x) + own["gate.bias"][row] for row in rows]
                          for x in inputs["x"][b]]
                gate_scores = scores(q, g_keys)
            table = own["table"][h] if options["share"] == "none" else own["table"]
            result["gates"], result["positions"], bias = cope(q, gate_scores, table, options["position-scale"])
            biases.append(bias)

    logits, weights, output = triangle(), triangle(), []
    for i in range(T):
        for j in range(i + 1):
            logits[i][j] = s[i][j] + sum(bias[i][j] for bias in biases)
        largest = max(logits[i][j].real for j in range(i + 1))
        total = sum(cmath.exp(logits[i][j] - largest) for j in range(i + 1))
        for j in range(i + 1):
            weights[i][j] = cmath.exp(logits[i][j] - largest) / total
        output.append([sum(weights[i][j] * v[j][n] for j in range(i + 1)) for n in range(case.d)])
    return result | {"s": s, "logits": logits, "weights": weights, "output": output}


def embed(case, inputs):
    """x_t += e[t], or the sinusoids."""
    output = []
    for b in range(B):
        output.append([list(row) for row in inputs["x"][b]])
        for t in range(T):
            for n in range(case.D):
                if case.encoding == "absolute":
                    output[b][t][n] += inputs["table"][t][n]
                else:
                    angle = t / 10000 ** ((n - n % 2) / case.D)
                    output[b][t][n] += math.cos(angle) if n % 2 else math.sin(angle)
    return {"output": output}


def forward(case, inputs):
    """{name: nested lists [B][H]...}"""
    if case.is_embed:
        return embed(case, inputs)
    heads = [[head(case, inputs, b, h) for h in range(H)] for b in range(B)]
    return {name: [[heads[b][h][name] for h in range(H)] for b in range(B)] for name in heads[0][0]}


# ---------------------------------------------------------------------------------------------------------------------
# The cases.


class Case:
    """One file: `<file>.safetensors`. Options as on the command line; in a sum with the encoding's name before them."""

    def __init__(self, file, encoding, options=None, max_length=T, d=4, gates="any"):
        self.file, self.encoding, self.all_options = file, encoding, options or {}
        self.parts = encoding.split("+")
        self.max_length, self.gates = max_length, gates
        self.d, self.D = d, H * d
        self.is_embed = encoding in ("absolute", "sinusoidal")

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
            options, own = self.options(name), {}
            if name == "absolute":
                own["table"] = (self.max_length, self.D)
            if name == "relative":
                own["table"] = (self.max_length, self.d)
            if name == "alibi" and options["learned"] == "true":
                own["slopes"] = (H,)
            if name == "cope":
                table = (int(options["p-max"]) + 1, self.d)
                own["table"] = (H, *table) if options["share"] == "none" else table
                if options["gates"] == "sep-keys":
                    own |= {"gate.weight": (self.D, self.D), "gate.bias": (self.D,)}
            prefix = "" if len(self.parts) == 1 else f"{name}."
            shapes |= {prefix + key: shape for key, shape in own.items()}
        return shapes

    def metadata(self):
        options = {f"option.{key}": value for key, value in self.all_options.items()}
        return {"encoding": self.encoding, "max-length": str(self.max_length), **options}


def cope_options(p_max, prefix="", **changed):
    options = {"p-max": str(p_max), "position-scale": "none", "share": "heads", "gates": "keys"}
    options |= {key.replace("_", "-"): value for key, value in changed.items()}
    return {prefix + key: value for key, value in options.items()}


CASES = [
    Case("none", "none"),
    Case("absolute", "absolute", max_length=9),
    Case("sinusoidal", "sinusoidal"),
    Case("relative", "relative", {"far": "refuse"}),
    Case("relative-far-cap", "relative", {"far": "cap"}, max_length=4),
    Case("relative-far-none", "relative", {"far": "none"}, max_length=4),
    Case("rope-half", "rope", {"layout": "half"}),
    Case("rope-interleaved", "rope", {"layout": "interleaved"}),
    Case("rope-base", "rope", {"layout": "half", "base": "100"}),
    Case("rope-half-rotary-dims", "rope", {"layout": "half", "rotary-dims": "4"}, d=6),
    Case("rope-interleaved-rotary-dims", "rope", {"layout": "interleaved", "rotary-dims": "4"}, d=6),
    Case("alibi", "alibi", {"learned": "false"}),
    Case("alibi-learned", "alibi", {"learned": "true"}),
    Case("cope-unsaturated", "cope", cope_options(8)),
    Case("cope-saturated", "cope", cope_options(2)),
    Case("cope-p-max-1", "cope", cope_options(1)),
    Case("cope-sqrt-d", "cope", cope_options(8, position_scale="sqrt-d")),
    Case("cope-sqrt-d-saturated", "cope", cope_options(2, position_scale="sqrt-d")),
    Case("cope-gates-large", "cope", cope_options(8), gates="large"),
    Case("cope-gates-large-saturated", "cope", cope_options(3), gates="large"),
    Case("cope-gates-one", "cope", cope_options(7), gates="one"),
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
    Case("cope+relative", "cope+relative", {**cope_options(3, "cope."), "relative.far": "refuse"}),
    Case("alibi+cope", "alibi+cope", {"alibi.learned": "false", **cope_options(3, "cope.")}),
    Case("alibi+rope", "alibi+rope", {"alibi.learned": "true", "rope.layout": "interleaved"}),
]


def draw(case, random):
    """Inputs, parameters and d_output; multiples of 2^-10, so that they are exact in float32 too."""
    def normal(shape):
        return np.round(random.normal(size=shape) * 1024) / 1024

    inputs = {"x": normal((B, T, case.D))}
    if not case.is_embed:
        inputs |= {name: normal((B, H, T, case.d)) for name in "qkv"}
    if case.gates != "any":  # components near a: s near a² d scale, so gates of 0.95 (s = 3) or 1 to the last bit (50)
        a = {"large": 1.25, "one": 5.0}[case.gates]
        inputs["q"], inputs["k"] = (a + np.round(inputs[name] * 128) / 1024 for name in "qk")
    inputs |= {name: normal(shape) for name, shape in case.parameter_shapes().items()}
    return inputs, normal((B, T, case.D) if case.is_embed else (B, H, T, case.d))


def near_kink(positions):
    below = np.tril(np.ones((T, T), bool))
    p = np.real(positions)[..., below]
    return np.abs(p - np.round(p)).min() < KINK


def plain(value):
    """Drops the imaginary part, which is 0."""
    return np.real(np.array(value)).astype(np.float64)


def elements(nested, path=()):
    """The innermost lists with an index each, in order."""
    for n, item in enumerate(nested):
        if isinstance(item, list):
            yield from elements(item)
        else:
            yield nested, n


def make(case, seed):
    """{tensor name: array} of one file."""
    random = np.random.RandomState(seed)
    while True:
        inputs, d_output = draw(case, random)
        lists = {name: array.tolist() for name, array in inputs.items()}
        expected = forward(case, lists)
        if "positions" not in expected or case.gates == "one" or not near_kink(expected["positions"]):
            break
    tensors = {**inputs, "d_output": d_output, **{name: plain(value) for name, value in expected.items()}}

    upstream = [row[n] for row, n in elements(d_output.tolist())]

    def loss():
        output = forward(case, lists)["output"]
        return sum(row[n] * d for (row, n), d in zip(elements(output), upstream))

    for name, array in inputs.items():
        if name == "x" and not case.is_embed and "sep-keys" not in case.all_options.values():
            continue
        gradient = []
        for row, n in elements(lists[name]):
            kept = row[n]
            row[n] = complex(kept, STEP)
            gradient.append(loss().imag / STEP)
            row[n] = kept
        tensors[f"d_{name}"] = np.array(gradient).reshape(array.shape)
    return tensors


def files():
    """(path, tensors, metadata) of every file."""
    for seed, case in enumerate(CASES, 1):
        yield f"{case.file}.safetensors", make(case, seed), case.metadata()
    slopes = {f"slopes.{heads}": np.array(published_slopes(heads)) for heads in (1, 2, 3, 4, 6, 8, 12, 16)}
    yield "alibi-slopes.safetensors", slopes, {"encoding": "alibi-slopes"}


def difference(stored, made):
    """The first difference between two files' contents in words, or None."""
    if stored[1] != made[1]:
        return f"metadata {stored[1]}, not {made[1]}"
    if stored[0].keys() != made[0].keys():
        return f"other tensors: {sorted(stored[0].keys() ^ made[0].keys())}"
    for name, array in made[0].items():
        old = stored[0][name]
        if old.dtype != array.dtype or old.shape != array.shape:
            return f"{name} is {old.dtype}{list(old.shape)}, not {array.dtype}{list(array.shape)}"
        worst = np.abs(old.astype(np.float64) - array).max()
        if not worst <= TOLERANCE * np.abs(array).max():
            return f"{name} differs by {worst:.1e}"
    return None


def write_or_check(folder, contents):
    """The command line of this script and of its sister for plain operations. Returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compare the files with what the formulas give now")
    check, wrong = parser.parse_args().check, 0
    for name, tensors, metadata in contents:
        path = os.path.join(folder, name)
        if not check:
            tensor_file.write(path, tensors, metadata)
            continue
        found = difference(tensor_file.read(path), (tensors, metadata)) if os.path.exists(path) else "missing"
        if found:
            print(f"{name}: {found}")
            wrong += 1
    if check:
        print(f"{wrong} files differ" if wrong else "all files are as the formulas give them")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(write_or_check(FOLDER, files()))
