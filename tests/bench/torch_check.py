#!/usr/bin/env python3
"""Compares the encodings of torch_encodings.py with the formulas in NumPy (tests/outside), in f64.

    torch_check.py               # all of them
    torch_check.py cope fox-pro  # some

Outputs and the gradients of inputs and parameters, with random inputs and parameters. The length reaches all ranges of
T5, distances beyond FIRE's threshold and positions beyond CoPE's table. Encodings with a bias are compared both with and
without --fused-bias. Prints for each the largest difference over the largest magnitude in the tensor. Exit code 0: all
within 1e-12, 1: not. Needs PyTorch 2 (see torch_step.py) and numpy.
"""
import argparse
import pathlib
import sys
from types import SimpleNamespace

try:
    import numpy as np
    import torch

    from torch_encodings import EMBEDDINGS, ENCODINGS, WITH_BIAS
except ImportError as error:
    sys.exit(f"torch_check.py: {error}; 'torch_step.py' begins with how to install PyTorch")

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "outside"))
import config as run_config  # noqa: E402
import model  # noqa: E402
import position_encodings as position  # noqa: E402
import tape  # noqa: E402

TOLERANCE = 1e-12
SIZES = {"batch": 2, "heads": 4, "width": 24, "length": 150, "p_max": 16, "hidden": 5}
RENAMED = {"biases.weight": "biases", "map.weight": "distances", "mlp.0": "hidden", "mlp.2": "output", "_": "-"}


def module_of(kind, fused_bias=False):
    module = kind(SimpleNamespace(**SIZES, fused_bias=fused_bias))
    for name, parameter in module.named_parameters():
        torch.nn.init.normal_(parameter, std=0.3)
        if name == "m":
            torch.nn.init.constant_(parameter, -0.1)  # FIRE's threshold within the length
        if name in ("r1", "r2"):
            parameter.data.abs_().add_(0.01)  # KERPLE's have to be positive
    return module


def layer_of(name, module):
    """The layer of tests/outside with the module's parameters, and {name there: array} made from a tensor of each."""
    options = run_config.ENCODING_DEFAULTS.get(name, {}) | {"p-max": SIZES["p_max"], "hidden": SIZES["hidden"]}
    if name == "cope-alibi":
        options["p-max"] = 0
    heads, width = SIZES["heads"], SIZES["width"]
    sizes = position.Sizes(heads, heads, width // heads, width, SIZES["length"])
    shapes = position.parameter_shapes(name, sizes, options)

    def arrays(tensor_of):
        found = {}
        for own, parameter in module.named_parameters():
            there = own
            for old, new in RENAMED.items():
                there = there.replace(old, new)
            array = tensor_of(parameter).detach().numpy()
            found[there] = (array.T if name == "t5" else array).reshape(shapes[there])
        return found

    leaves = {f"model.position.{name}.{key}": tape.Node(array) for key, array in arrays(lambda p: p).items()}
    if len(leaves) != len(shapes):
        sys.exit(f"torch_check.py: {name}: parameters {', '.join(leaves)}, and {', '.join(shapes)} in tests/outside")
    return position.Layer(0, name, options, leaves), lambda: arrays(lambda p: p.grad)


def compare(name, module, inputs, layer, gradients_of_module, output_of):
    """The largest difference of the output and all gradients. inputs: {name: tensor}, the module's arguments in
    order."""
    leaves = {key: tape.Node(tensor.detach().numpy()) for key, tensor in inputs.items()}
    output, expected = module(*inputs.values()), output_of(leaves)
    d_output = torch.randn(output.shape)
    output.backward(d_output)
    tape.backward((expected * d_output.numpy()).sum())
    pairs = {"output": (output.detach().numpy(), expected.value)}
    pairs |= {key: (tensor.grad, leaves[key].gradient) for key, tensor in inputs.items()}
    pairs |= {key: (array, layer.parameter(key).gradient) for key, array in gradients_of_module().items()}
    worst = 0.0
    for key, (found, wanted) in pairs.items():
        if found is None and wanted is None:
            continue  # x of an encoding that does not read it
        # The gradient of a bias may be zero except for rounding.
        weight = key.replace(".bias", ".weight")
        magnitude = max(np.abs(pairs[one][1]).max() for one in (key, weight) if one in pairs)
        difference = np.abs(np.asarray(found) - wanted).max() / magnitude
        if not difference <= TOLERANCE:
            print(f"{name}: {key} differs by {difference:.1e}")
        worst = max(worst, difference)
    return worst


def check_embedding(name):
    module = module_of(EMBEDDINGS[name])
    layer, gradients = layer_of(name.split("+")[0], module)
    x = torch.randn(SIZES["batch"], SIZES["length"], SIZES["width"], requires_grad=True)
    return compare(name, module, {"x": x}, layer, gradients,
                   lambda leaves: position.HOOKS["embed"][layer.name](layer, leaves["x"]))


def check_attention(name, fused_bias=False):
    module = module_of(ENCODINGS[name], fused_bias)
    layer, gradients = layer_of("none" if name in ("absolute", "sinusoidal") else name.split("+")[-1], module)
    shape = (SIZES["batch"], SIZES["heads"], SIZES["length"], SIZES["width"] // SIZES["heads"])
    inputs = {key: torch.randn(shape, requires_grad=True) for key in "qkv"}
    inputs["x"] = torch.randn(SIZES["batch"], SIZES["length"], SIZES["width"], requires_grad=True)
    return compare(name, module, inputs, layer, gradients,
                   lambda leaves: model.attend([layer], *leaves.values(), lambda key, node: None))


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
