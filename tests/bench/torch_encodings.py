"""Twenty of tally's encodings in PyTorch, each the way one writes it there today.

A module of ENCODINGS computes causal attention: from q, k, v [B, H, T, d] and x [B, T, D], which they were projected
from, y [B, H, T, d]. A module of EMBEDDINGS adds positions to token embeddings [B, T, D]. `tally describe NAME`
prints the formulas and defaults; torch_check.py compares all of them with tests/outside. Constants (distances, masks,
angles) are computed when a module is made.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn


class Absolute(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.table = nn.Parameter(0.02 * torch.randn(args.length, args.width))

    def forward(self, x):
        return x + self.table


class Sinusoidal(nn.Module):
    def __init__(self, args):
        super().__init__()
        angle = angles(args.length, args.width)
        self.register_buffer("table", torch.stack([angle.sin(), angle.cos()], -1).flatten(1))

    def forward(self, x):
        return x + self.table


class Plain(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.heads, self.head_width = args.heads, args.width // args.heads
        self.scale = 1 / math.sqrt(self.head_width)

    def forward(self, q, k, v, x):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def logits(self, q, k):
        return q @ k.transpose(-1, -2) * self.scale


def angles(length, width):
    """[T, width/2]: t 10000^(-2m/width)."""
    return torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(0, width, 2) / width)


def distances(length):
    """[T, T]: i - j, 0 for keys in the future."""
    index = torch.arange(length)
    return (index[:, None] - index[None, :]).clamp(min=0)


def upper_triangle(length):
    return torch.ones(length, length, dtype=torch.bool).triu(1)


class Rope(Plain):
    def __init__(self, args):
        super().__init__(args)
        angle = angles(args.length, self.head_width)
        self.register_buffer("cosine", angle.cos())
        self.register_buffer("sine", angle.sin())

    def forward(self, q, k, v, x):
        return super().forward(self.rotated(q), self.rotated(k), v, x)

    def rotated(self, x):
        a, b = x.chunk(2, -1)
        return torch.cat([a * self.cosine - b * self.sine, a * self.sine + b * self.cosine], -1)


class Xpos(Rope):
    def __init__(self, args):
        super().__init__(args)
        zeta = (torch.arange(0, self.head_width, 2) / self.head_width + 0.4) / 1.4
        self.register_buffer("fade", (zeta ** (torch.arange(args.length)[:, None] / 512)).repeat(1, 2))

    def forward(self, q, k, v, x):
        q, k = self.rotated(q) * self.fade, self.rotated(k) / self.fade
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Biased(Plain):
    """Logits are the scores and a bias that does not depend on them."""

    def __init__(self, args):
        super().__init__(args)
        self.fused_bias = args.fused_bias
        self.register_buffer("future", upper_triangle(args.length))

    def bias(self, q, x):
        raise NotImplementedError

    def forward(self, q, k, v, x):
        return self.attend(q, k, v, self.bias(q, x))

    def attend(self, q, k, v, bias):
        if self.fused_bias:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.masked_fill(self.future, -math.inf))
        logits = self.logits(q, k) + bias
        return torch.softmax(logits.masked_fill(self.future, -math.inf), -1) @ v


class Alibi(Biased):
    def __init__(self, args):
        super().__init__(args)
        slopes = 2.0 ** (-8.0 * torch.arange(1, self.heads + 1) / self.heads)  # heads: a power of two
        self.register_buffer("penalty", -slopes[None, :, None, None] * distances(args.length))

    def bias(self, q, x):
        return self.penalty


class T5(Biased):
    """One learned number a head for each of 32 ranges of distance."""

    def __init__(self, args):
        super().__init__(args)
        distance = distances(args.length)
        far = 16 + ((distance.clamp(min=16).double() / 16).log() / math.log(8) * 16).long()
        self.register_buffer("bucket", torch.where(distance < 16, distance, far.clamp(max=31)))
        self.biases = nn.Embedding(32, self.heads)

    def bias(self, q, x):
        return self.biases(self.bucket).permute(2, 0, 1)[None]


class Kerple(Biased):
    """The logarithmic kernel."""

    def __init__(self, args):
        super().__init__(args)
        self.r1, self.r2 = nn.Parameter(2 * torch.rand(self.heads, 1, 1)), nn.Parameter(torch.rand(self.heads, 1, 1))
        self.register_buffer("distance", distances(args.length))

    def bias(self, q, x):
        r1, r2 = self.r1.clamp(min=0.01), self.r2.clamp(min=0.01)
        return (-r1 * torch.log1p(r2 * self.distance))[None]


class Fire(Biased):
    def __init__(self, args):
        super().__init__(args)
        self.c, self.m = nn.Parameter(torch.tensor(0.1)), nn.Parameter(torch.tensor(1.0))
        self.mlp = nn.Sequential(nn.Linear(1, 32), nn.ReLU(), nn.Linear(32, self.heads))
        self.register_buffer("distance", distances(args.length))
        self.register_buffer("index", torch.arange(args.length)[:, None])

    def bias(self, q, x):
        c, threshold = self.c.abs(), (512 * self.m).abs()
        largest = torch.maximum(self.index, threshold)
        share = torch.log(c * self.distance + 1) / (torch.log(c * largest + 1) + 1e-6)
        return self.mlp(share[..., None]).permute(2, 0, 1)[None]


class Relative(Biased):
    def __init__(self, args):
        super().__init__(args)
        self.table = nn.Parameter(torch.randn(args.length, self.head_width) / math.sqrt(self.head_width))
        self.register_buffer("distance", distances(args.length))

    def bias(self, q, x):
        z = q @ self.table.T * self.scale
        return z.gather(-1, self.distance.expand(*q.shape[:2], -1, -1))


class TransformerXl(Biased):
    """As in the authors' code: products with all distances, the largest first, then each row is shifted into place."""

    def __init__(self, args):
        super().__init__(args)
        self.content, self.place = (nn.Parameter(0.02 * torch.randn(self.heads, 1, self.head_width)) for _ in range(2))
        self.map = nn.Linear(args.width, args.width, bias=False)
        angle = angles(args.length, args.width).flip(0)
        self.register_buffer("sinusoids", torch.cat([angle.sin(), angle.cos()], -1))

    def forward(self, q, k, v, x):
        return self.attend(q + self.content, k, v, self.bias(q, x))

    def bias(self, q, x):
        by_distance = self.map(self.sinusoids).view(-1, self.heads, self.head_width).transpose(0, 1)
        z = self.logits(q + self.place, by_distance)
        batch, heads, length, _ = z.shape
        return F.pad(z, (1, 0)).view(batch, heads, length + 1, length)[:, :, 1:]


class Nexus(Biased):
    """Positions of tokens, from gates that are added up from the start of the text."""

    def __init__(self, args):
        super().__init__(args)
        self.p_max = args.p_max
        self.gate = nn.Linear(args.width, self.heads)
        self.query = nn.Linear(self.head_width, self.head_width, bias=False)
        self.table = nn.Parameter(0.02 * torch.randn(args.p_max + 1, self.head_width))

    def bias(self, q, x):
        position = torch.sigmoid(self.gate(x)).cumsum(1).clamp(max=self.p_max).transpose(1, 2)
        low, high = position.floor(), position.ceil()
        between = (position - low)[..., None].to(self.table.dtype)  # autocast leaves types to lerp's caller
        entries = torch.lerp(self.table[low.long()], self.table[high.long()], between)
        return self.logits(self.query(q), entries)


class Fox(Biased):
    def __init__(self, args):
        super().__init__(args)
        self.forget = nn.Linear(args.width, self.heads)

    def bias(self, q, x):
        kept = F.logsigmoid(self.forget(x)).cumsum(1).transpose(1, 2)
        return kept[..., :, None] - kept[..., None, :]


class HeadNorm(nn.Module):
    def __init__(self, heads, head_width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(heads, 1, head_width))

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], eps=1e-6) * self.weight


class FoxPro(Fox):
    """Shifted keys and values, norms of q, k and the output, an output gate."""

    def __init__(self, args):
        super().__init__(args)
        self.key_shift, self.value_shift = (nn.Linear(args.width, self.heads, bias=False) for _ in range(2))
        self.query_norm, self.key_norm, self.output_norm = (HeadNorm(self.heads, self.head_width) for _ in range(3))
        self.output_gate = nn.Linear(args.width, args.width, bias=False)

    def forward(self, q, k, v, x):
        k, v = self.shifted(k, self.key_shift(x)), self.shifted(v, self.value_shift(x))
        y = self.output_norm(super().forward(self.query_norm(q), self.key_norm(k), v, x))
        return y * torch.sigmoid(self.output_gate(x)).unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def shifted(self, x, gate):
        """Moves x [B, H, T, d] towards the token before, as far as the gate [B, T, H] is open."""
        before = F.pad(x, (0, 0, 1, 0))[:, :, :-1]
        return torch.lerp(x, before, torch.sigmoid(gate).transpose(1, 2)[..., None].to(x.dtype))


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


class Hard(Plain):
    """Each query reads the key of its largest logit, the nearest of equal ones; the gradients of the softmax are
    used."""

    def __init__(self, args):
        super().__init__(args)
        self.register_buffer("future", upper_triangle(args.length))

    def forward(self, q, k, v, x):
        logits = self.logits(q, k).masked_fill(self.future, -math.inf)
        nearest = logits.shape[-1] - 1 - logits.flip(-1).argmax(-1, keepdim=True)  # argmax: the first of equal ones
        soft = torch.softmax(logits, -1)
        hard = torch.zeros_like(soft).scatter(-1, nearest, 1.0)
        return (hard + (soft - soft.detach())) @ v


class Contextual(Plain):
    """As in the paper's listing: gates, their sum from the right, and a bias that depends on it."""

    def __init__(self, args):
        super().__init__(args)
        self.register_buffer("future", upper_triangle(args.length))

    def bias(self, q, position):
        raise NotImplementedError

    def forward(self, q, k, v, x):
        logits = self.logits(q, k).masked_fill(self.future, -math.inf)
        gates = torch.sigmoid(logits)
        position = gates.flip(-1).cumsum(-1).flip(-1)
        return torch.softmax(logits + self.bias(q, position), -1) @ v


class Cope(Contextual):
    def __init__(self, args):
        super().__init__(args)
        self.p_max = args.p_max
        self.table = nn.Parameter(torch.zeros(args.p_max + 1, self.head_width))

    def bias(self, q, position):
        position = position.clamp(max=self.p_max)
        low, high = position.floor(), position.ceil()
        z = q @ self.table.T
        weight = position - low
        return z.gather(-1, low.long()) * (1 - weight) + z.gather(-1, high.long()) * weight


class CopeAlibi(Contextual):
    def __init__(self, args):
        super().__init__(args)
        self.register_buffer("slopes", 0.5 ** torch.arange(self.heads)[:, None, None])

    def bias(self, q, position):
        return self.slopes * position


class CopeMlp(Contextual):
    """q.f(p) as (W2^T q).relu(w1 p + b1) + q.b2: the hidden layer of every pair, [B, H, T, T, N], but not its output."""

    def __init__(self, args):
        super().__init__(args)
        self.hidden, self.output = nn.Linear(1, args.hidden), nn.Linear(args.hidden, self.head_width)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def bias(self, q, position):
        hidden = torch.relu(self.hidden(position[..., None]))
        from_query = q @ self.output.weight
        return (hidden @ from_query[..., None]).squeeze(-1) + (q @ self.output.bias)[..., None]


ENCODINGS = {"none": Plain, "absolute": Plain, "sinusoidal": Plain, "rope": Rope, "xpos": Xpos, "alibi": Alibi,
             "t5": T5, "kerple": Kerple, "fire": Fire, "relative": Relative, "transformer-xl": TransformerXl,
             "nexus": Nexus, "fox": Fox, "fox-pro": FoxPro, "stick-breaking": StickBreaking, "hard": Hard,
             "absolute+hard": Hard, "cope": Cope, "cope-alibi": CopeAlibi, "cope-mlp": CopeMlp}
EMBEDDINGS = {"absolute": Absolute, "absolute+hard": Absolute, "sinusoidal": Sinusoidal}
WITH_BIAS = [name for name, kind in ENCODINGS.items() if issubclass(kind, Biased)]
