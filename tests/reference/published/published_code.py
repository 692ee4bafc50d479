"""Published code as functions: taken out of files by name, computing in f64 on the CPU, with given projections.

A checkout is at FOLDER/<owner>/<repository>. Nothing is imported from it: only the wanted classes and functions, and
the names they use, are compiled, so its package and its dependencies need not be installed.
"""

import __future__
import ast
import contextlib
import dataclasses
import functools
import json
import math
import pathlib
import sys
import types
import typing
from unittest import mock

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import nn

MODULE = types.ModuleType("published")  # dataclasses look their module up
sys.modules["published"] = MODULE
ALWAYS = {"torch": torch, "nn": nn, "F": F, "math": math, "rearrange": rearrange, "repeat": repeat,
          "partial": functools.partial, "wraps": functools.wraps, "dataclass": dataclasses.dataclass,
          "field": dataclasses.field, "Tensor": torch.Tensor, "Module": nn.Module, "Parameter": nn.Parameter,
          "einsum": torch.einsum, "cat": torch.cat, "stack": torch.stack, "arange": torch.arange,
          "is_tensor": torch.is_tensor, "Optional": typing.Optional, "Union": typing.Union, "Callable": typing.Callable,
          "t": typing, "__name__": "published"}


def text_of(path):
    if path.suffix != ".ipynb":
        return path.read_text(encoding="utf-8")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return "\n".join(source for source in sources if not source.lstrip().startswith(("!", "%")))


def name_of(node):
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        return node.name
    targets = {ast.Assign: lambda: node.targets[0], ast.AnnAssign: lambda: node.target}.get(type(node), lambda: None)()
    return getattr(targets, "id", None)


class Code:
    """Definitions of one file, as attributes."""

    def __init__(self, folder, path, names, **given):
        file = pathlib.Path(folder, path)
        nodes = [node for node in ast.parse(text_of(file)).body if name_of(node) in names]
        missing = set(names) - {name_of(node) for node in nodes}
        if missing:
            raise ValueError(f"{file} has no {', '.join(sorted(missing))}")
        space = {**ALWAYS, **given}
        flags = __future__.annotations.compiler_flag  # annotations name types that are not there
        exec(compile(ast.Module(nodes, []), str(file), "exec", flags=flags, dont_inherit=True), space)
        self.space = space
        self.folder = folder

    def __getattr__(self, name):
        return self.space[name]

    def replace(self, **given):
        """What the definitions find under these names from now on."""
        self.space.update(given)
        return self


@contextlib.contextmanager
def in_doubles():
    """Casts to f32 are casts to f64, and tensors for a GPU are on the CPU."""
    make = torch.tensor

    def on_cpu(*values, device=None, **kind):
        return make(*values, **kind)

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    doubles = torch.float64
    with mock.patch.multiple(torch, float=doubles, float32=doubles, tensor=on_cpu), \
            mock.patch.object(torch.Tensor, "float", torch.Tensor.double), \
            mock.patch.object(torch.cuda, "current_device", lambda: "cpu"):
        try:
            yield
        finally:
            torch.set_default_dtype(before)


class Given(nn.Module):
    """In the place of a projection: gives this tensor, whatever goes in."""

    def __init__(self, tensor):
        super().__init__()
        self.tensor = tensor

    def forward(self, *_):
        return self.tensor


def with_parameters(module, **parameters):
    """The module with these in the place of its parameters and modules; a double underscore stands for a dot."""
    for path, value in parameters.items():
        *parents, name = path.split("__")
        owner = functools.reduce(getattr, parents, module)
        for of_owner in (owner._parameters, owner._buffers, owner._modules):
            of_owner.pop(name, None)
        setattr(owner, name, value)
    return module


def merged(x):
    """[B, H, T, d] -> [B, T, H d], as projections give them."""
    return rearrange(x, "b h t d -> b t (h d)")


def by_token(x):
    return rearrange(x, "b h t d -> b t h d")


def by_head(x):
    return rearrange(x, "b t h d -> b h t d")


def split(x, heads):
    return rearrange(x, "b t (h d) -> b h t d", h=heads)


def causal_mask(length):
    """[T, T], -inf where a key is later."""
    return torch.full((length, length), -math.inf).triu(1)


def attend(logits, v):
    """Softmax attention, causal, for a source that gives only logits."""
    return torch.softmax(logits + causal_mask(v.size(2)), dim=-1) @ v


def scores(q, k):
    return q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))


# Replacements of GPU kernels that have no form for a CPU.


class Convolution(nn.Conv1d):
    """Causal, every channel by itself; [B, T, channels], and a state that nobody wants."""

    def __init__(self, hidden_size, kernel_size, bias, activation, **_):
        super().__init__(hidden_size, hidden_size, kernel_size, padding=kernel_size - 1, groups=hidden_size, bias=bias)
        self.activation = activation

    def forward(self, x, **_):
        y = super().forward(x.transpose(1, 2))[..., :x.size(1)].transpose(1, 2)
        return (F.silu(y) if self.activation == "silu" else y), None


def of_length_one(x, **_):
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def summed_tokens(x, scale, **_):
    return x.cumsum(1) * scale


def shifted_tokens(x, of_previous, of_own):
    """[B, T, H, d] by shares [B, T, H]."""
    previous = F.pad(x, (0, 0, 0, 0, 1, 0))[:, :-1]
    return previous * of_previous[..., None] + x * of_own[..., None]
