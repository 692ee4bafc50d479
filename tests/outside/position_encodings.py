"""The position encodings, from their formulas, over the tape; here the usual ones, others in *_encodings.py by theme.

One function an encoding, registered by name under the hook where it acts:
    embed(layer, x)     the token embeddings [B,T,D]; returns the new ones
    prepare(layer, q, k, v) q, k, v [B,H,T,d] as projected, before all of rotate; returns the new ones
    rotate(layer, q, k, v)  q, k, v [B,H,T,d] before the product; returns the new ones
    scale(layer)        returns what the products are multiplied by; 1/sqrt(d) where no encoding says otherwise
    score(layer)        returns what is added to the scaled products [B,H,T,T]
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

HOOKS = {hook: {} for hook in ("embed", "prepare", "rotate", "scale", "score", "factor", "weights", "shares", "rest", "finish")}
SAME_POSITION = 1e-3  # how far rounding may move a position


def encoding(name, hook):
    def register(function):
        HOOKS[hook][name] = function
        return function
    return register


def known(name):
    return name == "none" or any(name in hook for hook in HOOKS.values())


class Layer:
    """What an encoding sees of one layer. `index` is None for the hook embed."""

    def __init__(self, index, name, options, parameters, dumped=None, owner=None):
        self.index, self.name, self.options, self.owner = index, name, options, owner or name
        self.parameters, self.dumped = parameters, dumped or {}
        self.q = self.k = self.v = None  # [B,H,T,d], not rotated
        self.x = None                    # [B,T,D], what the query, key and value projections see
        self.seen = None                 # bool [T,T], whether the query sees the key
        self.alive = None                # bool [B,H,T,T], set by score where it takes pairs' weight altogether
        self.s = None                    # scaled products of the (rotated) q and k
        self.product_scale = None        # what they are multiplied by
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
        """Of the layer's own parameter, or else of the one that all layers share."""
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


def for_query_heads(x, heads, axis):
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


def seen_pairs(t, sight):
    """bool [T,T]: of the keys up to itself a query sees those of its window and of its chunk, and the first ones."""
    n, index = distances(t), np.arange(t)
    near = np.ones((t, t), bool)
    if sight.window:
        near &= n < sight.window
    if sight.chunk:
        near &= index[:, None] // sight.chunk == index // sight.chunk
    return (n >= 0) & (near | (index < sight.first))


@encoding("absolute", "embed")
def absolute(layer, x):
    return x + layer.parameter("table")[:x.shape[1]]


@encoding("sinusoidal", "embed")
def sinusoidal(layer, x):
    _, t, width = x.shape
    angle = np.arange(t)[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)
    table = np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(t, -1)[:, :width]
    return x + table.astype(x.value.dtype)


@encoding("relative", "score")
def relative(layer):
    q, table = layer.query, layer.parameter("table")
    count, n = table.shape[0], distances(q.shape[2])
    if layer.options["far"] == "refuse" and n.max() >= count:
        raise ValueError(f"relative: distance {n.max()} with {count} rows, and far = refuse")
    index = np.broadcast_to(np.clip(n, 0, count - 1), layer.s.shape)
    reached = (n >= 0) & ((n < count) | (layer.options["far"] != "none"))
    return tape.where(reached, tape.pick(q @ table.swap_last(), index), 0) * layer.scale


def alibi_slopes(heads):
    power = 2 ** int(math.log2(heads))
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2 ** (-4 * h / power) for h in range(1, 2 * power + 1, 2)]
    return np.array(slopes + between[:heads - power])


@encoding("alibi", "score")
def alibi(layer):
    n, dtype = np.maximum(distances(layer.q.shape[2]), 0), layer.q.value.dtype
    if layer.options["learned"]:
        slopes = layer.parameter("slopes")
    else:
        slopes = tape.Node(alibi_slopes(layer.q.shape[1]).astype(dtype))
    return slopes.reshape(-1, 1, 1) * -n.astype(dtype)


def contextual_positions(layer, own=True):
    """p_ij, the sum of the gates of keys from j up to i that are seen; 0 above the diagonal. Without own from j+1 on."""
    q, gate_logits = layer.query, layer.s
    if layer.options["gates"] != "keys":
        source = layer.v
        if layer.options["gates"] == "sep-keys":
            projected = layer.x @ layer.parameter("gate.weight").swap_last()
            if layer.has("gate.bias"):
                projected = projected + layer.parameter("gate.bias")
            width = q.shape[3]
            source = for_query_heads(split_heads(projected, projected.shape[2] // width), q.shape[1], 1)
        gate_logits = (q @ source.swap_last()) * layer.scale
    gates = tape.where(layer.seen, tape.sigmoid(gate_logits), 0)
    positions = tape.suffix_sum(gates) if own else tape.suffix_sum(gates) - gates
    layer.record("gates", gates)
    layer.record("positions", positions)
    return positions


@encoding("cope", "score")
def cope(layer):
    positions = contextual_positions(layer)
    z = layer.query @ layer.parameter("table").swap_last()
    if layer.options["position-scale"] == "sqrt-d":
        z = z * layer.scale
    return interpolate(z, positions, layer.dumped.get("positions"))


def interpolate(z, positions, dumped=None):
    """(1-w) z[floor c] + w z[min(floor c + 1, P)], c = min(position, P).

    Close to an integer rounding alone decides between two gradients. Where the program's positions are known, theirs is
    the choice. (The value is continuous, so this hides no wrong value; the positions themselves are compared too.)
    """
    last, chosen = z.shape[-1] - 1, positions.value
    if dumped is not None:
        chosen = np.where(np.abs(chosen - dumped) < SAME_POSITION, dumped, chosen)
    below = chosen < last
    floor = np.floor(np.minimum(chosen, last)).astype(np.int64)
    low, high = tape.pick(z, floor), tape.pick(z, np.minimum(floor + 1, last))
    w = tape.where(below, positions, last) - floor.astype(z.value.dtype)
    return low + w * (high - low)


for module in sorted(pathlib.Path(__file__).parent.glob("*_encodings.py")):
    importlib.import_module(module.stem)  # registers what it holds
