#!/usr/bin/env python3
"""Times the training steps of two builds of tally in turns and prints the ratio of their medians for each encoding.

    tests/bench/compare_builds.py OLD NEW [--pe a,b,...] [--preset quick] [--steps 60] [--rounds 5] [-- options of train]

OLD and NEW are two programs `tally`. A round trains each of them once, so that both see the machine at its fast and its
slow moments; a step's time is the difference of `seconds` between lines of metrics.jsonl, the first fifth left out. The
last column is the median over the rounds of new / old, pair by pair; below 1 the new build is faster.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile


def step_seconds(program, pe, arguments, folder):
    """Median seconds of a step of one short training."""
    subprocess.run(
        [program, "train", str(folder), "--task", "flip-flop", "--pe", pe, "--quiet", "--log-every", "1", *arguments],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    at = [line["seconds"] for line in lines if line.get("split") == "train"]
    steps = [later - earlier for earlier, later in zip(at, at[1:])]
    return statistics.median(steps[len(steps) // 5 :])


def all_encodings(program):
    listed = subprocess.run([program, "describe", "encodings", "--json"], check=True, capture_output=True, text=True)
    entries = json.loads(listed.stdout)
    if isinstance(entries, dict):
        entries = entries["encodings"]
    return [entry["name"] for entry in entries]


def main():
    usage = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usage.add_argument("old")
    usage.add_argument("new")
    usage.add_argument("--pe", help="encodings, with commas between them; all of them if left out")
    usage.add_argument("--preset", default="quick")
    usage.add_argument("--steps", type=int, default=60)
    usage.add_argument("--rounds", type=int, default=5)
    words, options = sys.argv[1:], []
    if "--" in words:
        words, options = words[: words.index("--")], words[words.index("--") + 1 :]
    given = usage.parse_args(words)

    arguments = ["--preset", given.preset, "--steps", str(given.steps), "--eval-every", str(given.steps)]
    arguments += ["--optimiser.warmup", "1", "--task.eval-count", "16", "--save-every", str(given.steps), *options]
    print(f"{'encoding':20} {'old ms':>9} {'new ms':>9} {'new/old':>8}")
    slower = []
    for pe in given.pe.split(",") if given.pe else all_encodings(given.new):
        pairs = []
        for _ in range(given.rounds):
            with tempfile.TemporaryDirectory() as folder:
                old, new = (
                    step_seconds(program, pe, arguments, pathlib.Path(folder) / name)
                    for name, program in (("old", given.old), ("new", given.new))
                )
            pairs.append((old, new))
        old, new = (1e3 * statistics.median(side) for side in zip(*pairs))
        ratio = statistics.median(new / old for old, new in pairs)
        print(f"{pe:20} {old:9.2f} {new:9.2f} {ratio:8.3f}", flush=True)
        if ratio > 1.02:
            slower.append(pe)
    print("slower by more than 2%:", ", ".join(slower) if slower else "none")
    return 0


if __name__ == "__main__":
    sys.exit(main())
