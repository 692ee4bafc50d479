"""DAPE and DAPE-V2, networks over the heads on the logits, and multi-token attention."""

import copy

import numpy as np

import tape
from position_encodings import HOOKS, encoding


def bias_of(layer):
    """[H,T,T] of the bias of distance, an encoding of its own with the start values of its options."""
    own = copy.copy(layer)
    own.options = {"kernel": "log", "learned": False}
    own.parameter = lambda name: layer.parameter(f"bias.{name}")
    return tape.where(np.tril(np.ones(layer.seen.shape, bool)), HOOKS["score"][layer.options["bias"]](own), 0)


def network_shapes(sizes, options, taps=()):
    heads, hidden = sizes.heads, int(options["hidden"])
    bias = {"bias.r1": (heads,), "bias.r2": (heads,)} if options["bias"] == "kerple" else {}
    inputs = heads if options["bias"] == "none" else 2 * heads
    return bias | {"hidden.weight": (hidden, inputs, *taps), "hidden.bias": (hidden,),
                   "output.weight": (heads, hidden, *taps), "output.bias": (heads,)}


encoding("dape", "shapes")(network_shapes)


@encoding("dape2", "shapes")
def dape2_shapes(sizes, options):
    return network_shapes(sizes, options, (int(options["kernel"]),))


def beside(parts):
    """Along the axis before the last two."""
    return tape.concatenate([part.transpose(0, 2, 3, 1) for part in parts]).transpose(0, 3, 1, 2)


def with_zeros(x, before, behind):
    """x [..,keys] with so many zeros before and behind them."""
    def zeros(keys):
        return tape.Node(np.zeros((*x.shape[:-1], keys), x.value.dtype))
    return tape.concatenate([zeros(before), x, zeros(behind)])


def convolved(x, weight, bias):
    """y_j = sum_k W_k x_{j+k} + bias of x [B,C,T,keys + K - 1], W [N,C,K]: [B,N,T,keys]."""
    taps, total = weight.shape[2], None
    keys = x.shape[3] - taps + 1
    for k in range(taps):
        term = (x[..., k:k + keys].transpose(0, 2, 3, 1) @ weight[:, :, k].swap_last()).transpose(0, 3, 1, 2)
        total = term if total is None else total + term
    return (total.transpose(0, 2, 3, 1) + bias).transpose(0, 3, 1, 2)


@encoding("dape", "weights")
@encoding("dape2", "weights")
def network(layer, logits, _):
    """softmax of s + b + W2 * leaky(W1 * [s ; b] + b1) + b2 (DAPE, arXiv 2405.14722; DAPE-V2, arXiv 2410.04798, where * is a
    convolution along the keys). s and b are 0 for masked pairs. The hidden layer has no key before 0, and as many after the
    last one as its convolution reaches; with `edge` = authors none after the last of the text."""
    slope, result = float(layer.options["slope"]), tape.where(layer.seen, logits, 0)
    inputs = result
    if layer.options["bias"] != "none":
        b = tape.where(layer.seen, bias_of(layer) + np.zeros_like(logits.value), 0)
        inputs, result = beside([result, b]), result + b
    weights = [layer.parameter(f"{name}.weight") for name in ("hidden", "output")]
    hidden_weight, output_weight = (w if len(w.shape) == 3 else w.reshape(*w.shape, 1) for w in weights)
    half = hidden_weight.shape[2] // 2
    hidden = convolved(with_zeros(inputs, half, 2 * half), hidden_weight, layer.parameter("hidden.bias"))
    tape.has_kink_at_zero(hidden.value)
    rectified = hidden * np.where(hidden.value > 0, 1, slope).astype(hidden.value.dtype)
    if layer.options.get("edge") == "authors":
        rectified = with_zeros(rectified[..., :logits.shape[3]], 0, half)
    change = convolved(with_zeros(rectified, half, 0), output_weight, layer.parameter("output.bias"))
    return tape.softmax(result + change, layer.seen)


def summed_around(x, kernel):
    """sum_ab K_h[a,b] x_{i-cq+1+a, j-(ck-1)/2+b} of x [B,H,T,T]."""
    _, rows, columns = kernel.shape
    t, half, total = x.shape[2], (columns - 1) // 2, None
    around = with_zeros(with_zeros(x, half, half).swap_last(), rows - 1, 0).swap_last()
    for a in range(rows):
        for b in range(columns):
            term = around[:, :, a:a + t, b:b + t] * kernel[:, a, b].reshape(-1, 1, 1)
            total = term if total is None else total + term
    return total


def of_heads(matrix, x):
    """y_h = sum_g matrix[h, g] x_g."""
    return (x.transpose(0, 2, 3, 1) @ matrix.swap_last()).transpose(0, 3, 1, 2)


@encoding("mta", "shapes")
def mta_shapes(sizes, options):
    heads, d, mix = sizes.heads, sizes.head_width, options["mix"]
    kernel, n = (heads, int(options["queries"]), int(options["keys"])), min(heads, int(options["group"]) or heads)
    return {"kernel": kernel,
            **({"kernel-after": kernel} if options["after"] else {}),
            **({"mix": (heads, heads)} if mix in ("both", "before") else {}),
            **({"mix-after": (heads // n, n, n)} if mix in ("both", "after") else {}),
            **({"norm.weight": (d,)} if options["norm"] else {}),
            **({"gate.weight": (1, d), "gate.bias": (1,)} if options["gate"] else {})}


@encoding("mta", "weights")
def mta(layer, logits, _):
    """softmax of sum_g W[h,g] s'^g, s' the logits summed around each pair by K; then the same sums of the weights, by other
    K and M (multi-token attention, arXiv 2504.00927)"""
    scores = summed_around(tape.where(layer.seen, logits, 0), layer.parameter("kernel"))
    if layer.has("mix"):
        scores = of_heads(layer.parameter("mix"), scores)
    weights = tape.softmax(scores, layer.seen)
    if layer.has("kernel-after"):
        weights = tape.where(layer.seen, summed_around(weights, layer.parameter("kernel-after")), 0)
    if layer.has("mix-after"):
        groups = layer.parameter("mix-after")
        n = groups.shape[1]
        mixed = [of_heads(groups[g].swap_last(), weights[:, g * n:(g + 1) * n]) for g in range(groups.shape[0])]
        weights = tape.where(layer.seen, beside(mixed), 0)  # masked pairs of one head stay masked in another
    return weights


@encoding("mta", "finish")
def mta_finish(layer, o):
    """o / sqrt(mean(o²) + 1e-5) w, then times sigmoid(w . o + c)"""
    if layer.has("norm.weight"):
        o = o / tape.sqrt((o * o).mean(-1) + 1e-5) * layer.parameter("norm.weight")
    if layer.has("gate.weight"):
        o = o * tape.sigmoid(o @ layer.parameter("gate.weight").swap_last() + layer.parameter("gate.bias"))
    return o
