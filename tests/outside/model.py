"""The whole transformer over the tape: embedding, blocks, head, loss. Names as in the checkpoints.

A linear weight is [out, in], heads are contiguous blocks of d rows. Evaluation only: no dropout.
"""

import math

import numpy as np

import config as run_config
import position_encodings as position
import tape


NORM_EPS = {"layer": 1e-5, "rms": 1e-6}


def linear(parameters, name, x):
    y = x @ parameters[f"{name}.weight"].swap_last()
    return y + parameters[f"{name}.bias"] if f"{name}.bias" in parameters else y


def normalise(config, parameters, name, x):
    if config.norm == "layer":
        x = x - x.mean(-1)
    y = x / tape.sqrt((x * x).mean(-1) + (config.norm_eps or NORM_EPS[config.norm])) * parameters[f"{name}.weight"]
    return y + parameters[f"{name}.bias"] if f"{name}.bias" in parameters else y


def gelu(x):
    return x * 0.5 * (tape.erf(x * math.sqrt(0.5)) + 1.0)


def gelu_tanh(x):
    return x * tape.sigmoid((x + x * x * x * 0.044715) * (2 * math.sqrt(2 / math.pi)))


def mlp(config, parameters, name, x):
    up = linear(parameters, f"{name}.up", x)
    if config.activation == "swiglu":
        gate = linear(parameters, f"{name}.gate", x)
        hidden = gate * tape.sigmoid(gate) * up
    else:
        hidden = {"gelu": gelu, "gelu-tanh": gelu_tanh, "relu": tape.relu}[config.activation](up)
    return linear(parameters, f"{name}.down", hidden)


def acting(layers, hook):
    """The parts that act there, each with its function."""
    return [(layer, position.HOOKS[hook][layer.name]) for layer in layers if layer.name in position.HOOKS[hook]]


def attend(layers, q, k, v, x, record, sight=position.Sight()):
    """Attention output [B,H,T,d] before the output projection; `layers` are the parts of the encoding."""
    seen, scale = position.mask_tensor(x.shape[1], sight), 1 / math.sqrt(q.shape[-1])
    decay, counted = [], {"gates", "positions"}
    first_counted = set()

    def record_joint(key, node):
        if key == "decay":  # of all forget gates together
            decay.append(node)
            for other in decay[:-1]:
                node = node * other
        if key in counted:  # of the first layer that counts
            if key in first_counted:
                return
            first_counted.add(key)
        record(key, node)

    for layer in layers:
        layer.q, layer.k, layer.v, layer.x, layer.record, layer.seen = q, k, v, x, record_joint, seen
        layer.sight = sight
    for hook in ("prepare", "rotate"):
        for layer, rotate in acting(layers, hook):
            q, k, v = rotate(layer, q, k, v)
    for layer, scale_of in acting(layers, "scale"):
        scale = scale * (scale_of(layer) / layer.scale)
    s = (q @ k.swap_last()) * scale
    logits, joined = s, None
    for layer in sorted(layers, key=lambda layer: layer.name != "tra"):  # tra masks scores; the others add to them
        if first_counted:  # the dump has the gates of another layer
            layer.dumped = {key: array for key, array in layer.dumped.items() if key not in counted}
        layer.s, layer.product_scale, layer.rotated_q, layer.rotated_k, layer.rotated_v = s, scale, q, k, v
        if layer.name in position.HOOKS["score"]:
            term = position.HOOKS["score"][layer.name](layer)
            logits = logits + term
            if isinstance(term, tape.Node):  # not where an option leaves this layer without
                joined = (s * 0 if joined is None else joined) + term
    for layer, factor_of in acting(layers, "factor"):
        factor = factor_of(layer)
        logits, joined = logits * factor, None if joined is None else joined * factor
    for layer in layers:
        if layer.alive is not None:
            seen = seen & layer.alive
    for layer in layers:
        layer.seen, layer.logits = seen, logits
    if joined is not None:
        # The weights if only the position terms decided, by the same rule.
        record("position_weights", weights_and_sum(layers, joined, v, seen, "position_weights")[0])
    weights, output = weights_and_sum(layers, logits, v, seen, "weights")
    record("weights", weights)
    for layer in layers:
        layer.weights = weights
    for hook in ("rest", "finish"):
        for layer, change in acting(layers, hook):
            output = change(layer, output)
    return output


def weights_and_sum(layers, logits, v, seen, name):
    """The weights [B,H,T,T] of these logits, and the sum of values; `name`: of such weights in the dump."""
    for layer, rule in acting(layers, "weights"):
        weights = rule(layer, logits, layer.dumped.get(name))
        return weights, weights @ v
    for layer, rule in acting(layers, "shares"):
        return tape.quotient_product(*rule(layer, logits, layer.dumped.get(name)), v)
    return tape.softmax_product(logits, seen, v)


def attention(config, parameters, index, x, dumped, record):
    name, key_heads = f"model.blocks.{index}.attention", config.kv_heads or config.heads

    def projected(part, heads):
        y, norm = linear(parameters, f"{name}.{part}", x), f"{name}.{part}_norm"
        if config.qk_norm == "full" and part != "value":
            y = normalise(config, parameters, norm, y)
        y = position.split_heads(y, heads)
        return normalise(config, parameters, norm, y) if config.qk_norm == "head" and part != "value" else y

    q, k, v = projected("query", config.heads), projected("key", key_heads), projected("value", key_heads)
    k, v = (position.repeat_kv(y, config.heads, 1) for y in (k, v))
    groups, outputs, recorded = config.groups[index], [], {}
    for group in groups:
        heads = slice(group.first, group.end)
        own_dumped = {key: array[:, heads] for key, array in dumped.items()}
        layers = [position.Layer(index, encoding, config.options[encoding], parameters, own_dumped,
                                 owner_of(encoding, group, groups)) for encoding in group.names]

        def record_here(key, node):
            recorded.setdefault(key, np.zeros(q.shape[:3] + (x.shape[1],), x.value.dtype))[:, heads] = node.value

        output = attend(layers, q[:, heads], k[:, heads], v[:, heads], x, record_here, group.sight)
        outputs.append(output.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1))
    for key, array in recorded.items():  # heads without gates have 0
        record(key, tape.Node(array))
    return linear(parameters, f"{name}.output", tape.concatenate(outputs))


def owner_of(encoding, group, groups):
    """What stands for an encoding in its parameters' names: its heads join where several groups of a layer have it."""
    if sum(encoding in other.names for other in groups) == 1:
        return encoding
    last = group.end - 1
    return f"{encoding}@{group.first}" + (f"-{last}" if last > group.first else "")


def transformer(config, parameters, tokens, dumped, record):
    """Logits [B,T,V] of tokens [B,T]. `dumped[N]`: tensors of block N in the dump; `record(name, node)` takes ours."""
    embedding = parameters["model.embedding.weight"]
    x = tape.rows(embedding, tokens)
    for encoding in run_config.names_in(config.groups):
        if encoding in position.HOOKS["embed"]:
            layer = position.Layer(None, encoding, config.options[encoding], parameters)
            x = position.HOOKS["embed"][encoding](layer, x)

    for n in range(config.layers):
        name = f"model.blocks.{n}"

        def record_here(key, node):
            record(f"blocks.{n}.{key}", node)

        def attention_part(y):
            return attention(config, parameters, n, y, dumped.get(n, {}), record_here)

        def mlp_part(y):
            return mlp(config, parameters, f"{name}.mlp", y)

        start = x
        for part, norm in ((attention_part, "attention_norm"), (mlp_part, "mlp_norm")):
            if config.norm_place == "pre":
                seen = start if config.residual == "parallel" else x
                x = x + part(normalise(config, parameters, f"{name}.{norm}", seen))
            else:
                x = normalise(config, parameters, f"{name}.{norm}", x + part(x))
    if config.final_norm:
        x = normalise(config, parameters, "model.norm", x)
    return x @ embedding.swap_last() if config.tied else linear(parameters, "model.head", x)


def loss(logits, targets, mask, count):
    """Cross entropy summed over the masked positions, divided by `count`."""
    picked = tape.pick(tape.log_softmax(logits), np.where(mask, targets, 0)[..., None].astype(np.int64))
    return (picked * mask[..., None].astype(logits.value.dtype)).sum() * (-1 / count)


class Parameters(dict):
    """Leaves of the tape by name; remembers which were read."""

    def __init__(self, arrays, dtype):
        super().__init__({name: tape.Node(array.astype(dtype)) for name, array in arrays.items()})
        self.used = set()

    def __getitem__(self, name):
        self.used.add(name)
        return super().__getitem__(name)


def run(config, arrays, batch, dtype, gradients=True):
    """Everything a dump holds, computed in `dtype`, one sequence at a time (the loss is a sum over sequences).

    `arrays` are the parameters, `batch` the dump's tensors (tokens, targets, loss_mask and, for gradients at kinks,
    blocks.N.positions, .gates, .weights and .position_weights). Returns ({tensor name: array}, names of the
    parameters that were read, and for the gradients of biases {tensor name: the sum of the sizes of its terms}).
    """
    parameters = Parameters(arrays, dtype)
    parts, total = {}, 0.0
    count = max(int(batch["loss_mask"].sum()), 1)
    for n in range(len(batch["tokens"])):
        one = slice(n, n + 1)
        dumped = {}
        for layer in range(config.layers):
            own = {key: f"blocks.{layer}.{key}" for key in ("positions", "gates", "weights", "position_weights")}
            dumped[layer] = {key: batch[name][one] for key, name in own.items() if name in batch}

        def record(name, node):
            parts.setdefault(name, []).append(node.value)

        logits = transformer(config, parameters, batch["tokens"][one], dumped, record)
        record("logits", logits)
        value = loss(logits, batch["targets"][one], batch["loss_mask"][one], count)
        if gradients:
            tape.backward(value)
        total = total + value.value
    result = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    result["loss"] = np.asarray(total, dtype)
    for name in parameters.used if gradients else ():
        leaf = parameters[name]
        result[f"gradients.{name}"] = np.zeros_like(leaf.value) if leaf.gradient is None else leaf.gradient
    terms = {f"gradients.{name}": np.max(parameters[name].terms) for name in parameters.used if name.endswith(".bias")}
    return result, parameters.used, terms
