#!/usr/bin/env python3
"""The peer of `tally bench step` and `tally bench attention`: the same model in PyTorch.

    torch_step.py --pe cope                                      # a training step: 4 layers, width 256, T 512, batch 16
    torch_step.py --pe cope --compile                            # the same through torch.compile
    torch_step.py --pe alibi --fused-bias                        # the bias goes into PyTorch's fused attention
    torch_step.py --pe cope --attention --length 4096 --batch 1  # only one layer's attention, forward and backward
    torch_step.py --pe rope --device cuda --graph                # on a GPU, the whole step replayed as a CUDA graph

It has the encodings of torch_encodings.py with their default options. none, absolute, sinusoidal, rope and xpos
always use PyTorch's fused scaled_dot_product_attention. The others are written with [B, H, T, T] tensors, as their
papers' listings are; cope-mlp stores N = --hidden numbers for each pair, 4.3 GB a layer in a step of the default
sizes. --fused-bias passes a bias on the logits (alibi, t5, kerple, fire, relative, transformer-xl, nexus, fox,
fox-pro) to the fused attention instead.

Prints one JSON object: median, least and largest seconds of a step (forward, loss over all tokens, backward, AdamW)
or of attention's two directions, and the largest resident memory of the process, at its start (PyTorch itself) and at
its end. With --device cuda times are until the GPU is done, and the largest memory of its tensors is printed too;
--precision lets products round their operands. figures.md says how to compare.

Needs PyTorch 2, which the rest of the project does not need, in a separate environment:

    python3 -m venv ~/torch-venv && ~/torch-venv/bin/pip install torch
    ~/torch-venv/bin/python tests/bench/torch_step.py

--compile also needs a C++ compiler (g++) and Python's headers (python3-dev).
"""
import argparse
import json
import resource
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise  # it exists, but one of its imports is missing
    sys.exit("torch_step.py: PyTorch is missing; 'torch_step.py' begins with how to install it")

from torch_encodings import EMBEDDINGS, ENCODINGS, WITH_BIAS


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
        self.positions = EMBEDDINGS[args.pe](args) if args.pe in EMBEDDINGS else nn.Identity()
        self.blocks = nn.Sequential(*(Block(args) for _ in range(args.layers)))
        self.norm, self.head = nn.LayerNorm(args.width), nn.Linear(args.width, args.vocab, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.positions(self.embedding(tokens)))))


def step_of(args):
    """A function that does one training step; its parts' times are one."""
    model = Model(args).to(args.device)
    # On a GPU all parameters in one kernel, as in tally.
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, capturable=args.graph, fused=args.device == "cuda" or None)
    run = torch.compile(model) if args.compile else model
    data = torch.randint(args.vocab, (args.batch, args.length + 1)).to(args.device)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with precision_of(args):
            loss = F.cross_entropy(run(data[:, :-1]).flatten(0, 1), data[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        finish(args)
        return ()
    return replayed(step, args) if args.graph else step


def precision_of(args):
    """Where the forward pass computes: for bf16 PyTorch's own mixture of precisions."""
    return torch.autocast(args.device if args.device == "cpu" else "cuda", torch.bfloat16,
                          enabled=args.precision == "bf16", cache_enabled=False)


def replayed(step, args):
    """The step as a CUDA graph, captured after some on another stream, as PyTorch wants it."""
    finish_later, args.device = args.device, "captured"  # nothing may be waited for meanwhile
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.reset_peak_memory_stats()  # the graph takes its memory when it is captured
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    args.device = finish_later

    def replay():
        graph.replay()
        finish(args)
        return ()
    return replay


def finish(args):
    """Waits for the device."""
    if args.device == "cuda":
        torch.cuda.synchronize()


def attention_of(args):
    """A function that does one layer's attention and its derivative; returns when the first of them was done."""
    encoding = ENCODINGS[args.pe](args).to(args.device)
    run = torch.compile(encoding) if args.compile else encoding
    shape = (args.batch, args.heads, args.length, args.width // args.heads)
    # bf16 all through, so that no conversion of its operands is timed with the fused attention.
    dtype = torch.bfloat16 if args.precision == "bf16" else torch.float32
    q, k, v = (torch.randn(shape, device=args.device, dtype=dtype, requires_grad=True) for _ in range(3))
    x = torch.randn(args.batch, args.length, args.width, device=args.device)
    d_y = torch.ones(shape, device=args.device)

    def attention():
        with precision_of(args):
            y = run(q, k, v, x)
        finish(args)
        between = time.perf_counter()
        y.backward(d_y.to(y.dtype))
        finish(args)
        for leaf in (q, k, v, *encoding.parameters()):
            leaf.grad = None
        return (between,)
    return attention


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pe", default="cope", choices=ENCODINGS)
    parser.add_argument("--attention", action="store_true", help="one layer's attention alone")
    parser.add_argument("--compile", action="store_true", help="through torch.compile")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--graph", action="store_true", help="replay the step as a CUDA graph; with --device cuda")
    parser.add_argument("--precision", "--products", default="f32", choices=["f32", "tf32", "bf16"],
                        help="f32; tf32, with --device cuda; bf16: autocast, which keeps results in bf16 too")
    parser.add_argument("--fused-bias", action="store_true", help=f"for {', '.join(WITH_BIAS)}")
    for name, value in {"layers": 4, "width": 256, "heads": 4, "length": 512, "batch": 16, "vocab": 16, "p-max": 64,
                        "hidden": 64, "steps": 5, "warmup": 2, "threads": 0}.items():
        parser.add_argument("--" + name, type=int, default=value, help=f"{value}")
    args = parser.parse_args()
    if args.fused_bias and args.pe not in WITH_BIAS:
        parser.error(f"--fused-bias is for {', '.join(WITH_BIAS)}")
    if (args.graph or args.precision == "tf32") and args.device != "cuda":
        parser.error("--graph and --precision tf32 are for --device cuda")
    if args.graph and args.attention:
        parser.error("--graph is for the whole step")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch finds no GPU here")
    return args


def largest_memory():
    """The largest resident memory of the process up to now, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def laps_of(work, args):
    """Seconds of each part of each run."""
    laps = []
    for lap in range(args.warmup + args.steps):
        if args.device == "cuda" and lap == args.warmup and not args.graph:
            torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        between = work()
        laps.append([*between, time.perf_counter()])
        laps[-1] = [end - start for start, end in zip([begin, *laps[-1]], laps[-1])]
    return laps[args.warmup:]


def main():
    args = arguments()
    before = largest_memory()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
    peer = f"torch {torch.__version__} {'compile' if args.compile else 'eager'}"
    laps = laps_of(attention_of(args) if args.attention else step_of(args), args)
    whole = sorted(sum(lap) for lap in laps)
    median = statistics.median(whole)
    name = "both" if args.attention else "step"
    result = {"peer": peer,
              "work": "attention" if args.attention else "step", **vars(args), "threads": torch.get_num_threads(),
              name + "_s": median, "min_s": whole[0], "max_s": whole[-1]}
    if args.attention:
        result["forward_s"], result["backward_s"] = (statistics.median(times) for times in zip(*laps))
    result["tokens_per_s"] = round(args.batch * args.length / median)
    if args.device == "cuda":
        result["gpu"], result["tensor_peak_mib"] = torch.cuda.get_device_name(), torch.cuda.max_memory_allocated() >> 20
    result["start_rss_mib"], result["peak_rss_mib"] = before, largest_memory()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
