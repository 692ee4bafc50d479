"""The formulas of the position encodings, over the tape. The usual ones are here, others are in *_encodings.py by theme.

Each encoding has one function for each hook where it acts, registered by name:
    shapes(sizes, options)  returns {name: shape} of its parameters
    embed(layer, x)     the token embeddings [B,T,D]; returns the new ones
    prepare(layer, q, k, v) q, k, v [B,H,T,d] as projected, before all of rotate; returns the new ones
    rotate(layer, q, k, v)  q, k, v [B,H,T,d] before the product; returns the new ones
    scale(layer)        returns what the products are multiplied by; 1/sqrt(d) where no encoding says otherwise
    score(layer)        returns what is added to the scaled products [B,H,T,T]
    factor(layer)       returns what the logits are multiplied by, [B,H,T,1]
    weights(layer, l, dumped)   the attention weights [B,H,T,T] from logits, those of the program (or None) where rounding
                        decides; softmax where no encoding says otherwise
    shares(layer, l, dumped)    the same as two things: what each pair has, [B,H,T,T], and what that is divided by
    rest(layer, o)      the sum of values [B,H,T,d]; returns it with what joins it before any finish
    finish(layer, o)    the attention output [B,H,T,d]; returns the new one
"""

import importlib
import math
import pathlib
from collections import namedtuple

import numpy as np

import tape

HOOKS = {hook: {} for hook in ("shapes", "embed", "prepare", "rotate", "scale", "score", "factor", "weights", "shares",
                               "rest", "finish")}
SAME_POSITION = 1e-3  # how far rounding may move a position


def encoding(name, hook):
    def register(function):
        HOOKS[hook][name] = function
        return function
    return register


def known(name):
    return name == "none" or any(name in hook for hook in HOOKS.values())


# heads: that an encoding acts on, all heads of the layer or a group of them. width: D of the whole model.
Sizes = namedtuple("Sizes", "heads key_heads head_width width max_length")


def parameter_shapes(name, sizes, options):
    return HOOKS["shapes"][name](sizes, options) if name in HOOKS["shapes"] else {}


class Layer:
    """What an encoding sees of one layer. `index` is None for the hook embed."""

    def __init__(self, index, name, options, parameters, dumped=None, owner=None):
        self.index, self.name, self.options, self.owner = index, name, options, owner or name
        self.parameters, self.dumped = parameters, dumped or {}
        self.q = self.k = self.v = None  # [B,H,T,d], not rotated
        self.x = None                    # [B,T,D], the input of the query, key and value projections
        self.sight = None                # the mask of the queries
        self.seen = None                 # bool [T,T], whether the query attends to the key
        self.alive = None                # bool [B,H,T,T], set by score where it takes pairs' weight altogether
        self.s = None                    # scaled products of the (rotated) q and k
        self.logits = None               # [B,H,T,T], set before the weights
        self.product_scale = None        # their factor
        self.weights = None              # for rest and finish
        self.rotated_q = self.rotated_k = self.rotated_v = None  # after all of rotate
        self.record = lambda name, node: None

    @property
    def scale(self):
        return 1 / math.sqrt(self.q.shape[-1])

    @property
    def query(self):
        """q of all products but s."""
        return self.rotated_q if self.options.get("rotated-query") else self.q

    def path(self, name):
        """The path of the layer's own parameter, or else of the parameter that all layers share."""
        own = f"model.blocks.{self.index}.position.{self.owner}.{name}"
        return own if own in self.parameters else f"model.position.{self.name}.{name}"

    def has(self, name):
        """Whether there is one: a projection of a model without biases has none."""
        return self.path(name) in self.parameters

    def parameter(self, name):
        return self.parameters[self.path(name)]


def split_heads(x, heads):
    b, t, width = x.shape
    return x.reshape(b, t, heads, width // heads).transpose(0, 2, 1, 3)


def repeat_kv(x, heads, axis):
    """What belongs to a head of keys, along this axis, for each of the heads that share it."""
    times, before, after = heads // x.shape[axis], x.shape[:axis], x.shape[axis + 1:]
    if times == 1:
        return x
    each = x.reshape(*before, x.shape[axis], 1, *after) * np.ones((times, *(1 for _ in after)), x.value.dtype)
    return each.reshape(*before, heads, *after)


def distances(t):
    """i - j, [T,T]; negative where the key comes later."""
    return np.arange(t)[:, None] - np.arange(t)[None, :]


Sight = namedtuple("Sight", "window chunk first", defaults=(0, 0, 0))  # what queries see; 0: no limit


def mask_tensor(t, sight):
    """bool [T,T]: a query attends to the keys up to itself in its window and its chunk, and to the first ones."""
    n, index = distances(t), np.arange(t)
    near = np.ones((t, t), bool)
    if sight.window:
        near &= n < sight.window
    if sight.chunk:
        near &= index[:, None] // sight.chunk == index // sight.chunk
    return (n >= 0) & (near | (index < sight.first))


@encoding("absolute", "shapes")
def absolute_shapes(sizes, options):
    return {"table": (sizes.max_length, sizes.width)}


@encoding("absolute", "embed")
def absolute(layer, x):
    """x_t + e[t] (arXiv 1706.03762, section 3.5, the learned variant)"""
    return x + layer.parameter("table")[:x.shape[1]]


@encoding("sinusoidal", "embed")
def sinusoidal(layer, x):
    """x_t[2i] + sin(t / 10000^(2i/D)), x_t[2i+1] + cos(the same) (arXiv 1706.03762, section 3.5)"""
    _, t, width = x.shape
    angle = np.arange(t)[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)
    table = np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(t, -1)[:, :width]
    return x + table.astype(x.value.dtype)


@encoding("relative", "shapes")
def relative_shapes(sizes, options):
    return {"table": (int(options["distances"]) or sizes.max_length, sizes.head_width)}


@encoding("relative", "score")
def relative(layer):
    """q_i . e[i-j] / sqrt(d) (arXiv 1803.02155, equation 5, for keys only)"""
    q, table = layer.query, layer.parameter("table")
    count, n = table.shape[0], distances(q.shape[2])
    if layer.options["far"] == "refuse" and n.max() >= count:
        raise ValueError(f"relative: distance {n.max()} with {count} rows, and far = refuse")
    index = np.broadcast_to(np.clip(n, 0, count - 1), layer.s.shape)
    reached = (n >= 0) & ((n < count) | (layer.options["far"] != "none"))
    return tape.where(reached, tape.pick(q @ table.swap_last(), index), 0) * layer.scale


def alibi_slopes(heads):
    """m_h = 2^(-8h/H); else the slopes of the power of two below, then every second slope of twice that power (arXiv
    2108.12409, section 3, and the released code)."""
    power = 2 ** int(math.log2(heads))
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2 ** (-4 * h / power) for h in range(1, 2 * power + 1, 2)]
    return np.array(slopes + between[:heads - power])


@encoding("alibi", "shapes")
def alibi_shapes(sizes, options):
    return {"slopes": (sizes.heads,)} if options["learned"] else {}


@encoding("alibi", "score")
def alibi(layer):
    """-m_h (i-j) (arXiv 2108.12409, section 3)"""
    n, dtype = np.maximum(distances(layer.q.shape[2]), 0), layer.q.value.dtype
    if layer.options["learned"]:
        slopes = layer.parameter("slopes")
    else:
        slopes = tape.Node(alibi_slopes(layer.q.shape[1]).astype(dtype))
    return slopes.reshape(-1, 1, 1) * -n.astype(dtype)


def gate_shapes(sizes, options):
    """A projection for gate keys of their own."""
    width = sizes.key_heads * sizes.head_width
    return {"gate.weight": (width, sizes.width), "gate.bias": (width,)} if options["gates"] == "sep-keys" else {}


def contextual_positions(layer, own=True):
    """p_ij = sum_{k=j..i} g_ik, g_ik = sigmoid(s_ik) (CoPE, arXiv 2405.18719, equations 3 and 4); masked keys have no gate.
    0 above the diagonal. Without own the sum starts at j+1."""
    q, gate_logits = layer.query, layer.s
    if layer.options["gates"] != "keys":
        source = layer.v
        if layer.options["gates"] == "sep-keys":
            projected = layer.x @ layer.parameter("gate.weight").swap_last()
            if layer.has("gate.bias"):
                projected = projected + layer.parameter("gate.bias")
            width = q.shape[3]
            source = repeat_kv(split_heads(projected, projected.shape[2] // width), q.shape[1], 1)
        gate_logits = (q @ source.swap_last()) * layer.scale
    gates = tape.where(layer.seen, tape.sigmoid(gate_logits), 0)
    positions = tape.suffix_sum(gates) if own else tape.suffix_sum(gates) - gates
    layer.record("gates", gates)
    layer.record("positions", positions)
    return positions


@encoding("cope", "shapes")
def cope_shapes(sizes, options):
    table = (int(options["p-max"]) + 1, sizes.head_width)
    return {"table": (sizes.heads, *table) if options["share"] == "none" else table} | gate_shapes(sizes, options)


@encoding("cope", "score")
def cope(layer):
    """z_i interpolated at p_ij, z_i[n] = q_i . e[n] (arXiv 2405.18719, equation 5, with the errata of nn/position)"""
    positions = contextual_positions(layer)
    z = layer.query @ layer.parameter("table").swap_last()
    if layer.options["position-scale"] == "sqrt-d":
        z = z * layer.scale
    return interpolate(z, positions, layer.dumped.get("positions"))


def interpolate(z, positions, dumped=None):
    """(1-w) z[floor c] + w z[min(floor c + 1, P)], c = min(position, P).

    Close to an integer only rounding decides between two gradients. If the program's positions are known, they
    decide. (The value is continuous, so this hides no wrong value; the positions themselves are compared too.)
    """
    last, chosen = z.shape[-1] - 1, positions.value
    tape.has_kinks_at_integers(chosen[chosen > 0])  # above the diagonal positions are 0
    if dumped is not None:
        chosen = np.where(np.abs(chosen - dumped) < SAME_POSITION, dumped, chosen)
    below = chosen < last
    floor = np.floor(np.minimum(chosen, last)).astype(np.int64)
    low, high = tape.pick(z, floor), tape.pick(z, np.minimum(floor + 1, last))
    w = tape.where(below, positions, last) - floor.astype(z.value.dtype)
    return low + w * (high - low)


for module in sorted(pathlib.Path(__file__).parent.glob("*_encodings.py")):
    importlib.import_module(module.stem)  # registers its encodings
