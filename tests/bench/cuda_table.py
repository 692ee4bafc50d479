#!/usr/bin/env python3
"""The goals of the CUDA backend beside PyTorch on the same GPU, in one run: a table of ratios and goals in Markdown.

    python3 tests/bench/cuda_table.py [--tally build/cuda/tally] [--rounds 3] [--only PART] > table.md

Every program runs by itself. A round runs both sides of a line, one after the other; a ratio is the median over the
rounds. Needs PyTorch 2.x with CUDA. --device cpu --small tries the script where there is no GPU.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

PEER = pathlib.Path(__file__).with_name("torch_step.py")
PRECISIONS = ["f32", "tf32", "bf16"]
LONG = ["--length", "4096", "--batch", "1"]


class Line:
    """Ours against another program: how many times as fast, or as little memory, it should be."""

    def __init__(self, name, ours, other, goals, own=False, memory=False):
        self.name, self.ours, self.other, self.goals = name, ours, other, goals
        self.own = own        # the other is tally too, and the figure is our time over its
        self.memory = memory  # the most that tensors take, instead of the time


def lines():
    steps = [Line("step, cope; the listing, eager", ["step", "--pe", "cope"], ["--pe", "cope"],
                  {"f32": 5, "tf32": 10, "bf16": 15})]
    for pe in ("none", "rope"):
        for how, goals in (("eager", (1.3, 2, 3)), ("graph", (1, 1.2, 1.3)), ("compile", ())):
            steps.append(Line(f"step, {pe}; fused attention, {how}", ["step", "--pe", pe],
                              ["--pe", pe] + ([] if how == "eager" else ["--" + how]),
                              dict(zip(PRECISIONS, goals)) or dict.fromkeys(PRECISIONS)))
    attention = ["attention", "--pe"]
    for memory, goal in ((False, 10), (True, 20)):
        steps.append(Line("attention, cope, T 4096; the listing" + (", memory" if memory else ""),
                          [*attention, "cope"], ["--attention", "--pe", "cope"], {"f32": goal}, memory=memory))
    for what, p_max, goal in (("fresh gates", "64", 1.2), ("no row saturated", "2200", 1.6)):
        steps.append(Line(f"attention, cope, {what}; own plain", [*attention, "cope", "--pe.p-max", p_max],
                          [*attention, "none"], dict.fromkeys(PRECISIONS, goal), own=True))
    steps.append(Line("attention, none, T 4096; fused attention", [*attention, "none"],
                      ["--attention", "--pe", "none"], {"f32": None, "tf32": None, "bf16": 0.5}))
    return steps


def result_of(command):
    print(" ".join(command), file=sys.stderr)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def seconds_of(result):
    return result["step_s"] if result["work"] == "step" else result["both_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tally", default="build/cuda/tally")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="lines whose name has this part")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--small", action="store_true", help="sizes that take seconds, to try the script")
    args = parser.parse_args()

    on_gpu = args.device == "cuda"
    device = ["--device", args.device]

    def sizes(words, width):
        if args.small:
            return ["--length", "64", "--batch", "2", width, "32", "--steps", "2"]
        return LONG if words[0].endswith("attention") else []

    def ours(words, precision):
        products = ["--precision", precision] if on_gpu else []
        return result_of([args.tally, "bench", *words, *sizes(words, "--model.width"), *device, *products, "--json"])

    def peer(words, precision):
        products = ["--precision", precision] if on_gpu else []
        return result_of([sys.executable, str(PEER), *words, *sizes(words, "--width"), *device, *products])

    machine, version = "", ""
    rows = ["| work; against | products | tally | the other | ratio | goal | |", "|---|---|---|---|---|---|---|"]
    for line in lines():
        if args.only not in line.name or ("--graph" in line.other and not on_gpu):
            continue
        for precision, goal in line.goals.items():
            if precision != "f32" and not on_gpu:
                continue
            pairs = []
            for _ in range(args.rounds):
                pairs.append((ours(line.ours, precision), (ours if line.own else peer)(line.other, precision)))
            mine, other = pairs[0]
            machine = mine["machine"]["device_name"] or mine["machine"]["processor"]
            version = other.get("peer", version)
            memory = "tensor_peak_mib" if on_gpu else "peak_rss_mib"
            figure = (lambda r: r[memory]) if line.memory else seconds_of
            unit = (lambda x: f"{x} MiB") if line.memory else (lambda x: f"{1e3 * x:.4g} ms")
            ratio = statistics.median(figure(a) / figure(b) if line.own else figure(b) / figure(a) for a, b in pairs)
            reached = goal is None or (ratio <= goal if line.own else ratio >= goal)
            rows.append("| " + " | ".join([
                line.name, precision, unit(statistics.median(figure(a) for a, _ in pairs)),
                unit(statistics.median(figure(b) for _, b in pairs)), f"{ratio:.2f}",
                "" if goal is None else f"{'at most' if line.own else 'at least'} {goal}",
                "" if reached else "missed"]) + " |")
    print(f"{machine}; {version}; medians of {args.rounds} rounds. Ratio: the other's over ours, of own lines ours over "
          "the other's.\n")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
