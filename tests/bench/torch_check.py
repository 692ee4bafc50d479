#!/usr/bin/env python3
"""Compares the encodings of torch_encodings.py with plain loops over heads, queries and keys, in f64.

    torch_check.py               # all of them
    torch_check.py cope fox-pro  # some

The loops follow the formulas of `tally describe NAME` and share no code with what they check. Inputs and parameters
are random; the length reaches all ranges of T5, distances beyond FIRE's threshold and positions beyond CoPE's table.
What --fused-bias hands to PyTorch's own attention is checked both ways. Gradients of the inputs that a method reads and
of its parameters have to be there and finite; those of hard attention, which are not derivatives, are compared with
their formula.

Prints a line for each: the largest difference of an output (hard: and of a gradient) over the largest magnitude in it.
Exit code 0: all within 1e-12, 1: not. Needs PyTorch 2 (see torch_step.py) and numpy.
"""
import argparse
import math
import sys
from types import SimpleNamespace

try:
    import numpy as np
    import torch

    from torch_encodings import EMBEDDINGS, ENCODINGS, WITH_BIAS
except ImportError as error:
    sys.exit(f"torch_check.py: {error}; 'torch_step.py' begins with how to install PyTorch")

TOLERANCE = 1e-12
SIZES = {"batch": 2, "heads": 4, "width": 24, "length": 150, "p_max": 16, "hidden": 5}


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


class Head:
    """What one head of one sequence sees: q, k, v [T, d], x [T, D], its number (from 0), parameters by name."""

    def __init__(self, q, k, v, x, number, parameters):
        self.q, self.k, self.v, self.x, self.number, self.parameters = q, k, v, x, number, parameters
        self.length, self.width = q.shape
        self.scale = 1 / math.sqrt(self.width)

    def __getitem__(self, name):
        return self.parameters[name]

    def own(self, name):
        """The rows of a parameter [H d, ..] that belong to this head."""
        return self[name][self.number * self.width:(self.number + 1) * self.width]

    def gate(self, name, t):
        """Of token t, from a weight [H, D] and, where there is one, a bias [H]."""
        bias = self.parameters.get(name + ".bias", np.zeros(SIZES["heads"]))
        return sigmoid(self[name + ".weight"][self.number] @ self.x[t] + bias[self.number])

    def score(self, i, j):
        return self.scale * (self.q[i] @ self.k[j])

    def positions(self, i):
        """p_i0 to p_ii of CoPE, walked from the query to the left."""
        total, found = 0.0, []
        for j in range(i, -1, -1):
            total += sigmoid(self.score(i, j))
            found.append(total)
        return found[::-1]


def interpolated(table, position):
    """A row of the table [P+1, ..] between two entries, at most the last."""
    where = min(position, len(table) - 1)
    low = math.floor(where)
    return (1 - (where - low)) * table[low] + (where - low) * table[min(low + 1, len(table) - 1)]


def softmax_of(logits):
    weights = [math.exp(logit - max(logits)) for logit in logits]
    return [weight / sum(weights) for weight in weights]


# Logits of query i for keys 0 to i.

def none(head, i):
    return [head.score(i, j) for j in range(i + 1)]


def rotary(head, i, growth):
    """A plane (a, b) is the complex number a + ib; growth(m) is what a token of distance does to plane m."""
    half, logits = head.width // 2, []
    q, k = (rows[:, :half] + 1j * rows[:, half:] for rows in (head.q, head.k))
    for j in range(i + 1):
        planes = 0.0
        for m in range(half):
            turn = complex(0, (i - j) * 10000 ** (-2 * m / head.width))
            planes += (q[i, m] * k[j, m].conjugate() * np.exp(turn)).real * growth(m) ** (i - j)
        logits.append(head.scale * planes)
    return logits


def rope(head, i):
    return rotary(head, i, lambda m: 1)


def xpos(head, i):
    return rotary(head, i, lambda m: ((2 * m + 0.4 * head.width) / (1.4 * head.width)) ** (1 / 512))


def alibi(head, i):
    slope = 2 ** (-8 * (head.number + 1) / SIZES["heads"])
    return [head.score(i, j) - slope * (i - j) for j in range(i + 1)]


def t5(head, i):
    def bucket(n):
        return n if n < 16 else min(31, 16 + math.floor(math.log(n / 16) / math.log(128 / 16) * 16))
    return [head.score(i, j) + head["biases.weight"][bucket(i - j), head.number] for j in range(i + 1)]


def kerple(head, i):
    r1, r2 = (max(head[name][head.number, 0, 0], 0.01) for name in ("r1", "r2"))
    return [head.score(i, j) - r1 * math.log(1 + r2 * (i - j)) for j in range(i + 1)]


def fire(head, i):
    c, threshold = abs(head["c"]), abs(512 * head["m"])
    logits = []
    for j in range(i + 1):
        share = math.log(c * (i - j) + 1) / (math.log(c * max(i, threshold) + 1) + 1e-6)
        hidden = np.maximum(head["mlp.0.weight"][:, 0] * share + head["mlp.0.bias"], 0)
        bias = head["mlp.2.weight"][head.number] @ hidden + head["mlp.2.bias"][head.number]
        logits.append(head.score(i, j) + bias)
    return logits


def relative(head, i):
    return [head.scale * (head.q[i] @ head.k[j] + head.q[i] @ head["table"][i - j]) for j in range(i + 1)]


def transformer_xl(head, i):
    u, v, whole = head["content"][head.number, 0], head["place"][head.number, 0], SIZES["width"]
    logits = []
    for j in range(i + 1):
        turns = [(i - j) * 10000 ** (-2 * m / whole) for m in range(whole // 2)]
        sinusoids = np.array([math.sin(turn) for turn in turns] + [math.cos(turn) for turn in turns])
        by_distance = head.own("map.weight") @ sinusoids
        logits.append(head.scale * ((head.q[i] + u) @ head.k[j] + (head.q[i] + v) @ by_distance))
    return logits


def nexus(head, i):
    position, logits = 0.0, []
    for j in range(i + 1):
        position += head.gate("gate", j)
        entry = interpolated(head["table"], position)
        logits.append(head.score(i, j) + head.scale * ((head["query.weight"] @ head.q[i]) @ entry))
    return logits


def fox(head, i):
    kept, logits = 0.0, []
    for j in range(i, -1, -1):
        logits.append(head.score(i, j) + kept)
        kept += math.log(head.gate("forget", j))
    return logits[::-1]


def cope(head, i):
    z = head["table"] @ head.q[i]
    return [head.score(i, j) + interpolated(z, p) for j, p in enumerate(head.positions(i))]


def cope_alibi(head, i):
    return [head.score(i, j) + 2.0 ** -head.number * p for j, p in enumerate(head.positions(i))]


def cope_mlp(head, i):
    logits = []
    for j, p in enumerate(head.positions(i)):
        hidden = np.maximum(head["hidden.weight"][:, 0] * p + head["hidden.bias"], 0)
        logits.append(head.score(i, j) + head.q[i] @ (head["output.weight"] @ hidden + head["output.bias"]))
    return logits


# Outputs [T, d] of one head.

def attention(logits_of):
    """Softmax attention with the logits that a function gives for each query."""
    def outputs(head):
        return np.array([softmax_of(logits_of(head, i)) @ head.v[:i + 1] for i in range(head.length)])
    return outputs


def fox_pro(head):
    def normed(rows, name):
        return np.array([row / math.sqrt(np.mean(row * row) + 1e-6) * head[name][head.number, 0] for row in rows])

    def shifted(rows, name):
        gates = [head.gate(name, t) for t in range(head.length)]
        before = [np.zeros(head.width), *rows[:-1]]
        return np.array([gate * old + (1 - gate) * row for gate, old, row in zip(gates, before, rows)])

    q, k = normed(head.q, "query_norm.weight"), normed(shifted(head.k, "key_shift"), "key_norm.weight")
    inner = Head(q, k, shifted(head.v, "value_shift"), head.x, head.number, head.parameters)
    gates = [[sigmoid(row @ x) for row in head.own("output_gate.weight")] for x in head.x]
    return normed(attention(fox)(inner), "output_norm.weight") * gates


def stick_breaking(head):
    outputs = np.zeros_like(head.v)
    for i in range(head.length):
        left = 1.0
        for j in range(i - 1, -1, -1):
            share = sigmoid(head.score(i, j))
            outputs[i] += left * share * head.v[j]
            left *= 1 - share
    return outputs


def chosen(logits):
    """The key of the largest logit, the nearest of equal ones."""
    return max(range(len(logits)), key=lambda j: (logits[j], j))


def hard(head):
    return np.array([head.v[chosen(none(head, i))] for i in range(head.length)])


def hard_gradients(head, d_y):
    """d_q, d_k, d_v: d_v through the chosen keys, the others as if the weights were the softmax's."""
    d_q, d_k, d_v = np.zeros_like(head.q), np.zeros_like(head.k), np.zeros_like(head.v)
    for i in range(head.length):
        logits = none(head, i)
        d_v[chosen(logits)] += d_y[i]
        weights, d_weights = softmax_of(logits), head.v[:i + 1] @ d_y[i]
        for j, weight in enumerate(weights):
            d_logit = weight * (d_weights[j] - np.dot(weights, d_weights))
            d_q[i] += head.scale * d_logit * head.k[j]
            d_k[j] += head.scale * d_logit * head.q[i]
    return d_q, d_k, d_v


LOOPS = {"none": attention(none), "absolute": attention(none), "sinusoidal": attention(none), "rope": attention(rope),
         "xpos": attention(xpos), "alibi": attention(alibi), "t5": attention(t5), "kerple": attention(kerple),
         "fire": attention(fire), "relative": attention(relative), "transformer-xl": attention(transformer_xl),
         "nexus": attention(nexus), "fox": attention(fox), "fox-pro": fox_pro, "stick-breaking": stick_breaking,
         "hard": hard, "absolute+hard": hard, "cope": attention(cope), "cope-alibi": attention(cope_alibi),
         "cope-mlp": attention(cope_mlp)}
GATED = ("nexus", "fox", "fox-pro")  # these read x


def absolute(x, parameters):
    return x + parameters["table"]


def sinusoidal(x, parameters):
    table = np.zeros(x.shape[1:])
    for t, row in enumerate(table):
        for column in range(0, len(row), 2):
            turn = t / 10000 ** (column / len(row))
            row[column:column + 2] = math.sin(turn), math.cos(turn)
    return x + table


EMBEDDED = {"absolute": absolute, "absolute+hard": absolute, "sinusoidal": sinusoidal}


def difference(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


def made(kind, fused_bias=False):
    """A module with random parameters, and these by name."""
    module = kind(SimpleNamespace(**SIZES, fused_bias=fused_bias))
    for name, parameter in module.named_parameters():
        torch.nn.init.normal_(parameter, std=0.3)
        if name == "m":
            torch.nn.init.constant_(parameter, -0.1)  # FIRE's threshold within the length
    return module, {name: parameter.detach().numpy() for name, parameter in module.named_parameters()}


def check_gradients(name, leaves):
    for leaf, tensor in leaves.items():
        if tensor.grad is None or not tensor.grad.isfinite().all():
            sys.exit(f"torch_check.py: {name}: the gradient of {leaf} is {'missing' if tensor.grad is None else 'not finite'}")


def check_embedding(name):
    module, parameters = made(EMBEDDINGS[name])
    x = torch.randn(SIZES["batch"], SIZES["length"], SIZES["width"], requires_grad=True)
    y = module(x)
    y.sum().backward()
    check_gradients(name, {"x": x, **dict(module.named_parameters())})
    return difference(y.detach().numpy(), EMBEDDED[name](x.detach().numpy(), parameters))


def check_attention(name, fused_bias=False):
    module, parameters = made(ENCODINGS[name], fused_bias)
    shape = (SIZES["batch"], SIZES["heads"], SIZES["length"], SIZES["width"] // SIZES["heads"])
    q, k, v, d_y = (torch.randn(shape) for _ in range(4))
    x = torch.randn(SIZES["batch"], SIZES["length"], SIZES["width"])
    leaves = {"q": q, "k": k, "v": v, **({"x": x} if name in GATED else {})}
    for tensor in leaves.values():
        tensor.requires_grad_()
    y = module(q, k, v, x)
    y.backward(d_y)
    check_gradients(name, {**leaves, **dict(module.named_parameters())})

    worst = []
    for b in range(SIZES["batch"]):
        for h in range(SIZES["heads"]):
            head = Head(*(tensor[b, h].detach().numpy() for tensor in (q, k, v)), x[b].detach().numpy(), h, parameters)
            worst.append(difference(y[b, h].detach().numpy(), LOOPS[name](head)))
            if LOOPS[name] is hard:
                worst += [difference(tensor.grad[b, h].numpy(), expected)
                          for tensor, expected in zip((q, k, v), hard_gradients(head, d_y[b, h].numpy()))]
    return max(worst)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encodings", nargs="*", metavar="NAME", help=f"of {', '.join(ENCODINGS)}")
    names = parser.parse_args().encodings or list(ENCODINGS)
    unknown = [name for name in names if name not in ENCODINGS]
    if unknown:
        parser.error(f"there is no encoding {unknown[0]}; there are {', '.join(ENCODINGS)}")
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    differences = []
    for name in names:
        found = {"attention": check_attention(name)}
        if name in WITH_BIAS:
            found["fused bias"] = check_attention(name, fused_bias=True)
        if name in EMBEDDINGS:
            found["embedding"] = check_embedding(name)
        print(f"{name:15}", "  ".join(f"{part} {value:.1e}" for part, value in found.items()), flush=True)
        differences += found.values()
    wrong = sum(not value <= TOLERANCE for value in differences)
    print(f"{len(differences)} comparisons, largest difference {max(differences):.1e}, {wrong} beyond {TOLERANCE}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
