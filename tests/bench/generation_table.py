#!/usr/bin/env python3
"""Cost of a generated token on one core, for every encoding: a table in Markdown.

    python3 tests/bench/generation_table.py [--tally build/release/tally] [--pe none,cope] [--rounds 3]

Models have 4 layers, width 256, 4 heads, 512 tokens and a vocabulary of at most 1,024. They are trained for one step
on a small generated text, because their weights do not matter. Each generates 1, 256 and 511 tokens; figures are
differences of processor time between these, so that starting does not count: milliseconds a token with up to 256
tokens before it and with 256 to 511, and tokens a second in the second half. The least of the rounds is taken, since
other work on the machine only adds time. A cost that is linear in the context grows little here: most of a token's
work is in the weights. Encodings that compute the whole text again for every token take minutes.
"""
import argparse
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import tempfile

import tables

COUNTS = [1, 256, 511]
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


def seconds_of(command):
    """Processor time of a program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=ENVIRONMENT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def prepare(tally, folder):
    chance = random.Random(12)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(2, 8))) for _ in range(2000)]
    (folder / "texts").mkdir()
    for name, count in [("train", 40000), ("validation", 700)]:
        (folder / "texts" / f"{name}.txt").write_text(" ".join(chance.choices(words, k=count)))
    texts = [f"--{name}={folder}/texts/{name}.txt" for name in ["train", "validation"]]
    seconds_of([tally, "prepare", folder / "data", *texts, "--vocabulary=1024", "--quiet"])


def measure(tally, folder, pe, rounds):
    run = folder / pe
    seconds_of([tally, "train", run, "--task=text", f"--data={folder}/data", "--preset=code-quick", f"--pe={pe}",
                "--length=512", "--model.width=256", "--model.layers=4", "--model.heads=4", "--batch=1", "--steps=1",
                "--optimiser.warmup=0", "--eval-count=1", "--quiet"])
    least = [min(seconds_of([tally, "generate", run, f"--count={count}", "--threads=1", "--quiet"])
                 for _ in range(rounds)) for count in COUNTS]
    shutil.rmtree(run)
    return [1000 * (b - a) / (n - m) for a, b, m, n in zip(least, least[1:], COUNTS, COUNTS[1:])]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tally", type=pathlib.Path, default=pathlib.Path("build/release/tally"))
    options.add_argument("--pe", help="encodings, with commas between them; all without")
    options.add_argument("--rounds", type=int, default=3)
    args = options.parse_args()
    tally = args.tally.resolve()
    names = args.pe.split(",") if args.pe else tables.encodings_of(tally)
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        prepare(tally, folder)
        tables.print_heads(["encoding", "ms a token, 1 to 256", "256 to 511", "tokens/s, 256 to 511"])
        for pe in names:
            try:
                early, late = measure(tally, folder, pe, args.rounds)
                print(tables.row_text([pe, f"{early:.2f}", f"{late:.2f}", f"{1000 / late:,.0f}"]), flush=True)
            except RuntimeError as error:
                print(f"{pe}: {error}", file=sys.stderr)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
