"""The memory that `tally train --dry-run` counts and the memory that a run of one step takes, for some configurations.

python3 tests/bench/memory_table.py [--tally build/release/tally] [--edge] [--edge-gib N]
                                    [--most-gib 8]
python3 tests/bench/memory_table.py --long [NAME ...]

--edge adds three configurations that need most of this machine's memory. Their batch is the largest that fits into
nine tenths of the available memory, or into --edge-gib, as counted by the dry run. Other configurations run only
below --most-gib. Bytes are of tensors; the last column is the difference.

--long runs nothing: memory of a step of the paper's model with one long text, of every encoding or of those named, as
`tally bench step --dry-run` counts it, and whether that is within LONG's goals.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import tables

FEW = [f"--task.{split}-count=64" for split in ("eval", "sparse", "dense")]  # sequences of the last evaluation
FLIP_FLOP = ["--task", "flip-flop", "--preset", "paper", *FEW]
QUICK = ["--task", "flip-flop", "--preset", "quick", *FEW]

CONFIGURATIONS = [
    ["--pe", "none", *FLIP_FLOP],
    ["--pe", "cope", *FLIP_FLOP],
    ["--pe", "cope", *FLIP_FLOP, "--model.attention", "composed", "--batch", "2", "--eval-batch", "2"],
    ["--pe", "rope", *QUICK, "--model.dropout", "0.1", "--optimiser.clip", "1"],
    ["--pe", "cope+rope", *QUICK, "--model.activation", "swiglu"],
    ["--pe", "cope@0-1,alibi@2-3", *QUICK, "--model.heads", "4"],
    ["--pe", "fire", *QUICK, "--optimiser.name", "sgd", "--optimiser.momentum", "0.9"],
    ["--pe", "stick-breaking", *QUICK, "--dtype", "f64", "--batch", "2", "--eval-batch", "4"],
    ["--pe", "hard", *QUICK, "--batch", "2", "--eval-batch", "2"],
    ["--pe", "transformer-xl", *QUICK],
]
EDGE = [["--pe", "none", *FLIP_FLOP], ["--pe", "cope", *FLIP_FLOP], ["--pe", "hard", *FLIP_FLOP]]
LONG = {16384: 2, 65536: 6}  # tokens, and the goal in GiB for a step


def long_texts(tally, names):
    """Rows of the table: GiB for each length, least first."""
    rows = []
    for name in names or tables.encodings_of(tally):
        gib, form = [], ""
        for length in LONG:
            command = [tally, "bench", "step", "--dry-run", "--pe", name, "--length", length, "--batch", 1, "--json"]
            try:
                plan = tables.result_of(command)
                form = plan["attention"]
                gib.append(plan["memory_bytes"] / 2**30)
            except tables.Failed:  # some cannot use so long a text
                gib.append(None)
        rows.append((gib, form, name))
    return sorted(rows, key=lambda row: [number or 0 for number in row[0]])


def print_long_texts(tally, names):
    tables.print_heads(["encoding", *(f"T {length}" for length in LONG), "form", "within the goals"])
    for gib, form, name in long_texts(tally, names):
        within = all(number is None or number <= most for number, most in zip(gib, LONG.values()))
        numbers = ("-" if number is None else f"{number:.2f}" for number in gib)
        print(tables.row_text([name, *numbers, form, "yes" if within else "no"]))


def counted(tally, options):
    try:
        return tables.result_of([tally, "train", "unused", *options, "--dry-run", "--json", "--quiet"])["memory_bytes"]
    except tables.Failed:
        return None


def measured(tally, options):
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        command = [tally, "train", str(run), *options, "--steps", "1", "--optimiser.warmup", "0", "--quiet"]
        subprocess.run(command, check=True, capture_output=True)
        return json.loads((run / "results.json").read_text())["peak_tensor_bytes"]


def available_bytes():
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    raise SystemExit("/proc/meminfo has no MemAvailable")


def with_largest_batch(tally, options, most):
    """The largest batch that fits: doubled, then halved in between, until it does not fit."""
    def needs(batch):
        return counted(tally, [*options, "--batch", str(batch), "--eval-batch", "2"]) or float("inf")

    low = 1
    while needs(2 * low) < most:
        low *= 2
    high = 2 * low
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        low, high = (middle, high) if needs(middle) < most else (low, middle)
    return [*options, "--batch", str(low), "--eval-batch", "2"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tally", default="build/release/tally")
    parser.add_argument("--edge", action="store_true")
    parser.add_argument("--edge-gib", type=float)
    parser.add_argument("--most-gib", type=float, default=8)
    parser.add_argument("--long", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    if arguments.long is not None:
        print_long_texts(arguments.tally, arguments.long)
        return
    rows = [(options, arguments.most_gib * 2**30) for options in CONFIGURATIONS]
    if arguments.edge:
        most = 2**30 * arguments.edge_gib if arguments.edge_gib else 0.9 * available_bytes()
        rows += [(with_largest_batch(arguments.tally, options, most), float("inf")) for options in EDGE]
    tables.print_heads(["configuration", "dry run", "measured", "difference"])
    for options, most in rows:
        plan = counted(arguments.tally, options)
        name = " ".join(word for word in options if word not in FEW)
        cells = ["does not fit" if plan is None else f"{plan:,.0f}", "not run", ""]
        if plan is not None and plan <= most:
            found = measured(arguments.tally, options)
            cells[1:] = [f"{found:,}", f"{plan - found:,.0f}"]
        print(tables.row_text([name, *cells]), flush=True)


if __name__ == "__main__":
    main()
