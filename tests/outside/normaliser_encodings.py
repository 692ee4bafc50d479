"""Other rules for the weights than the softmax (sink, sigmoid, softpick), scalable softmax, and gates on the output."""

import math

import numpy as np

import tape
from position_encodings import SAME_POSITION, encoding, split_heads


def remainder_shapes(sizes, options):
    return {"remainder": (sizes.heads, sizes.head_width)} if options["remainder"] == "bias" else {}


encoding("sigmoid", "shapes")(remainder_shapes)
encoding("softpick", "shapes")(remainder_shapes)


def rest_rows(layer):
    """Where goes what weights leave over of 1: to the token's own value as in the sum, or to a learned vector."""
    if layer.options["remainder"] == "value":
        return layer.rotated_v
    rows = layer.parameter("remainder")
    return rows.reshape(rows.shape[0], 1, rows.shape[1])


@encoding("sink", "rest")
@encoding("sigmoid", "rest")
@encoding("softpick", "rest")
def rest(layer, output):
    if layer.options["remainder"] == "drop":
        return output
    return output + (1.0 - layer.weights.sum(-1)) * rest_rows(layer)


def exponentials(layer, logits, shift):
    """e^(l - shift) of what is seen; the shift of a row cancels in the quotient."""
    return tape.where(layer.seen, tape.exp(tape.where(layer.seen, logits - shift, 0)), 0)


@encoding("sink", "shapes")
def sink_shapes(sizes, options):
    return {"logit": (sizes.heads,)} | remainder_shapes(sizes, options)


@encoding("sink", "shares")
def sink(layer, logits, _):
    """e^l_ij / (e^c_h + sum_k e^l_ik) (the released code of gpt-oss; sinks: arXiv 2309.17453)"""
    c = layer.parameter("logit").reshape(-1, 1, 1)
    largest = np.where(layer.seen, logits.value, -np.inf).max(axis=-1, keepdims=True)
    shift = np.maximum(largest, c.value)
    taken = exponentials(layer, logits, shift)
    return taken, taken.sum(-1) + tape.exp(c - shift)


@encoding("sigmoid", "score")
def sigmoid_offset(layer):
    """-ln n_i joins the score; for a fixed n it is part of the rule."""
    if not layer.options["visible"]:
        return 0
    return tape.Node(-np.log(layer.seen.sum(axis=-1, keepdims=True)).astype(layer.s.value.dtype))


@encoding("sigmoid", "weights")
def sigmoid(layer, logits, _):
    """sigmoid(l_ij - ln n) (arXiv 2409.04431)"""
    if not layer.options["visible"]:
        logits = logits - math.log(int(layer.options["length"]))
    return tape.where(layer.seen, tape.sigmoid(logits), 0)


@encoding("softpick", "shares")
def softpick(layer, logits, dumped):
    """relu(e^l_ij - 1) / (sum_k |e^l_ik - 1| + 1e-8) (arXiv 2504.20966)

    At a logit close to 0 only rounding decides between two gradients. There the program's weights decide."""
    value = logits.value
    tape.has_kink_at_zero(value[layer.seen & (value != 0)])  # position_weights has logits of 0 for i = j
    shift = np.maximum(np.where(layer.seen, value, 0).max(axis=-1, keepdims=True), 0)
    one = np.exp(-shift)
    t = tape.where(layer.seen, exponentials(layer, logits, shift) - one, 0)
    above = value > 0
    if dumped is not None:
        above = np.where(np.abs(value) < SAME_POSITION, dumped > 0, above)
    taken = tape.Node(np.maximum(t.value, 0), (t, lambda g: g * above))
    size = tape.Node(np.abs(t.value), (t, lambda g: np.where(above, g, -g)))
    return taken, size.sum(-1) + 1e-8 * one


@encoding("ssmax", "shapes")
def ssmax_shapes(sizes, options):
    return {"factor": (sizes.heads,)} | ({"bias": (sizes.heads,)} if options["bias"] else {})


def by_row(layer):
    """c_h ln n_i + b_h for the n_i keys that query i may attend to (arXiv 2501.19399)"""
    log_seen = np.log(layer.seen.sum(axis=-1, keepdims=True)).astype(layer.q.value.dtype)
    factor = layer.parameter("factor").reshape(-1, 1, 1) * log_seen
    if layer.options["bias"]:
        factor = factor + layer.parameter("bias").reshape(-1, 1, 1)
    return factor


@encoding("ssmax", "rotate")
def ssmax(layer, q, k, v):
    return q if layer.options["whole"] else q * by_row(layer), k, v


@encoding("ssmax", "factor")
def ssmax_of_whole_logits(layer):
    return by_row(layer) if layer.options["whole"] else 1


@encoding("gated", "shapes")
def gated_shapes(sizes, options):
    gates = sizes.heads * (1 if options["per"] == "head" else sizes.head_width)
    return {"gate.weight": (gates, sizes.width), "gate.bias": (gates,)}


@encoding("gated", "finish")
def gated(layer, output):
    """o_i sigmoid(W x_i + b), a gate for each number or for each head (arXiv 2505.06708)"""
    gate = layer.x @ layer.parameter("gate.weight").swap_last()
    if layer.has("gate.bias"):
        gate = gate + layer.parameter("gate.bias")
    return output * split_heads(tape.sigmoid(gate), output.shape[1])
