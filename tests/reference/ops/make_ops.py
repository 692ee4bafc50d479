#!/usr/bin/env python3
"""Writes ../ops.safetensors: plain operations in double precision; ../README.md says which. `--check` compares."""

import math
import os
import sys

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, FOLDER)

import make_references  # noqa: E402  (exits with 77 where numpy is missing)
import numpy as np  # noqa: E402

random = np.random.RandomState(1)
tensors, metadata = {}, {}


def normal(*shape):
    """Multiples of 2^-10: exact in float32."""
    return np.round(random.normal(size=shape) * 1024) / 1024


def case(name, inputs, out, **numbers):
    for n, array in enumerate(inputs):
        tensors[f"{name}.in{n}"] = np.asarray(array)
    for key, array in (out if isinstance(out, dict) else {"out": out}).items():
        tensors[f"{name}.{key}"] = np.asarray(array)
    metadata.update({f"{name}.{key}": str(value) for key, value in numbers.items()})


def by_row(function, x):
    """function(list) -> list, along the last axis."""
    return np.array([function(row) for row in x.reshape(-1, x.shape[-1]).tolist()]).reshape(x.shape)


def by_element(function, x):
    return np.array([function(value) for value in x.ravel().tolist()]).reshape(x.shape)


# ---------------------------------------------------------------------------------------------------------------------
# Softmax, norms, activations, loss.


def softmax(row):
    largest = max(row)
    powers = [math.exp(value - largest) for value in row]
    return [power / math.fsum(powers) for power in powers]


def log_softmax(row):
    largest = max(row)
    log_sum = math.log(math.fsum(math.exp(value - largest) for value in row))
    return [value - largest - log_sum for value in row]


def causal_softmax(x):
    result = np.zeros_like(x)
    for b in range(x.shape[0]):
        for i in range(x.shape[1]):
            result[b, i, :i + 1] = softmax(x[b, i, :i + 1].tolist())
    return result


def layer_norm(row, weight, bias, eps):
    mean = math.fsum(row) / len(row)
    variance = math.fsum((value - mean) ** 2 for value in row) / len(row)
    return [(value - mean) / math.sqrt(variance + eps) * w + b for value, w, b in zip(row, weight, bias)]


def rms_norm(row, weight, eps):
    square = math.fsum(value * value for value in row) / len(row)
    return [value / math.sqrt(square + eps) * w for value, w in zip(row, weight)]


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def gelu_tanh(x):
    """0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u)), without cancellation"""
    return x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))


ACTIVATIONS = {
    "gelu": lambda x: x * 0.5 * math.erfc(-x / math.sqrt(2)),  # 1 + erf(y) = erfc(-y) without cancellation
    "gelu_tanh": gelu_tanh,
    "silu": lambda x: x * sigmoid(x),
    "softplus": lambda x: max(x, 0) + math.log1p(math.exp(-abs(x))),
    "sigmoid": sigmoid,
    "tanh": math.tanh,
}


def cross_entropy(logits, targets, mask):
    losses = [-log_softmax(row)[target] for row, target, use in zip(logits.tolist(), targets, mask) if use]
    return math.fsum(losses) / len(losses)


def functions():
    for name, shape in (("odd", (3, 7)), ("long", (2, 65)), ("one", (4, 1))):
        x = normal(*shape)
        case(f"softmax.{name}", [x], by_row(softmax, x))
        case(f"log_softmax.{name}", [x], by_row(log_softmax, x))
    x = normal(3, 9) + np.array([[700.0], [-700.0], [0.0]])
    x[2, 3] = 700
    case("softmax.large", [x], by_row(softmax, x))
    case("log_softmax.large", [x], by_row(log_softmax, x))
    for name, length in (("odd", 7), ("long", 33), ("one", 1)):
        x = normal(2, length, length)
        case(f"causal_softmax.{name}", [x], causal_softmax(x))

    for name, shape, shift in (("odd", (3, 7), 0), ("long", (2, 3, 65), 0), ("shifted", (3, 16), 100)):
        x, weight, bias = normal(*shape) + shift, normal(shape[-1]), normal(shape[-1])
        normed = by_row(lambda row: layer_norm(row, weight, bias, 1e-5), x)
        case(f"layer_norm.{name}", [x, weight, bias], normed, eps=1e-5)
        case(f"rms_norm.{name}", [x, weight], by_row(lambda row: rms_norm(row, weight, 1e-6), x), eps=1e-6)

    some = normal(5, 9) * 3
    sizes = [2.0 ** -10, 1.0, 5.0, 10.0, 20.0, 40.0, 100.0, 745.0]
    large = np.array([-x for x in sizes] + [0.0] + sizes)
    for name, function in ACTIVATIONS.items():
        case(f"{name}.some", [some], by_element(function, some))
        case(f"{name}.large", [large], by_element(function, large))

    for name, scale, share in (("some", 1, 0.6), ("large", 200, 0.6), ("all", 1, 1.0)):
        logits, targets = normal(9, 5) * scale, random.randint(5, size=9).astype(np.int32)
        mask = random.uniform(size=9) < share
        case(f"cross_entropy.{name}", [logits, targets, mask], cross_entropy(logits, targets, mask))


# ---------------------------------------------------------------------------------------------------------------------
# The parts of position encodings.


def cumsum(x, reverse, causal):
    result = np.zeros_like(x)
    for b in range(x.shape[0]):
        for i in range(x.shape[1]):
            keys = range(min(i + 1, x.shape[2]) if causal else x.shape[2])
            for j in keys:
                result[b, i, j] = math.fsum(x[b, i, k] for k in keys if (k >= j if reverse else k <= j))
    return result


def interpolate(table, position):
    result, last = np.zeros_like(position), table.shape[-1] - 1
    for b, i, j in np.ndindex(position.shape):
        c = min(position[b, i, j], last)
        f = math.floor(c)
        w = c - f
        result[b, i, j] = (1 - w) * table[b, i, f] + w * table[b, i, min(f + 1, last)]
    return result


def rotate(x, cosines, sines, layout):
    result, half = x.copy(), cosines.shape[1]
    for b, t, i in np.ndindex(x.shape[0], x.shape[1], half):
        first, second = (i, i + half) if layout == "half" else (2 * i, 2 * i + 1)
        a, c = x[b, t, first], x[b, t, second]
        result[b, t, first] = a * cosines[t, i] - c * sines[t, i]
        result[b, t, second] = a * sines[t, i] + c * cosines[t, i]
    return result


def parts_of_encodings():
    for reverse in (False, True):
        for causal in (False, True):
            x = normal(2, 7, 7)
            name = f"{'reverse' if reverse else 'forward'}{'-causal' if causal else ''}"
            case(f"cumsum.{name}", [x], cumsum(x, reverse, causal), reverse=str(reverse).lower(),
                 causal=str(causal).lower())

    inner = np.round(random.uniform(0, 4, size=(2, 7, 7)) * 1024) / 1024
    beyond = inner * 3
    whole = np.floor(inner * 2)  # integers, P itself and beyond
    for name, position, rows in (("inner", inner, 6), ("beyond", beyond, 5), ("integers", whole, 6),
                                 ("one-row", inner, 1)):
        table = normal(2, 7, rows)
        case(f"interpolate.{name}", [table, position], interpolate(table, position))

    for layout in ("half", "interleaved"):
        for name, width, r in (("all", 8, 8), ("some", 8, 4), ("two", 2, 2)):
            x, angle = normal(2, 7, width), np.arange(7)[:, None] * 100.0 ** (-2 * np.arange(r // 2) / r)
            cosines, sines = by_element(math.cos, angle), by_element(math.sin, angle)
            case(f"rotate.{layout}-{name}", [x, cosines, sines], rotate(x, cosines, sines, layout), layout=layout)


# ---------------------------------------------------------------------------------------------------------------------
# Optimisers: one number at a time, by the rules in PyTorch's documentation.


def sgd(p, gradients, lr, momentum, weight_decay):
    result, velocity = [], None
    for g in gradients:
        g = g + weight_decay * p
        velocity = g if velocity is None else momentum * velocity + g
        p = p - lr * velocity
        result.append(p)
    return result


def adam(p, gradients, lr, beta1, beta2, eps, weight_decay=0.0):
    """AdamW; with weight_decay 0 it is Adam."""
    result, m, v = [], 0.0, 0.0
    for n, g in enumerate(gradients, 1):
        p = p * (1 - lr * weight_decay)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        p = p - lr * (m / (1 - beta1 ** n)) / (math.sqrt(v / (1 - beta2 ** n)) + eps)
        result.append(p)
    return result


def learning_rate(schedule, n, lr, warmup, steps, floor, cooldown=0, shape="linear"):
    """lr min(n/warmup, (steps+1-n)/(steps+1-warmup)); the cosine falls along the same way; both to a part of lr.

    wsd holds lr until its last steps, of which the one after the end would be at the floor; inverse-root is
    lr min(n/warmup, sqrt(warmup/n)), with such last steps or without. cooldown: the number of these steps.
    """
    if n <= warmup:
        return lr * n / warmup
    if schedule == "constant":
        return lr
    if schedule in ("linear", "cosine"):
        done = (n - warmup) / (steps + 1 - warmup)
        return lr * (1 - (1 - floor) * {"linear": done, "cosine": (1 - math.cos(math.pi * done)) / 2}[schedule])
    rate = 1 if schedule == "wsd" else math.sqrt((warmup or 1) / n)
    places = list(range(steps - cooldown + 1, steps + 1))  # the last steps
    if n in places:
        done = (places.index(n) + 1) / (cooldown + 1)
        rate *= {"linear": 1 - done, "1-sqrt": 1 - math.sqrt(done)}[shape]
    return lr * (floor + (1 - floor) * rate)


def optimisers():
    start, gradients = normal(5), normal(3, 5)
    gradients[:, 4] = 0  # never a gradient: only decay moves it

    def of_vector(function, **options):
        return np.array([function(p, gradients[:, n].tolist(), **options) for n, p in enumerate(start.tolist())]).T

    basic = {"lr": 0.05, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
    other = {"lr": 0.01, "beta1": 0.8, "beta2": 0.95, "eps": 1e-3}
    for op, name, function, options in (
            ("sgd", "plain", sgd, {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}),
            ("sgd", "momentum", sgd, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.0}),
            ("sgd", "momentum-decay", sgd, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
            ("adam", "basic", adam, basic), ("adam", "other", adam, other),
            ("adamw", "basic", adam, {**basic, "weight_decay": 0.1}),
            ("adamw", "other", adam, {**other, "weight_decay": 0.3}),
            ("adamw", "no-decay", adam, {**basic, "weight_decay": 0.0})):
        case(f"{op}.{name}", [start, gradients], of_vector(function, **options), **options)

    a, b = normal(3, 4), normal(5)
    norm = math.sqrt(math.fsum(value * value for value in [*a.ravel().tolist(), *b.tolist()]))
    for name, clip in (("above", 1.0), ("below", 100.0)):
        factor = min(1.0, clip / (norm + 1e-6))
        case(f"clip.{name}", [a, b], {"out0": a * factor, "out1": b * factor, "norm": norm}, clip=clip)

    for schedule in ("constant", "linear", "cosine"):
        for name, warmup, floor in (("warmup", 5, 0.0), ("no-warmup", 0, 0.0), ("floor", 5, 0.1)):
            rates = [learning_rate(schedule, n, 3e-4, warmup, 20, floor) for n in range(1, 21)]
            case(f"schedule.{schedule}-{name}", [], np.array(rates), schedule=schedule, lr=3e-4, warmup=warmup,
                 steps=20, lr_floor=floor)
    for name, warmup, floor, share, steps, shape in (
            ("wsd-usual", 5, 0.0, 0, 2, "linear"), ("wsd-linear", 5, 0.1, 0.25, 5, "linear"),
            ("wsd-root", 0, 0.0, 0.3, 6, "1-sqrt"), ("wsd-root-floor", 5, 0.2, 0.75, 15, "1-sqrt"),
            ("wsd-least", 19, 0.0, 0.001, 1, "linear"), ("inverse-root-warmup", 5, 0.0, 0, 0, "linear"),
            ("inverse-root-no-warmup", 0, 0.0, 0, 0, "linear"), ("inverse-root-floor", 5, 0.1, 0, 0, "linear"),
            ("inverse-root-cooldown", 5, 0.1, 0.4, 8, "linear"), ("inverse-root-root", 4, 0.0, 0.2, 4, "1-sqrt")):
        schedule = "wsd" if name.startswith("wsd") else "inverse-root"
        rates = [learning_rate(schedule, n, 3e-4, warmup, 20, floor, steps, shape) for n in range(1, 21)]
        case(f"schedule.{name}", [], np.array(rates), schedule=schedule, lr=3e-4, warmup=warmup, steps=20,
             lr_floor=floor, cooldown=share, cooldown_shape=shape)


# ---------------------------------------------------------------------------------------------------------------------
# LSTM: one sequence and one step at a time, as PyTorch's documentation has it.


def lstm_steps(x, weight, hidden, cell):
    width = weight.shape[1]
    result = []
    for b in range(x.shape[0]):
        h, c = hidden[b], cell[b]
        for t in range(x.shape[1]):
            total = x[b, t] + weight @ h
            i, f, o = (1 / (1 + np.exp(-total[n * width:(n + 1) * width])) for n in (0, 1, 3))
            c = f * c + i * np.tanh(total[2 * width:3 * width])
            h = o * np.tanh(c)
            result.append(h)
    return np.array(result).reshape(*x.shape[:2], width)


def complex_step_gradients(function, inputs, d_y):
    """Without any derivative: d f / d x = Im f(x + i h) / h, where h = 1e-30 leaves no difference to lose digits in."""
    step = 1e-30
    for n, array in enumerate(inputs):
        gradient = np.zeros_like(array)
        for index in np.ndindex(*array.shape):
            moved = [other.astype(complex) for other in inputs]
            moved[n][index] += 1j * step
            gradient[index] = math.fsum((d_y * function(*moved).imag / step).ravel().tolist())
        yield gradient


def recurrent():
    for name, (batch, length, width) in (("one", (1, 1, 1)), ("odd", (2, 5, 3)), ("wide", (3, 4, 8))):
        inputs = [normal(batch, length, 4 * width), normal(4 * width, width), normal(batch, width),
                  normal(batch, width)]
        d_y = normal(batch, length, width)
        parts = [lstm_steps(*inputs), *complex_step_gradients(lstm_steps, inputs, d_y)]
        case(f"lstm.{name}", [*inputs, d_y], np.concatenate([part.ravel() for part in parts]))


def mean_loss(x, head, targets, mask):
    """Of logits x headᵀ, without ever a large exponential; x and head may be complex."""
    total = 0
    for row, target in zip((x @ head.T)[mask], targets[mask]):
        largest = row.real.max()
        total += np.log(np.exp(row - largest).sum()) + largest - row[target]
    return np.array([total / mask.sum()])


def output_projections():
    for name, scale, share in (("some", 1, 0.6), ("large", 30, 0.6), ("all", 1, 1.0)):
        x, head = normal(9, 4) * scale, normal(11, 4)
        targets, mask = random.randint(11, size=9).astype(np.int32), random.uniform(size=9) < share

        def loss(x, head, targets=targets, mask=mask):
            return mean_loss(x, head, targets, mask)
        parts = [loss(x, head), *complex_step_gradients(loss, [x, head], np.ones(1))]
        case(f"linear_cross_entropy.{name}", [x, head, targets, mask], np.concatenate([part.ravel() for part in parts]))


if __name__ == "__main__":
    functions()
    parts_of_encodings()
    optimisers()
    recurrent()
    output_projections()
    sys.exit(make_references.write_or_check(FOLDER, [("ops.safetensors", tensors, metadata)]))
