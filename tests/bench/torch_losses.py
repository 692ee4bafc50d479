#!/usr/bin/env python3
"""Recomputes the losses of trained language models in PyTorch, from their checkpoints and the prepared text.

    torch_losses.py RUN... [--tally build/release/tally] [--windows 40] [--split validation]

For each run (task text, the transformer of the quick presets, an encoding of torch_encodings.py) the newest checkpoint
is read, the split's first windows, side by side, are fed to the model of torch_step.py in f64, and the mean loss is
compared with that of `tally eval RUN --count WINDOWS`. Prints a line for each; exit code 0: all within 1e-5 nats a token,
1: not. Needs PyTorch 2 (torch_step.py begins with how to install it) and numpy.
"""
import argparse
import json
import pathlib
import subprocess
import sys
from types import SimpleNamespace

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError as error:
    sys.exit(f"torch_losses.py: {error}; 'torch_step.py' begins with how to install PyTorch")

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "outside"))

import tensor_file  # noqa: E402
from torch_encodings import EMBEDDINGS, ENCODINGS  # noqa: E402
from torch_step import Model  # noqa: E402

TOLERANCE = 1e-5  # nats a token: the promised precision of language models

# Options that change no parameter's shape: others are found by the weights that are missing or too many.
DEFAULTS = {"position-scale": "none", "gates": "keys", "layout": "half", "base": 10000.0, "rotary-dims": 0,
            "stretch": "none", "frequencies": "all", "learned": False, "sign": "plus", "score-scale": "sqrt-d",
            "remainder": "drop", "attend-current": False}


def refuse(run, why):
    sys.exit(f"torch_losses.py: {run}: {why}")


def arguments_of(run, config):
    """Those of torch_step.py. What PyTorch's model has not is refused by name."""
    model, encoding = config["model"], config["pe"]
    wanted = {"kind": "transformer", "norm": "layer", "norm-place": "pre", "residual": "sequential", "activation": "gelu",
              "bias": True, "tied": False, "final-norm": True, "kv-heads": 0, "head-width": 0, "hidden": 0, "qk-norm": "none"}
    for name, value in wanted.items():
        if model.get(name, value) != value:
            refuse(run, f"model.{name} is {model[name]}, and torch_step.py has {value}")
    if encoding not in ENCODINGS:
        refuse(run, f"torch_encodings.py has no {encoding}")
    if config["task"]["name"] != "text" or config["task"]["stride"] != 0 or config["task"]["documents"] != "joined":
        refuse(run, "not a text in windows side by side, of joined documents")
    options = config["pe-options"].get(encoding, {})
    for name, value in DEFAULTS.items():
        if options.get(name, value) != value:
            refuse(run, f"pe.{encoding}.{name} is {options[name]}, and torch_encodings.py has {value}")
    return SimpleNamespace(pe=encoding, width=model["width"], heads=model["heads"], layers=model["layers"],
                           length=config["task"]["length"], p_max=options.get("p-max", 64), hidden=options.get("hidden", 32),
                           fused_bias=False)


def weights_of(tensors, encoding):
    """The checkpoint's parameters by the names of torch_step.py; q, k, v stand one below the other there."""
    own = {name.removeprefix("model."): torch.from_numpy(array.copy()) for name, array in tensors.items()
           if name.startswith("model.")}
    weights = {}
    for name, value in own.items():
        name = name.replace(".mlp.", ".")
        if ".attention.query." in name and ".position." not in name:
            parts = [own[name.replace(".query.", f".{part}.")] for part in ("query", "key", "value")]
            weights[name.replace(".query.", ".qkv.")] = torch.cat(parts)
        elif ".attention.key." in name or ".attention.value." in name:
            continue
        elif name.startswith(f"position.{encoding}."):
            weights[name.replace(f"position.{encoding}.", "positions.")] = value
        elif ".position." in name:
            weights[name.replace(f".position.{encoding}.", ".attention.encoding.")] = value
        else:
            weights[name] = value
    return weights


def windows_of(run, data, split, length, count):
    """[count, length + 1] tokens: each window's targets begin one behind it."""
    tokens = np.fromfile(data / f"{split}.bin", dtype="<u2").astype(np.int64)
    if len(tokens) <= count * length:
        refuse(run, f"{split} has {len(tokens)} tokens, fewer than {count} windows of {length}")
    return torch.from_numpy(np.stack([tokens[w * length:(w + 1) * length + 1] for w in range(count)]))


def loss_of(run, given):
    config = json.loads((run / "config.json").read_text())
    args = arguments_of(run, config)
    newest = max((run / "checkpoints").glob("step-*.safetensors"), default=None)
    if newest is None:
        refuse(run, "has no checkpoint")
    tensors, _ = tensor_file.read(newest)
    args.vocab = tensors["model.embedding.weight"].shape[0]
    model = Model(args)
    # Masks and angles, which are computed once, are not weights and not in checkpoints.
    buffers = dict(model.named_buffers())
    weights = weights_of(tensors, args.pe)
    missing = set(model.state_dict()) - set(buffers) ^ set(weights)
    if missing:
        refuse(run, f"weights that only one of the two has: {', '.join(sorted(missing))}")
    model.load_state_dict(weights, strict=False)
    model.double()
    windows = windows_of(run, pathlib.Path(config["task"]["data"]), given.split, args.length, given.windows)
    with torch.no_grad():
        losses = [F.cross_entropy(model(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten(), reduction="sum").item()
                  for part in windows.split(4)]
    return sum(losses) / (given.windows * args.length), newest.stem


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=pathlib.Path, metavar="RUN")
    parser.add_argument("--tally", default="build/release/tally", help="the program")
    parser.add_argument("--windows", type=int, default=40, help="how many")
    parser.add_argument("--split", default="validation")
    parser.add_argument("--threads", type=int, default=0, help="of PyTorch and of tally; 0: their own choice")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    within = True
    print(f"PyTorch {torch.__version__}, f64; {given.split}, {given.windows} windows; nats a token")
    for run in given.runs:
        theirs, checkpoint = loss_of(run, given)
        answer = subprocess.run([given.tally, "eval", run, "--split", given.split, "--count", str(given.windows), "--json",
                                 "--threads", str(given.threads)], capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            refuse(run, answer.stderr.strip())
        ours = json.loads(answer.stdout.splitlines()[-1])["evaluations"][0]["loss"]
        within &= abs(ours - theirs) <= TOLERANCE
        print(f"{run.name}, {checkpoint}: tally {ours:.7f}, PyTorch {theirs:.7f}, difference {abs(ours - theirs):.1e}",
              flush=True)
    sys.exit(0 if within else 1)


if __name__ == "__main__":
    main()
