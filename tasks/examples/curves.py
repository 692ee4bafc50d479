#!/usr/bin/env python3
"""Draws what runs say together: learning curves with their spread over seeds, and the errors at the end.

Usage: curves.py OUT.png FOLDER... (or .svg, .pdf). Each folder is a run or holds runs, as for `tally report`. One
column for each split. Above: mean over seeds in a band from the lowest to the highest. Below: mean and each seed at the
end, sorted, on a logarithmic axis that begins where one token is wrong; an error of 0 stands at its left edge.
"""
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")  # no window
import matplotlib.pyplot as plt
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # the folder of tally.py, also when installed
import tally

MOST_COLOURS = 6  # further lines are grey: more colours are hard to distinguish


def draw(runs, task, error="token_error"):
    """A figure of one task's groups."""
    groups = [group for group in runs.groups if group.task == task]
    splits = list(dict.fromkeys(split for group in groups for run in group.runs for split in run.splits))
    # Best first, by the mean over splits; groups without a finished run last.
    mean = {group: np.mean([group.final(split, error).mean for split in splits]) for group in groups}
    groups.sort(key=lambda group: (np.isnan(mean[group]), mean[group]))
    colours = {group: f"C{n}" if n < MOST_COLOURS else "0.7" for n, group in enumerate(groups)}

    figure, axes = plt.subplots(2, len(splits), squeeze=False, layout="constrained",
                                figsize=(1 + 3.6 * len(splits), 3.4 + max(1.6, 0.24 * len(groups))),
                                height_ratios=[3, max(1.6, 0.24 * len(groups))])
    for (curves, dots), split in zip(axes.T, splits):
        for group in reversed(groups):
            curve = group.curve(split, error)
            curves.plot(curve["step"], 100 * curve["mean"], color=colours[group], label=group.label)
            curves.fill_between(curve["step"], 100 * curve["low"], 100 * curve["high"], color=colours[group], alpha=0.2,
                                linewidth=0)
        curves.set(title=split, xlabel="training step", ylabel="wrong, %", ylim=(0, None))

        one_wrong = min([100 / of for _, of in (group.pooled(split, error) for group in groups) if of], default=0.01)
        for row, group in enumerate(groups):
            final = group.final(split, error)
            if not final.n:
                dots.annotate("no finished run", (one_wrong, row), va="center", color="0.5", fontsize="small")
                continue
            dots.plot(np.maximum(100 * final.values, one_wrong), np.full(final.n, row), "|", color=colours[group])
            dots.plot(max(100 * final.mean, one_wrong), row, "o", color=colours[group])
        dots.set(xscale="log", xlim=(one_wrong / 1.3, 100), ylim=(len(groups) - 0.5, -0.5), xlabel="wrong at the end, %")
        dots.set_yticks(range(len(groups)), [group.label for group in groups], fontsize="small")
        dots.grid(axis="x", alpha=0.3)
    seeds = [group.count("finished") for group in groups]
    figure.suptitle(f"{task}: {min(seeds)} to {max(seeds)} finished runs each")
    return figure


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1])
    runs = tally.Runs(*sys.argv[2:])  # warns of unreadable runs
    tasks = list(dict.fromkeys(group.task for group in runs.groups))
    for task in tasks:
        path = out if len(tasks) == 1 else out.with_stem(f"{out.stem}-{task}")
        draw(runs, task).savefig(path, dpi=120)
        print(path)


if __name__ == "__main__":
    try:
        main()
    except tally.TallyError as why:
        sys.exit(f"curves.py: {why}")
