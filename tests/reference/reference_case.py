"""A file of reference values: random inputs, and the results of the formulas of tests/outside."""

import zlib

import numpy as np

import central_differences
import config as run_config
import model
import position_encodings as position
import tape

B, H, T = 2, 2, 7
KINK = 1e-3  # the least distance of a number from a point where a formula has no derivative
CASES = []

SINK = {"deviation": "0.02", "remainder": "drop"}
STICK = {"stick-breaking.remainder": "value", "stick-breaking.attend-current": "false"}


def within(name, options):
    """The options of one encoding of a combination."""
    return {f"{name}.{key}": value for key, value in options.items()}


def cope_options(p_max, prefix="", **changed):
    options = {"p-max": str(p_max), "position-scale": "none", "share": "heads", "gates": "keys"}
    options |= {key.replace("_", "-"): value for key, value in changed.items()}
    return {prefix + key: value for key, value in options.items()}


class Case:
    """One file, `<file>.safetensors`. Encoding and options are written as on the command line. In a combination each option
    has the name of its encoding before it.

    adjust(inputs) may change the drawn inputs and parameters, arrays by name.
    """

    def __init__(self, file, encoding, options=None, max_length=T, d=4, adjust=None, at_kinks=False):
        self.file, self.encoding, self.all_options = file, encoding, options or {}
        self.max_length, self.d, self.D, self.adjust, self.at_kinks = max_length, d, H * d, adjust, at_kinks
        (group,), = run_config.groups_of_layers(encoding, 1, H)
        self.parts, self.sight = group.names, group.sight
        self.is_embed = encoding in position.HOOKS["embed"]

    def prefix(self, name):
        return f"{name}." if len(self.parts) > 1 else ""

    def options(self, name):
        """The options of one encoding, with defaults for options that the file does not name."""
        prefix, flags = self.prefix(name), {"true": True, "false": False}
        named = {key.removeprefix(prefix): flags.get(text, text) for key, text in self.all_options.items()
                 if key.startswith(prefix)}
        return run_config.ENCODING_DEFAULTS.get(name, {}) | named

    def parameter_shapes(self):
        sizes = position.Sizes(H, H, self.d, self.D, self.max_length)
        written = self.encoding.partition("[")[0].split("+")  # the order in which numbers are drawn
        return {self.prefix(name) + key: shape for name in written
                for key, shape in position.parameter_shapes(name, sizes, self.options(name)).items()}

    def layer(self, name, leaves):
        prefix = self.prefix(name)
        own = {f"model.position.{name}.{key.removeprefix(prefix)}": leaf for key, leaf in leaves.items()}
        return position.Layer(0, name, self.options(name), own)

    def metadata(self):
        options = {f"option.{key}": value for key, value in self.all_options.items()}
        return {"encoding": self.encoding, "max-length": str(self.max_length), **options}


def forward(case, leaves):
    """The output, the layers of the encodings, and the arrays that the attention records, by name."""
    layers, recorded = [case.layer(name, leaves) for name in case.parts], {}
    if case.is_embed:
        return position.HOOKS["embed"][case.encoding](layers[0], leaves["x"]), layers, recorded
    output = model.attend(layers, *(leaves[name] for name in "qkvx"),
                          lambda name, node: recorded.update({name: node.value}), case.sight)
    return output, layers, recorded


def draw(case):
    """The inputs and parameters, and d_output. All are multiples of 2^-10, exact in float32 too, and follow from the name
    of the file. They are drawn again until every number keeps its distance from kinks."""
    random = np.random.RandomState(zlib.crc32(case.file.encode()))

    def normal(shape):
        return np.round(random.normal(size=shape) * 1024) / 1024

    while True:
        inputs = {"x": normal((B, T, case.D))}
        if not case.is_embed:
            inputs |= {name: normal((B, H, T, case.d)) for name in "qkv"}
        inputs |= {name: normal(shape) for name, shape in case.parameter_shapes().items()}
        if case.adjust:
            case.adjust(inputs)
        d_output = normal((B, T, case.D) if case.is_embed else (B, H, T, case.d))
        tape.nearest_kink = np.inf
        forward(case, {name: tape.Node(array) for name, array in inputs.items()})
        if case.at_kinks or tape.nearest_kink >= KINK:
            return inputs, d_output


def tensors_of(case):
    """{tensor name: array} of the file."""
    inputs, d_output = draw(case)
    leaves = {name: tape.Node(array) for name, array in inputs.items()}
    output, layers, recorded = forward(case, leaves)
    tape.backward((output * d_output).sum())
    result = {**inputs, "d_output": d_output, "output": output.value,
              **{name: recorded[name] for name in ("gates", "positions", "weights") if name in recorded}}
    if not case.is_embed:
        layer, causal = layers[0], position.distances(T) >= 0
        result |= {"s": np.where(causal, layer.s.value, 0), "logits": np.where(layer.seen, layer.logits.value, 0)}
        if any(name in position.HOOKS[hook] for hook in ("prepare", "rotate") for name in case.parts):
            result |= {"rotated_q": layer.rotated_q.value, "rotated_k": layer.rotated_k.value}
    return result | {f"d_{name}": leaf.gradient for name, leaf in leaves.items() if leaf.gradient is not None}


def wrong_gradients(case, tensors):
    """Names of the gradients that central differences along a random direction contradict."""
    if "hard" in case.parts:
        return []  # straight-through: the softmax's gradient by definition, which tests/outside/selftest.py compares
    random = np.random.RandomState(1)
    inputs = {name: tensors[name].copy() for name in ("x", *"qkv", *case.parameter_shapes()) if name in tensors}
    moved = {name: (array, random.normal(size=array.shape), tensors.get(f"d_{name}", np.zeros(())))
             for name, array in inputs.items()}

    def loss():
        output, *_ = forward(case, {name: tape.Node(array) for name, array in inputs.items()})
        return (output.value * tensors["d_output"]).sum()

    return central_differences.contradicted(loss, moved)
