"""One file of numbers of published code: its inputs and its results."""

import dataclasses
import math
import pathlib
import typing
import zlib

import numpy as np
import torch

from published_code import Code, in_doubles

CASES = []


@dataclasses.dataclass
class Case:
    file: str
    source: "Source"
    encoding: str
    options: dict
    shapes: typing.Callable      # sizes -> {name: shape} of the parameters, by tally's names
    run: typing.Callable         # (code, leaves, sizes) -> output [B, H, T, d]
    sizes: "Sizes"
    adjust: typing.Callable | None
    without: tuple = ()          # inputs whose gradients the code cannot give apart
    rows: int | None = None      # compared; the last ones may differ
    tolerance: str = "f64"       # or a number, of the largest magnitude
    changed: str = ""            # how the code that ran differs from the published code


@dataclasses.dataclass
class Sizes:
    H: int = 2
    T: int = 9
    d: int = 4
    B: int = 2

    @property
    def D(self):
        return self.H * self.d


@dataclasses.dataclass
class Source:
    """A file of a repository, and the definitions to take from it. `version`: of the text that the numbers were made
    with."""
    repository: str
    path: str
    version: str
    names: list
    given: dict = dataclasses.field(default_factory=dict)
    beside: dict = dataclasses.field(default_factory=dict)  # path -> names of other files that these definitions need

    def read(self, folder):
        checkout, given = pathlib.Path(folder, self.repository), dict(self.given)
        for path, names in self.beside.items():
            code = Code(checkout, path, names, **given)
            given |= {name: code.space[name] for name in names}
        return Code(checkout, self.path, self.names, **given)


def published(file, source, encoding, options=None, shapes=None, sizes=None, adjust=None, **more):
    """Registers the function below as the one that runs the code for this file."""
    def register(run):
        of_parameters = shapes or (lambda s: {})
        CASES.append(Case(file, source, encoding, options or {}, of_parameters, run, sizes or Sizes(), adjust, **more))
        return run
    return register


def draw(case):
    """Inputs and d_output, multiples of 2^-10; the random numbers follow from the file's name."""
    random = np.random.RandomState(zlib.crc32(case.file.encode()))

    def normal(shape):
        return np.round(random.normal(size=shape) * 1024) / 1024

    s = case.sizes
    inputs = {"x": normal((s.B, s.T, s.D))} | {name: normal((s.B, s.H, s.T, s.d)) for name in "qkv"}
    inputs |= {name: normal(shape) for name, shape in case.shapes(s).items()}
    if case.adjust:
        case.adjust(inputs)
    d_output = normal((s.B, s.H, s.T, s.d))
    if case.rows is not None:
        d_output[:, :, case.rows:] = 0
    return inputs, d_output


def make(case, folder):
    """{tensor name: array} of the file."""
    inputs, d_output = draw(case)
    with in_doubles():
        leaves = {name: torch.from_numpy(array).clone().requires_grad_() for name, array in inputs.items()}
        output = case.run(case.source.read(folder), leaves, case.sizes)
        if output.dtype != torch.float64 or tuple(output.shape) != d_output.shape:
            raise ValueError(f"{case.file}: output {output.dtype} {list(output.shape)}")
        gradients = torch.autograd.grad(output, list(leaves.values()), torch.from_numpy(d_output), allow_unused=True)
    tensors = {**inputs, "d_output": d_output, "output": output.detach().numpy()}
    for name, gradient in zip(leaves, gradients):
        if gradient is not None and name not in case.without:
            tensors[f"d_{name}"] = gradient.numpy()
    for name, array in tensors.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{case.file}: {name} is not finite")
    return tensors


def metadata(case):
    source = case.source
    result = {"encoding": case.encoding, "max-length": str(case.sizes.T), "repository": source.repository,
              "path": source.path, "version": source.version, "tolerance": case.tolerance}
    result |= {f"option.{name}": value for name, value in case.options.items()}
    if case.rows is not None:
        result["rows"] = str(case.rows)
    if case.changed:
        result["changed"] = case.changed
    return result


def linear(name, rows, columns):
    """Shapes of a linear layer's parameters."""
    return {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}


def over_root(d):
    return 1 / math.sqrt(d)
