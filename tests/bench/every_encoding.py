#!/usr/bin/env python3
"""The cost of every encoding compared with none, step, attention and memory: a table in Markdown.

    every_encoding.py [--tally build/release/tally] [--before OLD] [--rounds 1] [--pe cope,path] [--preset quick]

Measured are a training step of the paper's flip-flop model or of another preset, and the attention of one of its
layers at T 4096, batch 1, forward and backward. Programs run one after the other, none before each encoding. Ratios
compare neighbours, and figures are medians over the rounds. --before: an older build's program, which runs after the
newer one: whether a change made an encoding slower. The form composed is not in tiles, so memory grows with the
square of the length. Untrained gates flatter encodings that skip tiles of negligible weights; TALLY_SKIP_TILES=0 in
the environment computes all.
"""
import argparse
import statistics

import tables
from tables import seconds_of, time_text

WORK = {"step": [], "attention": ["--length", "4096", "--batch", "1"]}
HEADS = ["", "of none's", "memory", "before", "of before", "memory before"]


def bench(program, work, pe, args):
    """The result, or None for an encoding that an older program does not have."""
    sizes = ["--length", "64", "--batch", "2"] if args.small else WORK[work]
    command = [program, "bench", work, "--preset", args.preset, *sizes, "--pe", pe, "--steps", args.steps,
               "--warmup", 1, "--json"]
    try:
        return tables.result_of(command)
    except tables.Failed as failure:
        if program == args.before and failure.status == 2 and "there is no" in failure.error:
            return None
        raise


def measure(pe, work, args):
    """The results of every round: of none, of the encoding, and of the encoding in the older build."""
    turns = []
    for _ in range(args.rounds):
        none = bench(args.tally, work, "none", args)
        own = none if pe == "none" else bench(args.tally, work, pe, args)
        turns.append((none, own, bench(args.before, work, pe, args) if args.before else None))
    return turns


def tensors(result):
    # Older builds print only whole MiB.
    mib = result["tensor_peak_bytes"] / 2**20 if "tensor_peak_bytes" in result else result["tensor_peak_mib"]
    return f"{mib:,.0f} MiB"


def cells(turns):
    """The cells of HEADS."""
    none, own, before = zip(*turns)

    def seconds(results):
        return time_text(statistics.median(map(seconds_of, results)))

    def ratio(others):
        return f"{statistics.median(seconds_of(a) / seconds_of(b) for a, b in zip(own, others)):.2f}"

    found = [seconds(own), ratio(none), tensors(own[0])]
    return found + ([seconds(before), ratio(before), tensors(before[0])] if before[0] else [""] * 3)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tally", default="build/release/tally")
    parser.add_argument("--before", help="an older build's program")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--pe", help="names with commas between them; all if left out")
    parser.add_argument("--small", action="store_true", help="sizes that take seconds, to try the script")
    args = parser.parse_args()
    # hard is a kind of attention, not a position encoding.
    names = args.pe.split(",") if args.pe else \
        ["none", *(name.replace("hard", "absolute+hard") for name in tables.encodings_of(args.tally) if name != "none")]
    heads = HEADS if args.before else HEADS[:3]
    for pe in names:
        step, attention = (measure(pe, work, args) for work in WORK)
        if pe == names[0]:
            machine = tables.machine_text(step[0][1]["machine"])
            print(f"{machine}; medians of {args.rounds} rounds of {args.steps} runs.\n")
            tables.print_heads(["encoding", *(f"{work} {head}".strip() for work in WORK for head in heads), "form"])
        print(tables.row_text([pe, *cells(step)[:len(heads)], *cells(attention)[:len(heads)], step[0][1]["attention"]]),
              flush=True)


if __name__ == "__main__":
    main()
