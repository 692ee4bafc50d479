"""CoPE with slopes and with a network, forgetting attention, stick-breaking; registered as position_encodings.py says."""

import numpy as np

import tape
from normaliser_encodings import remainder_shapes, rest_rows
from position_encodings import (SAME_POSITION, alibi_slopes, contextual_positions, distances, encoding, repeat_kv,
                                gate_shapes, split_heads)


@encoding("cope-alibi", "shapes")
def cope_alibi_shapes(sizes, options):
    return ({"slopes": (sizes.heads,)} if options["slopes"] == "learned" else {}) | gate_shapes(sizes, options)


@encoding("cope-alibi", "score")
def cope_alibi(layer):
    """m_h p_ij, or m_h min(p_ij, P); m_h = sign m_0 2^(1-h), or sign times ALiBi's, or learned (arXiv 2405.18719, section
    4)"""
    positions, options, heads = contextual_positions(layer), layer.options, layer.q.shape[1]
    last = int(options["p-max"])
    if last:
        tape.has_kinks_at_integers(positions.value[positions.value > 0])
        positions = tape.where(decisive(layer, positions.value) < last, positions, last)
    if options["slopes"] == "learned":
        slopes = layer.parameter("slopes")
    else:
        sizes = alibi_slopes(heads)
        if options["slopes"] == "halving":
            sizes = float(options["first-slope"]) * 2.0 ** -np.arange(heads)
        slopes = tape.Node((sizes if options["sign"] == "plus" else -sizes).astype(positions.value.dtype))
    return positions * slopes.reshape(-1, 1, 1)


@encoding("cope-mlp", "shapes")
def cope_mlp_shapes(sizes, options):
    hidden, d = int(options["hidden"]), sizes.head_width
    return {"hidden.weight": (hidden,), "hidden.bias": (hidden,), "output.weight": (d, hidden),
            "output.bias": (d,)} | gate_shapes(sizes, options)


@encoding("cope-mlp", "score")
def cope_mlp(layer):
    """q_i . f(p_ij), f(p) = W2 relu(w1 p + b1) + b2 (arXiv 2405.18719, section 4)"""
    if layer.options["layers"] == "first" and layer.index:
        return 0
    positions = contextual_positions(layer)
    w1, b1 = layer.parameter("hidden.weight"), layer.parameter("hidden.bias")
    inside = positions.reshape(*positions.shape, 1) * w1 + b1
    tape.has_kink_at_zero(inside.value[positions.value > 0])
    open_units = decisive(layer, positions.value)[..., None] * w1.value + b1.value > 0
    hidden = tape.where(open_units, inside, 0)
    f = hidden @ layer.parameter("output.weight").swap_last() + layer.parameter("output.bias")  # [B,H,T,T,d]
    q = layer.query
    return (q.reshape(*q.shape[:3], 1, q.shape[3]) * f).sum(-1).reshape(*positions.shape)


def decisive(layer, positions):
    """Positions that decide the side of a kink. Next to a kink only rounding decides, so the program's positions are
    taken there."""
    dumped = layer.dumped.get("positions")
    return positions if dumped is None else np.where(np.abs(positions - dumped) < SAME_POSITION, dumped, positions)


def forget_shapes(sizes):
    return {"forget.weight": (sizes.heads, sizes.width), "forget.bias": (sizes.heads,)}


def forget_bias(layer, factor=1.0):
    """sum_{u=j+1..i} log f_u, f_u = sigmoid(w_h . x_u + b_h), times a factor"""
    gates = layer.x @ layer.parameter("forget.weight").swap_last() + layer.parameter("forget.bias")  # [B,T,H]
    sign = -1 if layer.options.get("sign") == "minus" else 1
    log_forget = (tape.softplus(gates * -sign) * -1).transpose(0, 2, 1)
    total = tape.suffix_sum(log_forget[..., ::-1])[..., ::-1] * factor  # from the first token on
    b, h, t = total.shape
    bias = tape.where(distances(t) >= 0, total.reshape(b, h, t, 1) - total.reshape(b, h, 1, t), 0)
    layer.record("decay", tape.where(layer.seen, tape.exp(bias), 0))
    return bias


@encoding("fox", "shapes")
def fox_shapes(sizes, options):
    return forget_shapes(sizes)


@encoding("fox", "score")
@encoding("fox-pro", "score")
def fox(layer):
    """sum_{u=j+1..i} log f_u (arXiv 2503.02130, section 3; CABLE, arXiv 2503.08067, has the other sign)"""
    return forget_bias(layer)


@encoding("fox", "scale")
def fox_scale(layer):
    return 1.0 if layer.options["score-scale"] == "none" else layer.scale


@encoding("fox-pro", "shapes")
def fox_pro_shapes(sizes, options):
    heads, key_heads, d, width = sizes.heads, sizes.key_heads, sizes.head_width, sizes.width
    return forget_shapes(sizes) | {
        "output-gate.weight": (heads * d, width), "key-shift.weight": (key_heads, width),
        "value-shift.weight": (key_heads, width), "query-norm.weight": (heads, d), "key-norm.weight": (key_heads, d),
        "output-norm.weight": (heads, d)}


def shift(layer, rows, part):
    """a_t y_{t-1} + (1-a_t) y_t, a_t = sigmoid(w_h . x_t)"""
    b, h, t, d = rows.shape
    weight = repeat_kv(layer.parameter(f"{part}-shift.weight"), h, 0)
    a = tape.sigmoid(layer.x @ weight.swap_last()).transpose(0, 2, 1).reshape(b, h, t, 1)
    one_back = np.eye(t, k=-1, dtype=rows.value.dtype)
    return a * (tape.Node(one_back) @ rows) + (1.0 - a) * rows


def norm(layer, rows, part):
    """y / sqrt(mean(y²) + 1e-6) w_h"""
    weight = repeat_kv(layer.parameter(f"{part}-norm.weight"), rows.shape[1], 0)
    return rows / tape.sqrt((rows * rows).mean(-1) + 1e-6) * weight.reshape(weight.shape[0], 1, weight.shape[1])


@encoding("fox-pro", "prepare")
def fox_pro_rows(layer, q, k, v):
    """FoX (Pro) (arXiv 2503.02130, section 4): the shift of k and v, the norm of q and k"""
    return norm(layer, q, "query"), norm(layer, shift(layer, k, "key"), "key"), shift(layer, v, "value")


@encoding("fox-pro", "finish")
def fox_pro_output(layer, output):
    """The norm of the output times sigmoid(W_g x)"""
    gate = tape.sigmoid(layer.x @ layer.parameter("output-gate.weight").swap_last())
    return norm(layer, output, "output") * split_heads(gate, output.shape[1])


@encoding("stick-breaking", "weights")
def stick_breaking(layer, logits, _):
    """exp(l_ij - sum_{k=j..i-1} softplus(l_ik)) for j < i (arXiv 2410.17980, equations 2 to 4)"""
    own = layer.options["attend-current"]
    visible = layer.seen & (distances(logits.shape[-1]) >= (0 if own else 1))
    taken = tape.suffix_sum(tape.where(visible, tape.softplus(logits), 0))
    layer.remainder = tape.exp(taken[..., :1] * -1)  # [B,H,T,1]
    layer.breaks = tape.where(visible, tape.sigmoid(logits), 0)
    return tape.where(visible, tape.exp(tape.where(visible, logits - taken, 0)), 0)


encoding("stick-breaking", "shapes")(remainder_shapes)


@encoding("stick-breaking", "rest")
def stick_breaking_rest(layer, output):
    layer.record("breaks", layer.breaks)
    return output if layer.options["remainder"] == "drop" else output + layer.remainder * rest_rows(layer)
