#!/usr/bin/env python3
"""The peer of `tally bench step`: one training step of the same transformer in PyTorch.

none, absolute and rope use PyTorch's fused scaled_dot_product_attention. cope is written the way the paper's listing
does it: gates, reversed cumulative sum, two gathers, all of size [B*H, T, T]. Prints one JSON object with the median,
least and largest time of a step (forward, loss over all tokens, backward, AdamW) and the peak resident memory.

    torch_step.py --pe cope                 # 4 layers, width 256, 4 heads, length 512, batch 16

Needs PyTorch 2 (pip install torch), which nothing else in this project needs.
"""
import argparse
import json
import math
import resource
import time

import torch
import torch.nn.functional as F
from torch import nn


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pe", default="cope", choices=["none", "absolute", "rope", "cope"])
    for name, value in {"layers": 4, "width": 256, "heads": 4, "length": 512, "batch": 16, "vocab": 16, "p-max": 64,
                        "steps": 5, "warmup": 2, "threads": 0}.items():
        parser.add_argument("--" + name, type=int, default=value)
    return parser.parse_args()


class Attention(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.args = args
        self.head_width = args.width // args.heads
        self.qkv = nn.Linear(args.width, 3 * args.width)
        self.output = nn.Linear(args.width, args.width)
        if args.pe == "cope":
            self.table = nn.Parameter(torch.zeros(args.p_max + 1, self.head_width))

    def forward(self, x):
        batch, length, width = x.shape
        split = self.qkv(x).view(batch, length, 3, self.args.heads, self.head_width)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        if self.args.pe == "rope":
            angle = torch.outer(torch.arange(length).float(),
                                10000.0 ** (-torch.arange(0, self.head_width, 2).float() / self.head_width))
            q, k = rotated(q, angle), rotated(k, angle)
        if self.args.pe == "cope":
            out = self.contextual(q, k, v)
        else:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(out.transpose(1, 2).reshape(batch, length, width))

    def contextual(self, q, k, v):
        length = q.shape[2]
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        logits = (q @ k.transpose(-1, -2) / math.sqrt(self.head_width)).masked_fill(hidden, -math.inf)
        gates = torch.sigmoid(logits)
        position = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=self.args.p_max)
        low, high = position.floor(), position.ceil()
        z = q @ self.table.T
        weight = position - low
        logits = logits + z.gather(-1, low.long()) * (1 - weight) + z.gather(-1, high.long()) * weight
        return torch.softmax(logits, -1) @ v


def rotated(x, angle):
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


class Block(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(args.width), nn.LayerNorm(args.width)
        self.attention = Attention(args)
        self.up, self.down = nn.Linear(args.width, 4 * args.width), nn.Linear(4 * args.width, args.width)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x))))


class Model(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.embedding = nn.Embedding(args.vocab, args.width)
        self.positions = nn.Parameter(torch.zeros(args.length, args.width)) if args.pe == "absolute" else None
        self.blocks = nn.Sequential(*(Block(args) for _ in range(args.layers)))
        self.norm, self.head = nn.LayerNorm(args.width), nn.Linear(args.width, args.vocab, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions
        return self.head(self.norm(self.blocks(x)))


def main():
    args = arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model = Model(args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    data = torch.randint(args.vocab, (args.batch, args.length + 1))
    times = []
    for _ in range(args.warmup + args.steps):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(data[:, :-1]).flatten(0, 1), data[:, 1:].flatten()).backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    times = sorted(times[args.warmup:])
    median = times[len(times) // 2]
    print(json.dumps({"peer": "torch " + torch.__version__, **vars(args), "threads": torch.get_num_threads(),
                      "step_s": median, "min_s": times[0], "max_s": times[-1],
                      "tokens_per_s": round(args.batch * args.length / median),
                      "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))


if __name__ == "__main__":
    main()
