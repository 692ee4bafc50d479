#!/usr/bin/env python3
"""Why positions in tokens cannot find the last x: a trained head's terms for content and for position.

Usage: last_x.py [--near-gap N] DUMP.safetensors..., from `tally inspect RUN --split S --count N --out
DUMP.safetensors` for a run of the task last-x; the splits of one run together. N is the largest gap that was trained
(preset quick: 7). tasks/last_x.md explains the numbers.

Everything is read at the query `?`. The logarithms of one query's weights are its logits but for a constant. For each
layer and head, with a constant c_s for each sequence, kind x or y, and i tokens from a key to `?`,
  l = c_s + a(kind, i)                                is fitted by least squares; over the trained distances
  content  D = mean of a(x, i) - a(y, i)              is what an x has over a y as far away, and
  step     d = a(x, i) - a(x, i+1)                    what a token costs, as mean and at its smallest.
Where gates count positions (cope) a token has no cost of its own, and only the margins are told. These need no fit: log
A of the last x less the largest log A of a nearer y, and less the largest of an earlier x.
"""
import argparse
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # the folder of tally.py, also when installed
import tally

SMALLEST = 1e-37  # smaller weights are denormal floats with few digits, and are ignored


class Questions:
    """What dumps say of the query `?`, N sequences of T tokens: is_x bool [N, T-1], gap [N], wrong bool [N], and
    weights[layer] [N, H, T-1], positions[layer] likewise or None."""

    def __init__(self, paths):
        dumps = [tally.Tensors(path) for path in paths]
        for dump in dumps:
            if dump.metadata.get("task") != "last-x":
                raise tally.TallyError(f"{dump.path}: is no dump of the task last-x")
        tokens = np.concatenate([dump["tokens"] for dump in dumps])
        self.encoding, colours = dumps[0].metadata["pe"], tokens[0, -1] // 2
        self.is_x = tokens[:, :-1] < colours
        self.gap = np.argmax(self.is_x[:, ::-1], axis=1)
        answers = np.concatenate([dump["logits"][:, -1].argmax(-1) for dump in dumps])
        self.wrong = answers != np.concatenate([dump["targets"][:, -1] for dump in dumps])
        layers = range(sum(name.endswith(".weights") for name in dumps[0]))
        at_question = lambda name: np.concatenate([dump[name][:, :, -1, :-1] for dump in dumps]).astype(np.float64)
        self.weights = [at_question(f"blocks.{layer}.weights") for layer in layers]
        self.positions = [at_question(name) if (name := f"blocks.{layer}.positions") in dumps[0] else None
                          for layer in layers]

    def last_x(self, values):
        """[N, H, T-1] at the last x: [N, H]."""
        position = self.is_x.shape[1] - 1 - self.gap
        return np.take_along_axis(values, position[:, None, None], 2)[..., 0]


def fit(is_x, weights):
    """a(x, i), a(y, i), i = 1 ..: two arrays [T-1], NaN where no such key was seen, up to one constant for both."""
    n, t = is_x.shape
    used = weights > SMALLEST
    sequence, position = np.nonzero(used)
    kind = np.where(is_x[used], 0, t) + (t - 1 - position)
    design = np.zeros((len(sequence), n + 2 * t))
    design[np.arange(len(sequence)), sequence] = 1
    design[np.arange(len(sequence)), n + kind] = 1
    solution = np.linalg.lstsq(design, np.log(weights[used]), rcond=None)[0][n:]
    solution[np.bincount(kind, minlength=2 * t) == 0] = np.nan
    return solution[:t], solution[t:]


def content_and_steps(is_x, weights, near_gap):
    """D, and d at each distance from 1 to near_gap: [near_gap]."""
    x, y = fit(is_x, weights)
    return np.nanmean((x - y)[: near_gap + 1]), -np.diff(x)[:near_gap]


def margins(questions, weights):
    """Of each sequence: log A of the last x less the largest of a nearer y, and less the largest of an earlier x;
    [N] each, NaN where there is none."""
    logs = np.log(np.maximum(weights, SMALLEST))
    positions = np.arange(logs.shape[1])
    last = logs.shape[1] - 1 - questions.gap[:, None]
    own = np.take_along_axis(logs, last, 1)[:, 0]
    largest = lambda chosen: np.where(chosen.any(1), np.where(chosen, logs, -np.inf).max(1), np.nan)
    return own - largest(positions > last), own - largest((positions < last) & questions.is_x)


def mean(values):
    values = values[~np.isnan(values)]
    return f"{values.mean():8.2f}" if len(values) else "       -"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dumps", nargs="+", metavar="DUMP.safetensors")
    parser.add_argument("--near-gap", type=int, default=7)
    options = parser.parse_args()
    questions = Questions(options.dumps)
    gaps = sorted(set(questions.gap.tolist()))
    bands = [gaps[n:n + 4] for n in range(0, len(gaps), 4)]
    print(f"{questions.encoding}, {len(questions.gap)} sequences\n\nwrong, % by gap")
    for band in bands:
        chosen = np.isin(questions.gap, band)
        print(f"  {band[0]:2} to {band[-1]:2}  {100 * questions.wrong[chosen].mean():6.2f}  of {chosen.sum()}")
    for layer, all_weights in enumerate(questions.weights):
        for head in range(all_weights.shape[1]):
            weights = all_weights[:, head]
            positions = questions.positions[layer]
            print(f"\nlayer {layer} head {head}", end="")
            if positions is None:
                content, steps = content_and_steps(questions.is_x[:500], weights[:500], options.near_gap)
                print(f": content D {content:.2f}, step d {steps.mean():.2f} (smallest {steps.min():.2f}), D/d "
                      f"{content / steps.mean():.1f}", end="")
            over_y, over_x = margins(questions, weights)
            at_last = questions.last_x(all_weights)[:, head]
            print()
            print("  gap       attention to the last x   its margin over y   over earlier x"
                  + ("   its position" if positions is not None else ""))
            for band in bands:
                chosen = np.isin(questions.gap, band)
                line = f"  {band[0]:2} to {band[-1]:2}  {at_last[chosen].mean():24.3f} {mean(over_y[chosen]):>19}"
                line += f" {mean(over_x[chosen]):>16}"
                if positions is not None:
                    line += f" {questions.last_x(positions)[chosen, head].mean():14.2f}"
                print(line)


if __name__ == "__main__":
    try:
        main()
    except tally.TallyError as why:
        sys.exit(f"last_x.py: {why}")
