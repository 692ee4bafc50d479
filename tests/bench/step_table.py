#!/usr/bin/env python3
"""A training step of several encodings in turns with PyTorch's on the same machine: a table in Markdown.

    step_table.py [--tally build/release/tally] [--rounds 3] [--pe none,rope]
    step_table.py --precision f32,bf16    # with bf16 matmuls too, ours and PyTorch's (autocast)
    step_table.py --size quick            # of the size that sweeps run at: 2 layers, width 64, T 128
    step_table.py --size attention        # one layer's attention at T 4096, batch 1, instead of a step
    step_table.py --device cuda --precision f32,tf32,bf16 --tally build/cuda/tally
    step_table.py --size attention --pe "cope,cope --pe.p-max 2200"    # gates that reach no table's end

Programs run one after the other. A round runs all programs of all rows once, one after the other, and a figure is the
median over the rounds. Ratios are taken within a round, then their median. "Times as fast" compares with the best of
PyTorch's forms in the row's precision and in f32. Attention on the CPU that skips tiles of negligible weights is also
measured without (TALLY_SKIP_TILES=0). Needs PyTorch 2 (torch_step.py describes its installation); without it, or with
--no-peer, only tally's columns are filled.
"""
import argparse
import pathlib
import statistics
import sys

import tables
from tables import seconds_of, time_text

PEER = pathlib.Path(__file__).with_name("torch_step.py")
ROWS = ["none", "rope", "alibi", "fox", "relative", "stick-breaking", "cope"]
SKIPPING = {"alibi", "fox", "stick-breaking"}
FUSED_BIAS = {"alibi", "fox", "relative"}
FORMS = {"eager": [], "bias fused": ["--fused-bias"], "compiled": ["--compile"], "graph": ["--graph"]}
SIZES = {"paper": ([], []),
         "quick": (["--preset", "quick", "--steps", "50"],
                   ["--layers", "2", "--width", "64", "--length", "128", "--steps", "50"]),
         "attention": (["--length", "4096", "--batch", "1"], ["--attention", "--length", "4096", "--batch", "1"]),
         "small": (["--length", "64", "--batch", "2", "--steps", "2"],) * 2}


def programs(pe, precision, args):
    """Column -> (command, environment)."""
    ours, theirs = SIZES[args.size]
    encoding, *options = pe.split()
    common = ["--pe", encoding, "--device", args.device, *(["--precision", precision] if precision != "f32" else [])]
    work = "attention" if args.size == "attention" else "step"
    own = [args.tally, "bench", work, *common, *ours, *options, "--json"]
    found = {"tally": (own, {})}
    if encoding in SKIPPING and args.device == "cpu":
        found["no tile skipped"] = (own, {"TALLY_SKIP_TILES": "0"})
    for form, option in {} if args.no_peer else FORMS.items():
        if form == "graph" and (args.device == "cpu" or work == "attention"):
            continue
        if form == "bias fused" and encoding not in FUSED_BIAS:
            continue
        found[form] = ([sys.executable, PEER, *common, *theirs, *option], {})
    return found


def measure(args):
    """(encoding, precision) -> column -> results of the rounds."""
    rows = {(pe, precision): {} for pe in args.pe.split(",") for precision in args.precision.split(",")}
    for _ in range(args.rounds):
        for (pe, precision), columns in rows.items():
            for column, (command, environment) in programs(pe, precision, args).items():
                columns.setdefault(column, []).append(tables.result_of(command, environment))
    return rows


def median(columns, name, figure, text):
    return text(statistics.median(map(figure, columns[name]))) if name in columns else ""


def times_as_fast(columns, name, compared):
    """Compared with the fastest of PyTorch's forms among these columns."""
    peers = [results for others in compared for form, results in others.items() if form in FORMS]
    if name not in columns or not peers:
        return ""
    best = [min(map(seconds_of, turn)) for turn in zip(*peers)]
    return f"{statistics.median(b / seconds_of(ours) for b, ours in zip(best, columns[name])):.2f}x"


def of_none(columns, none):
    turns = zip(columns["tally"], none["tally"]) if none else []
    ratios = [seconds_of(own) / seconds_of(other) for own, other in turns]
    return f"{statistics.median(ratios):.2f}" if ratios else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tally", default="build/release/tally")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pe", default=",".join(ROWS))
    parser.add_argument("--precision", default="f32", help="of matmuls: f32, tf32, bf16, with commas between them")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--size", default="paper", choices=SIZES, help="small: to try the script")
    parser.add_argument("--no-peer", action="store_true", help="without PyTorch")
    args = parser.parse_args()
    rows = measure(args)
    first = next(iter(rows.values()))
    peer = first["eager"][0]["peer"] if "eager" in first else "no PyTorch"
    print(f"{tables.machine_text(first['tally'][0]['machine'])}; {peer}; medians of {args.rounds} rounds.\n")
    times, memory = ["tally", "no tile skipped", *FORMS], ["tally", "eager", "compiled"]
    lines = [["with", "precision", *times, "times as fast", "no tile skipped", "of none's",
              *("memory: " + name for name in memory)]]
    peak = "peak_rss_mib" if args.device == "cpu" else "tensor_peak_mib"
    for (pe, precision), columns in rows.items():
        compared = [rows[pe, name] for name in {precision, "f32"} if (pe, name) in rows]
        lines.append([
            pe, precision, *(median(columns, name, seconds_of, time_text) for name in times),
            times_as_fast(columns, "tally", compared), times_as_fast(columns, "no tile skipped", compared),
            of_none(columns, rows.get(("none", precision))),
            *(median(columns, name, lambda result: result[peak], lambda mib: f"{mib:,.0f} MiB") for name in memory)])
    filled = [n for n in range(len(lines[0])) if any(line[n] for line in lines[1:])]
    heads, *lines = ([line[n] for n in filled] for line in lines)
    tables.print_heads(heads)
    for line in lines:
        print(tables.row_text(line))


if __name__ == "__main__":
    main()
