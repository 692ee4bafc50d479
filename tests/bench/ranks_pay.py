#!/usr/bin/env python3
"""How many machines pay off: the time of a training step by R ranks, computed, as a table in Markdown.

A step alone takes T. R ranks of one micro-batch each take
    T / R + max(X - B / R, X / N)         and where the exchange only begins when backward has ended, T / R + X,
    X = V / bandwidth + 2 (R - 1) N latency,     V = 2 (R - 1) / R * 4 P,     with a split optimiser 1.5 times as much:
P parameters' gradients in f32 are sent and received twice (core/distributed/gradient_reducer.hpp) in N buckets (tasks/training/tree_sum.hpp), the
parameters once; backward, B = 2/3 of the step, hides all of the exchange but the last bucket, which is full when it ends.

Links: 93% of the nominal bandwidth, and 2 us, as MPI was measured to have past the kernel at 40 Gbit/s (J. Squyres,
"MPI over 40Gb Ethernet", 2014: 37.23 Gbit/s, 1.93 us, OpenMPI 1.8.1). 30 us through the kernel are assumed for 10 Gbit/s.
"""
MODELS = [("flip-flop, the paper's model, 16 sequences", 3.2e6, 0.59, "two cores, measured"),
          ("GPT-2 (124M), 16,384 tokens", 124e6, 6 * 124e6 * 16384 / 0.4e12, "two cores at 0.4 TFLOP/s"),
          ("GPT-2 (124M), 524,288 tokens", 124e6, 6 * 124e6 * 524288 / 400e12, "a GPU at 400 TFLOP/s"),
          ("1B, 524,288 tokens", 1e9, 6 * 1e9 * 524288 / 400e12, "a GPU at 400 TFLOP/s")]
LINKS = [("10 Gbit/s", 0.93 * 1.25e9, 30e-6), ("100 Gbit/s", 0.93 * 12.5e9, 2e-6), ("400 Gbit/s", 0.93 * 50e9, 2e-6)]
RANKS = [2, 8, 32]
BACKWARD = 2 / 3


def seconds(alone, parameters, ranks, bandwidth, latency, beside=True, split=False):
    size = 4 * parameters
    buckets = size / min(max(size / 16, 2**18), 2**22)
    exchange = 2 * (ranks - 1) / ranks * size / bandwidth + 2 * (ranks - 1) * buckets * latency
    visible = max(exchange - BACKWARD * alone / ranks, exchange / buckets) if beside else exchange
    parameters_too = (ranks - 1) / ranks * size / bandwidth + latency if split else 0
    return alone / ranks + visible + parameters_too


def main():
    print("| model, batch | a step alone | gradients | link | " + " | ".join(f"{r} ranks" for r in RANKS) + " |")
    print("|---" * (4 + len(RANKS)) + "|")
    for name, parameters, alone, where in MODELS:
        for link, bandwidth, latency in LINKS:
            gains = []
            for ranks in RANKS:
                ways = [seconds(alone, parameters, ranks, bandwidth, latency, *way)
                        for way in ((False, False), (True, False), (True, True))]
                gains.append(" / ".join(f"{alone / way:.1f}" for way in ways))
            if "16 sequences" in name:
                gains[RANKS.index(32)] = "-"  # there are no more than 16 to share
            print(f"| {name} | {alone:.2g} s ({where}) | {4 * parameters / 1e6:.0f} MB | {link} | " + " | ".join(gains) + " |")


if __name__ == "__main__":
    main()
