#!/usr/bin/env python3
"""What every encoding costs beside none: a training step, a layer's attention alone, the memory of both, in Markdown.

    python3 tests/bench/every_encoding.py [--tally build/release/tally] [--before OLD] [--rounds 1] [--pe cope,path]

The step is that of the paper's flip-flop model, the attention that of one of its layers at T 4096, batch 1, forward and
backward. Each program runs by itself, none before each encoding: a ratio is of neighbours, a figure the median
over the rounds. --before: the program of an older build, for what it knows. Composed: not in tiles, so that memory grows
with the square of the length. Encodings that leave out tiles of negligible weights are flattered by gates that no one has
trained; TALLY_SKIP_TILES=0 in the environment computes all.
"""
import argparse
import datetime
import json
import statistics
import subprocess
import sys

STEP, ATTENTION = "step", "attention"
SIZES = {STEP: [], ATTENTION: ["--length", "4096", "--batch", "1"]}
SMALL = {STEP: ["--length", "64", "--batch", "2"], ATTENTION: ["--length", "128", "--batch", "1"]}
HEADS = ["encoding", "step", "of none's", "tensors", "attention, T 4096", "of none's", "tensors", "form"]


def bench(program, what, pe, args):
    """What it measured; None for an encoding that this program does not have."""
    sizes = (SMALL if args.small else SIZES)[what]
    command = [program, "bench", what, *sizes, "--pe", pe, "--steps", str(args.steps), "--warmup", "1", "--json"]
    print(" ".join(command), file=sys.stderr)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 2 and "there is no" in done.stderr:
        return None
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def seconds(result):
    return result["step_s"] if result["work"] == "step" else result["both_s"]


def in_pairs(program, pe, args):
    """What -> results with their ratio to those of none, measured just before."""
    found = {}
    for what in (STEP, ATTENTION):
        none = bench(program, what, "none", args)
        own = none if pe == "none" else bench(program, what, pe, args)
        if own is None:
            return {}
        found[what] = {**own, "ratio": seconds(own) / seconds(none)}
    return found


def median(results, what, value):
    return statistics.median(value(result[what]) for result in results)


def cells(results):
    """Of a row: those of HEADS but for the first."""
    if not results or not results[0]:
        return ["not there"] + [""] * (len(HEADS) - 2)
    def tensors(what):
        result = results[0][what]
        # Older builds print whole MiB.
        mib = result["tensor_peak_bytes"] / 2**20 if "tensor_peak_bytes" in result else result["tensor_peak_mib"]
        return f"{mib:,.0f} MiB"
    return [f"{median(results, STEP, seconds):.2f} s", f"{median(results, STEP, lambda r: r['ratio']):.2f}", tensors(STEP),
            f"{1000 * median(results, ATTENTION, seconds):,.0f} ms",
            f"{median(results, ATTENTION, lambda r: r['ratio']):.2f}", tensors(ATTENTION), results[0][STEP]["attention"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tally", default="build/release/tally")
    parser.add_argument("--before", help="an older build's program, whose columns stand behind")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--pe", help="these alone, by names between commas; all without")
    parser.add_argument("--small", action="store_true", help="sizes that take seconds, to try the script")
    args = parser.parse_args()
    if args.pe:
        names = args.pe.split(",")
    else:
        listed = json.loads(subprocess.run([args.tally, "describe", "encodings", "--json"], capture_output=True, text=True,
                                           check=True).stdout)
        names = [entry["name"] for entry in listed["encodings"]]
        # It is a kind of attention, not a position encoding.
        names = ["none", *(name.replace("hard", "absolute+hard") for name in names if name != "none")]
    programs = [args.tally, *([args.before] if args.before else [])]
    rows = {pe: {program: [] for program in programs} for pe in names}
    for _ in range(args.rounds):
        for pe, columns in rows.items():
            for program in programs:
                columns[program].append(in_pairs(program, pe, args))

    machine = rows[names[0]][args.tally][0][STEP]["machine"]
    at = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    print(f"{machine['processor']}, {machine['threads']} threads, {machine['blas']} kernels of OpenBLAS, "
          f"{machine['compiler']}, commit {machine.get('commit') or 'unknown'}; {at}; medians of {args.rounds} rounds of "
          f"{args.steps} runs by `python3 tests/bench/every_encoding.py`.\n")
    heads = HEADS + ["before: " + head for head in HEADS[1:]] * (len(programs) - 1)
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for pe, columns in rows.items():
        print("| " + " | ".join([pe, *(cell for program in programs for cell in cells(columns[program]))]) + " |")


if __name__ == "__main__":
    main()
