#!/usr/bin/env python3
"""Seconds of a training step by processes of mpirun with one thread each, and by one process with the same threads.

Usage: ranks.py TALLY [--ranks 2] [--steps 8] [--rounds 3] [options of tally train]. The paper's flip-flop model, its batch
of 16 in one micro-batch a rank. Turn by turn, for a machine that does other things as well; the first step counts not.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

MPIRUN = ["mpirun", "--bind-to", "none", "--mca", "plm", "isolated", "-np"]


def seconds_a_step(words, run):
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=environment)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    seconds = [line["seconds"] for line in lines if line.get("split") == "train"]
    steps = [after - before for before, after in zip(seconds, seconds[1:])]
    return statistics.median(steps), [line["loss"] for line in lines if line.get("split") == "train"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tally")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    arguments, others = parser.parse_known_args()
    micro_batch = 16 // arguments.ranks
    options = ["--task=flip-flop", "--pe=cope", "--preset=paper", f"--steps={arguments.steps}", "--log-every=1",
               "--eval-every=0", "--save-every=0", "--task.eval-count=1", "--task.sparse-count=1", "--task.dense-count=1",
               "--batch=16", "--optimiser.warmup=0", "--quiet", *others]
    ways = {f"{arguments.ranks} ranks, a thread each": MPIRUN + [str(arguments.ranks), arguments.tally, "train", "RUN",
                                                                 f"--micro-batch={micro_batch}", "--threads=1"],
            "one process, the same micro-batches": [arguments.tally, "train", "RUN", f"--micro-batch={micro_batch}",
                                                    f"--threads={arguments.ranks}"],
            "one process, the whole batch": [arguments.tally, "train", "RUN", f"--threads={arguments.ranks}"]}
    found = {way: [] for way in ways}
    losses = {}
    with tempfile.TemporaryDirectory() as place:
        for turn in range(arguments.rounds):
            for way, words in ways.items():
                run = pathlib.Path(place) / f"{way}-{turn}"
                seconds, losses[way] = seconds_a_step([str(run) if word == "RUN" else word for word in words] + options,
                                                      run)
                found[way].append(seconds)
    first = list(ways)[0]
    for way, seconds in found.items():
        same = "the same losses" if losses[way] == losses[first] else "other losses"
        print(f"{way}: {min(seconds):.3f} s a step ({', '.join(f'{s:.3f}' for s in seconds)}); ranks at "
              f"{min(seconds) / min(found[first]):.3f} of its speed; {same}")


if __name__ == "__main__":
    sys.exit(main())
