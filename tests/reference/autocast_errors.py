#!/usr/bin/env python3
"""Writes tests/reference/autocast.json: the errors of gradients in PyTorch's autocast to bf16, relative to f64.

For each encoding of tests/bench/torch_encodings.py, two that jump with their scores, one that masks by sums of them and one
that turns by them, the same small model as in tests/nn/bf16_test.cpp (2 layers, width 64, 4 heads, 64 tokens, 2 sequences; parameters off their start by 0.1 of a normal number): |g - g64| / |g64| over all
parameters together, the median over nine draws. Needs PyTorch (tests/bench/torch_step.py says how to install it).
"""
import copy
import json
import pathlib
import statistics
import sys
from types import SimpleNamespace

import torch
import torch.nn.functional as F

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "bench"))

from torch_encodings import ENCODINGS, Plain, upper_triangle  # noqa: E402
import torch_step  # noqa: E402

SIZES = {"layers": 2, "width": 64, "heads": 4, "vocab": 7, "length": 64, "batch": 2, "p_max": 64, "hidden": 64,
         "device": "cpu", "fused_bias": False, "fused": False}


class Softpick(Plain):
    """A rectified softmax, whose weights jump in their derivative."""

    def forward(self, q, k, v, x):
        seen = ~upper_triangle(q.shape[2])
        size = torch.expm1(self.logits(q, k)) * seen
        return F.relu(size) / (size.abs().sum(-1, keepdim=True) + 1e-8) @ v


class Tra(Plain):
    """Keys with a score below 0 vanish, and distance counts the others."""

    def __init__(self, args):
        super().__init__(args)
        self.threshold = torch.nn.Linear(args.width, args.heads)

    def forward(self, q, k, v, x):
        score, length = self.logits(q, k), q.shape[2]
        there = (score > 0) & ~upper_triangle(length)
        count = there.to(score.dtype).flip(-1).cumsum(-1).flip(-1)  # those from the key on
        decay = F.logsigmoid(self.threshold(x)).transpose(1, 2)[..., None]
        logits = (score + decay * count).masked_fill(~there, -torch.inf)
        return torch.softmax(logits.masked_fill(~there.any(-1, keepdim=True), 0), -1) * there.any(-1, keepdim=True) @ v


class ContextualRotary(Plain):
    """Planes turned by the sum of gates from the key to the query."""

    def __init__(self, args):
        super().__init__(args)
        self.half = args.width // args.heads // 2
        self.register_buffer("angle", 10000.0 ** (-torch.arange(self.half) / self.half), persistent=False)

    def forward(self, q, k, v, x):
        hidden = upper_triangle(q.shape[2])
        gates = torch.sigmoid(self.logits(q, k)).masked_fill(hidden, 0)
        turn = gates.flip(-1).cumsum(-1).flip(-1)[..., None] * self.angle.to(q.dtype)  # [B, H, T, T, d/2]
        a, b = q[..., None, :self.half], q[..., None, self.half:]
        other_a, other_b = k[:, :, None, :, :self.half], k[:, :, None, :, self.half:]
        along, across = a * other_a + b * other_b, a * other_b - b * other_a
        scores = (along * turn.cos() + across * turn.sin()).sum(-1) / (2 * self.half) ** 0.5
        return torch.softmax(scores.masked_fill(hidden, -torch.inf), -1) @ v


class Selective(Plain):
    """What the first head's scores above 0 mark is masked for all later queries, added up over them."""

    def forward(self, q, k, v, x):
        scores, hidden = self.logits(q, k), upper_triangle(q.shape[2])
        marks = F.relu(scores[:, :1]).masked_fill(hidden, 0)
        marks = marks * (1 - torch.eye(q.shape[2], dtype=marks.dtype))  # nobody masks itself
        marks = torch.cat([torch.zeros_like(marks[..., :1]), marks[..., 1:]], -1)  # and no query masks token 0
        masked = marks.cumsum(-2) - marks  # by the tokens before the query
        return torch.softmax((scores - masked).masked_fill(hidden, -torch.inf), -1) @ v


PEERS = ENCODINGS | {"softpick": Softpick, "tra": Tra, "selective": Selective, "contextual-rotary": ContextualRotary}
torch_step.ENCODINGS = PEERS


def gradients(model, tokens, enabled):
    with torch.autocast("cpu", torch.bfloat16, enabled=enabled, cache_enabled=False):
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    return torch.cat([p.grad.double().flatten() for p in model.parameters() if p.grad is not None])


def error(name, seed):
    torch.manual_seed(seed)
    model = torch_step.Model(SimpleNamespace(**SIZES, pe=name))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    exact = copy.deepcopy(model).double()
    tokens = torch.randint(SIZES["vocab"], (SIZES["batch"], SIZES["length"] + 1))
    expected = gradients(exact, tokens, False)
    return ((gradients(model, tokens, True) - expected).norm() / expected.norm()).item()


if __name__ == "__main__":
    found = {}
    for encoding in PEERS:
        if "hard" in encoding:
            continue  # whose gradients follow a rule of their own
        found[encoding] = float(f"{statistics.median(error(encoding, seed) for seed in range(9)):.3g}")
        print(encoding, found[encoding], flush=True)
    (FOLDER / "autocast.json").write_text(json.dumps({"torch": torch.__version__, "errors": found}, indent=1) + "\n")
