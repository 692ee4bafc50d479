"""Reverse-mode differentiation over numpy arrays, in whatever type the leaves have (float64 or float32).

A Node holds a value and, for every input Node, the function from the gradient of this value to the gradient of the
input. Constants are plain arrays or Python numbers. Broadcasting is undone by summing.
"""

import itertools
import math

import numpy as np

counter = itertools.count()
erf_exact = np.frompyfunc(math.erf, 1, 1)
nearest_kink = np.inf  # the smallest distance of any number from a point where a formula has no derivative


def has_kink_at_zero(x):
    """Notes how close the array x gets to 0, where the formula that reads it has no derivative."""
    global nearest_kink
    nearest_kink = min(nearest_kink, np.abs(x).min(initial=np.inf))


def has_kinks_at_integers(x):
    has_kink_at_zero(x - np.round(x))


class Node:
    """One value of the computation; `parents` are pairs (node, gradient of self -> gradient of node)."""

    __array_ufunc__ = None  # array + Node asks Node, not numpy

    def __init__(self, value, *parents):
        self.value = np.asarray(value)
        self.parents = [(node, pull) for node, pull in parents if isinstance(node, Node)]
        self.order = next(counter)
        self.gradient = None
        self.terms = 0.0  # of a leaf: the sum of |x| over all x that its gradient is the sum of

    @property
    def shape(self):
        return self.value.shape

    def __add__(self, other):
        return Node(self.value + value_of(other), (self, lambda g: g), (other, lambda g: g))

    def __sub__(self, other):
        return Node(self.value - value_of(other), (self, lambda g: g), (other, lambda g: -g))

    def __mul__(self, other):
        a, b = self.value, value_of(other)
        return Node(a * b, (self, lambda g: g * b), (other, lambda g: g * a))

    def __truediv__(self, other):
        a, b = self.value, value_of(other)
        return Node(a / b, (self, lambda g: g / b), (other, lambda g: -g * a / (b * b)))

    def __matmul__(self, other):
        a, b = self.value, value_of(other)
        return Node(a @ b, (self, lambda g: g @ np.swapaxes(b, -1, -2)), (other, lambda g: np.swapaxes(a, -1, -2) @ g))

    def __getitem__(self, index):
        """Basic indexing: slices and integers, no repeated elements."""
        def pull(g):
            full = np.zeros_like(self.value)
            full[index] = g
            return full
        return Node(self.value[index], (self, pull))

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other):
        return self * -1 + other

    def reshape(self, *shape):
        return Node(self.value.reshape(shape), (self, lambda g: g.reshape(self.shape)))

    def transpose(self, *axes):
        return Node(self.value.transpose(axes), (self, lambda g: g.transpose(np.argsort(axes))))

    def swap_last(self):
        return Node(np.swapaxes(self.value, -1, -2), (self, lambda g: np.swapaxes(g, -1, -2)))

    def sum(self, axis=None):
        """Summed axes are kept with size 1; all of them are dropped when no axis is named."""
        total = self.value.sum(axis=axis, keepdims=axis is not None)
        return Node(total, (self, lambda g: np.broadcast_to(g, self.shape)))

    def mean(self, axis):
        return self.sum(axis) * (1 / self.shape[axis])


def value_of(x):
    return x.value if isinstance(x, Node) else x


def exp(x):
    y = np.exp(x.value)
    return Node(y, (x, lambda g: g * y))


def log(x):
    return Node(np.log(x.value), (x, lambda g: g / x.value))


def sqrt(x):
    y = np.sqrt(x.value)
    return Node(y, (x, lambda g: g * 0.5 / y))


def cos(x):
    return Node(np.cos(x.value), (x, lambda g: g * -np.sin(x.value)))


def sin(x):
    return Node(np.sin(x.value), (x, lambda g: g * np.cos(x.value)))


def tanh(x):
    y = np.tanh(x.value)
    return Node(y, (x, lambda g: g * (1 - y * y)))


def relu(x):
    positive = x.value > 0
    return Node(np.where(positive, x.value, 0).astype(x.value.dtype), (x, lambda g: g * positive))


def sigmoid(x):
    small = np.exp(-np.abs(x.value))  # never overflows
    y = np.where(x.value >= 0, 1, small) / (1 + small)
    return Node(y, (x, lambda g: g * y * (1 - y)))


def softplus(x):
    y = np.maximum(x.value, 0) + np.log1p(np.exp(-np.abs(x.value)))
    return Node(y, (x, lambda g: g * sigmoid(x).value))


def erf(x):
    """The error function has no numpy form: computed in double and rounded to the type of x."""
    value = erf_exact(x.value.astype(np.float64)).astype(x.value.dtype)
    return Node(value, (x, lambda g: g * (2 / math.sqrt(math.pi)) * np.exp(-x.value * x.value)))


def softmax(x, allowed=True):
    """Over the last axis; entries that are not allowed get weight 0, and so does a row without any that is."""
    shifted = np.where(allowed, x.value, -np.inf)
    largest = shifted.max(axis=-1, keepdims=True)
    y = np.exp(shifted - np.where(largest > -np.inf, largest, 0))
    total = y.sum(axis=-1, keepdims=True)
    y = y / np.where(total > 0, total, 1)
    return Node(y, (x, lambda g: y * (g - (g * y).sum(axis=-1, keepdims=True))))


# Softmax's derivative can be written with the sum of a row's weights times their gradients, or, as fused attention does,
# with the product of the output and its gradient; in float32 the second carries the rounding of the output.
derivative_by_output = False


def softmax_product(x, allowed, v):
    """The weights softmax(x), and weights @ v."""
    weights = softmax(x, allowed)
    if not derivative_by_output:
        return weights, weights @ v
    a = weights.value
    output = a @ v.value

    def pull(g):
        return a * (g @ np.swapaxes(v.value, -1, -2) - (g * output).sum(axis=-1, keepdims=True))
    return weights, Node(output, (x, pull), (v, lambda g: np.swapaxes(a, -1, -2) @ g))


def quotient_product(n, total, v):
    """The weights n / total, and weights @ v; its derivative by total as softmax's above."""
    weights = n / total
    if not derivative_by_output:
        return weights, weights @ v
    a, z = weights.value, total.value
    output = a @ v.value
    return weights, Node(output, (n, lambda g: g @ np.swapaxes(v.value, -1, -2) / z),
                         (total, lambda g: -(g * output).sum(axis=-1, keepdims=True) / z),
                         (v, lambda g: np.swapaxes(a, -1, -2) @ g))


def log_softmax(x):
    shifted = x.value - x.value.max(axis=-1, keepdims=True)
    y = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return Node(y, (x, lambda g: g - np.exp(y) * g.sum(axis=-1, keepdims=True)))


def where(condition, x, other):
    """x where the constant condition holds, else the constant `other`."""
    return Node(np.where(condition, x.value, np.asarray(other, x.value.dtype)), (x, lambda g: g * condition))


def suffix_sum(x):
    """y[..., j] = sum of x[..., k] over k >= j."""
    return Node(np.cumsum(x.value[..., ::-1], axis=-1)[..., ::-1], (x, lambda g: np.cumsum(g, axis=-1)))


def rows(table, index):
    """table[index]: whole rows by an integer array of any shape."""
    def pull(g):
        full = np.zeros_like(table.value)
        np.add.at(full, index, g)
        return full
    return Node(table.value[index], (table, pull))


def pick(x, index):
    """y[..., j] = x[..., index[..., j]]."""
    def pull(g):
        width = x.shape[-1]
        flat = (np.arange(x.value.size // width)[:, None] * width + index.reshape(-1, index.shape[-1])).ravel()
        return np.bincount(flat, g.ravel(), x.value.size).astype(g.dtype).reshape(x.shape)
    return Node(np.take_along_axis(x.value, index, axis=-1), (x, pull))


def concatenate(parts):
    """Along the last axis."""
    ends = np.cumsum([part.shape[-1] for part in parts])
    pulls = [lambda g, a=end - part.shape[-1], b=end: g[..., a:b] for part, end in zip(parts, ends)]
    return Node(np.concatenate([part.value for part in parts], axis=-1), *zip(parts, pulls))


def stack_last(parts):
    """A new last axis."""
    pulls = [lambda g, n=n: g[..., n] for n in range(len(parts))]
    return Node(np.stack([part.value for part in parts], axis=-1), *zip(parts, pulls))


def unbroadcast(gradient, shape):
    """Sums over the axes along which a value of `shape` had been repeated."""
    if gradient.shape == shape:
        return gradient
    gradient = gradient.sum(axis=tuple(range(gradient.ndim - len(shape))))
    repeated = tuple(n for n, size in enumerate(shape) if size == 1 and gradient.shape[n] != 1)
    return gradient.sum(axis=repeated, keepdims=True)


def backward(root):
    """Adds to `gradient` (and `terms`) of every leaf below the scalar `root`; inner nodes give theirs back at once."""
    root.gradient = np.ones_like(root.value)
    found, waiting = {id(root): root}, [root]
    while waiting:
        for node, _ in waiting.pop().parents:
            if id(node) not in found:
                found[id(node)] = node
                waiting.append(node)
    for node in sorted(found.values(), key=lambda n: -n.order):
        for parent, pull in node.parents:
            pulled = pull(node.gradient)
            part = unbroadcast(pulled, parent.shape)
            if not parent.parents:
                parent.terms = parent.terms + unbroadcast(np.abs(pulled), parent.shape)
            parent.gradient = part if parent.gradient is None else parent.gradient + part
        if node.parents:
            node.gradient = None
