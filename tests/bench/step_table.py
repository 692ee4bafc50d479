#!/usr/bin/env python3
"""A training step of several encodings beside PyTorch's on the same machine, in one run: a table in Markdown.

    python3 tests/bench/step_table.py [--tally build/release/tally] [--rounds 3] [--pe none,rope] > table.md
    python3 tests/bench/step_table.py --write      # puts the table of this processor's maker into measurements.md
    python3 tests/bench/step_table.py --bf16       # with bf16 matmuls, ours and PyTorch's (autocast), next to f32
    python3 tests/bench/step_table.py --quick      # of the size that sweeps run at: 2 layers, width 64, T 128; also with --bf16
    python3 tests/bench/step_table.py --attention  # one layer's attention at T 4096 instead; also with --bf16

Every program runs by itself; a round runs all programs of all rows once, one after the other, and a figure is the median
over the rounds. Ratios are taken within a round, then their median. Rows whose attention leaves out tiles of negligible
weights are measured with and without (TALLY_SKIP_TILES=0). Needs PyTorch 2 (torch_step.py says how to get it); without
it, or with --alone, only tally's columns are filled.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PEER = HERE / "torch_step.py"
ROWS = ["none", "rope", "alibi", "fox", "relative", "stick-breaking", "cope"]
SKIPPING = {"alibi", "fox", "stick-breaking"}
FUSED_BIAS = {"alibi", "fox", "relative"}
BEGIN, END = "<!-- step_table.py{} -->", "<!-- step_table.py{} ends -->"
MAKERS = ["AMD", "Intel"]  # of the processors that measurements.md has a table for
PEERS = ("eager", "fused", "compiled")
BF16 = " bf16"  # the end of a column's name
HEADS_BF16 = ["with", "tally bf16", "of none's", "tally f32", "PyTorch f32: eager", "bias fused", "compiled", "bf16: eager",
              "bias fused", "compiled", "bf16 as fast as the best of them", "f32 as the best in f32", "bf16 as own f32",
              "memory: tally bf16", "tally f32", "best of PyTorch"]
HEADS = ["step with", "tally", "no tile left out", "PyTorch eager", "bias fused", "compiled", "times as fast",
         "no tile left out", "memory: tally", "eager", "compiled"]


def result_of(command, environment):
    print(" ".join(command), *(f"[{name}={value}]" for name, value in environment.items()), file=sys.stderr)
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def programs(pe, args):
    """Column -> (command, environment)."""
    sizes = ["--length", "4096", "--batch", "1"] if args.attention else []
    sizes = ["--length", "64", "--batch", "2", "--steps", "2"] if args.small else sizes
    ours = [args.tally, "bench", "attention" if args.attention else "step", "--pe", pe, "--json", *sizes]
    peer = [sys.executable, str(PEER), "--pe", pe, *(["--attention"] if args.attention else []), *sizes]
    if args.quick:
        ours += ["--preset", "quick", "--steps", "50"]
        peer += ["--layers", "2", "--width", "64", "--length", "128", "--steps", "50"]
    for name, more in [("", []), (BF16, ["--precision", "bf16"])] if args.bf16 else [("", [])]:
        yield "tally" + name, ours + more, {}
        if pe in SKIPPING and not args.bf16:
            yield "whole", ours, {"TALLY_SKIP_TILES": "0"}
        if not args.alone:
            yield "eager" + name, peer + more, {}
            if pe in FUSED_BIAS:
                yield "fused" + name, [*peer, *more, "--fused-bias"], {}
            yield "compiled" + name, [*peer, *more, "--compile"], {}


def measure(args):
    """Row -> column -> results of the rounds."""
    rows = {pe: {} for pe in args.pe.split(",")}
    for _ in range(args.rounds):
        for pe, columns in rows.items():
            for column, command, environment in programs(pe, args):
                columns.setdefault(column, []).append(result_of(command, environment))
    return rows


def time_of(result):
    return result.get("step_s", result.get("both_s"))


def seconds(columns, name):
    if name not in columns:
        return ""
    median = statistics.median(time_of(r) for r in columns[name])
    if median >= 0.2:
        return f"{median:.2f} s"
    return f"{1000 * median:.1f} ms" if median >= 0.01 else f"{1000 * median:.2f} ms"


def memory(columns, name):
    return f"{statistics.median(r['peak_rss_mib'] for r in columns[name]):,.0f} MiB" if name in columns else ""


def ratio(columns, name, of=PEERS):
    """How many times as fast as the best of the columns `of`."""
    peers = [columns[form] for form in of if form in columns]
    if name not in columns or not peers:
        return ""
    best = [min(time_of(results[n]) for results in peers) for n in range(len(columns[name]))]
    return f"{statistics.median(b / time_of(ours) for b, ours in zip(best, columns[name])):.2f}x"


def cells_of(pe, columns):
    return [pe, *(seconds(columns, name) for name in ("tally", "whole", *PEERS)),
            ratio(columns, "tally"), ratio(columns, "whole"),
            *(memory(columns, name) for name in ("tally", "eager", "compiled"))]


def of_none(columns, rows):
    ours = "tally" + BF16
    if "none" not in rows:
        return ""
    turns = zip(columns[ours], rows["none"][ours])
    return f"{statistics.median(time_of(own) / time_of(none) for own, none in turns):.2f}"


def cells_of_bf16(pe, columns, rows):
    every = [form + name for name in ("", BF16) for form in PEERS]
    present = [form for form in every if form in columns]
    best = min(present, key=lambda form: statistics.median(time_of(r) for r in columns[form])) if present else ""
    return [pe, seconds(columns, "tally" + BF16), of_none(columns, rows), seconds(columns, "tally"), *(seconds(columns, form) for form in every),
            ratio(columns, "tally" + BF16, every), ratio(columns, "tally"), ratio(columns, "tally" + BF16, ["tally"]),
            memory(columns, "tally" + BF16), memory(columns, "tally"), memory(columns, best)]


def heading(machine, peer, args, called):
    at = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return [f"{machine['processor']}, {machine['threads']} threads, {machine['blas']} kernels of OpenBLAS, "
            f"{machine['compiler']}, tally {machine['version']} at commit {machine.get('commit') or 'unknown'}; {peer}; "
            f"{at}; medians of {args.rounds} rounds by `python3 tests/bench/step_table.py{called}`.", ""]


def long_table(rows, args):
    machine, peer = {}, "no PyTorch"
    for columns in rows.values():
        machine = columns["tally"][0]["machine"]
        peer = columns["eager"][0]["peer"] if "eager" in columns else peer
    heads = HEADS_BF16 if args.bf16 else HEADS
    called = (" --bf16" if args.bf16 else "") + (" --quick" if args.quick else "") + (" --attention" if args.attention else "")
    lines = [*heading(machine, peer, args, called), "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for pe, columns in rows.items():
        cells = cells_of_bf16(pe, columns, rows) if args.bf16 else cells_of(pe, columns)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def put(path, table, which):
    text = path.read_text(encoding="utf-8")
    begin, end = BEGIN.format(which), END.format(which)
    pattern = re.compile(re.escape(begin) + "\n.*?" + re.escape(end), re.S)
    if len(pattern.findall(text)) != 1:
        sys.exit(f"{path}: not one part between {begin} and {end}")
    path.write_text(pattern.sub(lambda _: f"{begin}\n{table}\n{end}", text), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tally", default="build/release/tally")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pe", default=",".join(ROWS))
    parser.add_argument("--alone", action="store_true", help="without PyTorch")
    parser.add_argument("--small", action="store_true", help="sizes that take seconds, to try the script")
    parser.add_argument("--bf16", action="store_true", help="products in bf16 too")
    parser.add_argument("--quick", action="store_true", help="steps of the quick preset")
    parser.add_argument("--attention", action="store_true", help="one layer's attention at T 4096, batch 1")
    parser.add_argument("--write", action="store_true", help="into measurements.md too")
    args = parser.parse_args()
    if sum([args.attention, args.quick, args.small]) > 1:
        parser.error("--attention, --quick and --small are sizes: one of them")
    if args.write and (args.bf16 or args.attention or args.quick or args.small):
        parser.error("--write is for steps in f32 of the paper's size")
    rows = measure(args)
    print(long_table(rows, args))
    if args.write:
        processor = next(iter(rows.values()))["tally"][0]["machine"]["processor"]
        maker = next((name for name in MAKERS if name in processor), None)
        if maker is None:
            sys.exit(f"--write knows the machines of {' and '.join(MAKERS)}; this is {processor}: its table is above")
        put(HERE / "measurements.md", f"\n{long_table(rows, args)}\n", f" {maker}")


if __name__ == "__main__":
    main()
