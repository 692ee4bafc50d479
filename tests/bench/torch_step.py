#!/usr/bin/env python3
"""The peer of `tally bench step` and `tally bench attention`: the same model in PyTorch.

    torch_step.py --pe cope                                      # a training step: 4 layers, width 256, T 512, batch 16
    torch_step.py --pe cope --compile                            # the same through torch.compile
    torch_step.py --pe alibi --fused-bias                        # the bias goes into PyTorch's fused attention
    torch_step.py --pe cope --attention --length 4096 --batch 1  # one layer's attention alone, forward and backward

none, absolute and rope always use PyTorch's fused scaled_dot_product_attention. The other encodings are written with
[B, H, T, T] tensors, as their papers' listings are. --fused-bias hands what can be written as a bias on the logits
(alibi, relative, fox) to the fused attention instead. What does not change from step to step (distances, masks,
angles) is computed before the first one.

Prints one JSON object: median, least and largest seconds of a step (forward, loss over all tokens, backward, AdamW) or
of attention's two directions, and the largest resident memory of the process, at its start (PyTorch itself) and at its
end. README.md says how to compare.

Needs PyTorch 2, which nothing else in this project needs; in an environment of its own:

    python3 -m venv ~/torch-venv && ~/torch-venv/bin/pip install torch
    ~/torch-venv/bin/python tests/bench/torch_step.py

--compile also needs a C++ compiler (g++) and Python's headers (python3-dev).
"""
import argparse
import json
import math
import resource
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    sys.exit("torch_step.py: PyTorch is missing; 'torch_step.py' begins with how to install it")


class Plain(nn.Module):
    """Causal attention of q, k, v [B, H, T, d]; x [B, T, D] is what they were projected from."""

    def __init__(self, args):
        super().__init__()
        self.heads, self.head_width = args.heads, args.width // args.heads
        self.scale = 1 / math.sqrt(self.head_width)

    def forward(self, q, k, v, x):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def logits(self, q, k):
        return q @ k.transpose(-1, -2) * self.scale


def distances(length):
    """[T, T]: i - j, 0 for keys in the future."""
    place = torch.arange(length)
    return (place[:, None] - place[None, :]).clamp(min=0)


def upper_triangle(length):
    return torch.ones(length, length, dtype=torch.bool).triu(1)


class Rope(Plain):
    def __init__(self, args):
        super().__init__(args)
        frequency = 10000.0 ** (-torch.arange(0, self.head_width, 2) / self.head_width)
        angle = torch.outer(torch.arange(args.length).float(), frequency)
        self.register_buffer("cosine", angle.cos())
        self.register_buffer("sine", angle.sin())

    def forward(self, q, k, v, x):
        return super().forward(self.rotated(q), self.rotated(k), v, x)

    def rotated(self, x):
        a, b = x.chunk(2, -1)
        return torch.cat([a * self.cosine - b * self.sine, a * self.sine + b * self.cosine], -1)


class Biased(Plain):
    """Logits are the scores and a bias that does not depend on them."""

    def __init__(self, args):
        super().__init__(args)
        self.fused_bias = args.fused_bias
        self.register_buffer("future", upper_triangle(args.length))

    def bias(self, q, x):
        raise NotImplementedError

    def forward(self, q, k, v, x):
        if self.fused_bias:
            bias = self.bias(q, x).masked_fill(self.future, -math.inf)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        logits = self.logits(q, k) + self.bias(q, x)
        return torch.softmax(logits.masked_fill(self.future, -math.inf), -1) @ v


class Alibi(Biased):
    def __init__(self, args):
        super().__init__(args)
        slopes = 2.0 ** (-8.0 * torch.arange(1, self.heads + 1) / self.heads)  # heads: a power of two
        self.register_buffer("penalty", -slopes[None, :, None, None] * distances(args.length))

    def bias(self, q, x):
        return self.penalty


class Relative(Biased):
    def __init__(self, args):
        super().__init__(args)
        self.table = nn.Parameter(torch.randn(args.length, self.head_width) / math.sqrt(self.head_width))
        self.register_buffer("distance", distances(args.length))

    def bias(self, q, x):
        z = q @ self.table.T * self.scale
        return z.gather(-1, self.distance.expand(*q.shape[:2], -1, -1))


class Fox(Biased):
    def __init__(self, args):
        super().__init__(args)
        self.forget = nn.Linear(args.width, self.heads)

    def bias(self, q, x):
        kept = F.logsigmoid(self.forget(x)).cumsum(1).transpose(1, 2)
        return kept[..., :, None] - kept[..., None, :]


class StickBreaking(Plain):
    """A_ij = exp(l_ij - sum of softplus(l_ik) over k = j..i-1) for j < i."""

    def __init__(self, args):
        super().__init__(args)
        self.register_buffer("not_past", distances(args.length) == 0)

    def forward(self, q, k, v, x):
        logits = self.logits(q, k)
        broken = F.softplus(logits).masked_fill(self.not_past, 0)
        from_here_on = broken.flip(-1).cumsum(-1).flip(-1)
        return (logits - from_here_on).exp().masked_fill(self.not_past, 0) @ v


class Cope(Plain):
    """As in the paper's listing: gates, their sum from the right, two look-ups."""

    def __init__(self, args):
        super().__init__(args)
        self.p_max = args.p_max
        self.register_buffer("future", upper_triangle(args.length))
        self.table = nn.Parameter(torch.zeros(args.p_max + 1, self.head_width))

    def forward(self, q, k, v, x):
        logits = self.logits(q, k).masked_fill(self.future, -math.inf)
        gates = torch.sigmoid(logits)
        position = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=self.p_max)
        low, high = position.floor(), position.ceil()
        z = q @ self.table.T
        weight = position - low
        logits = logits + z.gather(-1, low.long()) * (1 - weight) + z.gather(-1, high.long()) * weight
        return torch.softmax(logits, -1) @ v


ENCODINGS = {"none": Plain, "absolute": Plain, "rope": Rope, "alibi": Alibi, "relative": Relative, "fox": Fox,
             "stick-breaking": StickBreaking, "cope": Cope}
WITH_BIAS = [name for name, kind in ENCODINGS.items() if issubclass(kind, Biased)]


class Attention(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.heads = args.heads
        self.qkv = nn.Linear(args.width, 3 * args.width)
        self.output = nn.Linear(args.width, args.width)
        self.encoding = ENCODINGS[args.pe](args)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return self.output(self.encoding(q, k, v, x).transpose(1, 2).reshape(batch, length, width))


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


def step_of(args):
    """A function that does one training step; its parts' times are one."""
    model = Model(args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    run = torch.compile(model) if args.compile else model
    data = torch.randint(args.vocab, (args.batch, args.length + 1))

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(run(data[:, :-1]).flatten(0, 1), data[:, 1:].flatten()).backward()
        optimizer.step()
        return ()
    return step


def attention_of(args):
    """A function that does one layer's attention and its derivative; returns when the first of them was done."""
    encoding = ENCODINGS[args.pe](args)
    run = torch.compile(encoding) if args.compile else encoding
    shape = (args.batch, args.heads, args.length, args.width // args.heads)
    q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))
    x, d_y = torch.randn(args.batch, args.length, args.width), torch.ones(shape)

    def attention():
        y = run(q, k, v, x)
        between = time.perf_counter()
        y.backward(d_y)
        for leaf in (q, k, v, *encoding.parameters()):
            leaf.grad = None
        return (between,)
    return attention


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pe", default="cope", choices=ENCODINGS)
    parser.add_argument("--attention", action="store_true", help="one layer's attention alone")
    parser.add_argument("--compile", action="store_true", help="through torch.compile")
    parser.add_argument("--fused-bias", action="store_true", help=f"for {', '.join(WITH_BIAS)}")
    for name, value in {"layers": 4, "width": 256, "heads": 4, "length": 512, "batch": 16, "vocab": 16, "p-max": 64,
                        "steps": 5, "warmup": 2, "threads": 0}.items():
        parser.add_argument("--" + name, type=int, default=value, help=f"{value}")
    args = parser.parse_args()
    if args.fused_bias and args.pe not in WITH_BIAS:
        parser.error(f"--fused-bias is for {', '.join(WITH_BIAS)}")
    return args


def largest_memory():
    """The largest resident memory of the process up to now, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main():
    args = arguments()
    before = largest_memory()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    work = attention_of(args) if args.attention else step_of(args)
    laps = []
    for _ in range(args.warmup + args.steps):
        begin = time.perf_counter()
        between = work()
        laps.append([*between, time.perf_counter()])
        laps[-1] = [end - start for start, end in zip([begin, *laps[-1]], laps[-1])]
    laps = laps[args.warmup:]
    whole = sorted(sum(lap) for lap in laps)
    median = statistics.median(whole)
    name = "both" if args.attention else "step"
    result = {"peer": f"torch {torch.__version__} {'compile' if args.compile else 'eager'}",
              "work": "attention" if args.attention else "step", **vars(args), "threads": torch.get_num_threads(),
              name + "_s": median, "min_s": whole[0], "max_s": whole[-1]}
    if args.attention:
        result["forward_s"], result["backward_s"] = (statistics.median(times) for times in zip(*laps))
    result["tokens_per_s"] = round(args.batch * args.length / median)
    result["start_rss_mib"], result["peak_rss_mib"] = before, largest_memory()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
