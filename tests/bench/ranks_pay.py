#!/usr/bin/env python3
"""How many machines pay off: the time of a training step by R ranks, computed, as a table in Markdown.

A step takes T / R + 2 (R - 1) / R * bytes / bandwidth + 2 (R - 1) * buckets * latency: each rank computes its share, then
sends and receives each part of the gradients twice (core/ranks.cpp), in buckets of 4 MiB, while nothing is computed.
Bandwidths are the nominal
ones of the links; assumed are 30 us of latency for TCP over Ethernet and 2 us for InfiniBand.
"""
MODELS = [("flip-flop, the paper's model, 16 sequences", 3.2e6, 0.59, "two cores, measured"),
          ("GPT-2 (124M), 16,384 tokens", 124e6, 6 * 124e6 * 16384 / 0.4e12, "two cores at 0.4 TFLOP/s"),
          ("GPT-2 (124M), 524,288 tokens", 124e6, 6 * 124e6 * 524288 / 400e12, "a GPU at 400 TFLOP/s"),
          ("1B, 524,288 tokens", 1e9, 6 * 1e9 * 524288 / 400e12, "a GPU at 400 TFLOP/s")]
LINKS = [("10 Gbit/s", 1.25e9, 30e-6), ("100 Gbit/s", 12.5e9, 2e-6), ("400 Gbit/s", 50e9, 2e-6)]
RANKS = [2, 8, 32]


def seconds(alone, parameters, ranks, bandwidth, latency):
    size = 4 * parameters
    buckets = max(1, size / 2**22)
    return alone / ranks + 2 * (ranks - 1) / ranks * size / bandwidth + 2 * (ranks - 1) * buckets * latency


def main():
    print("| model, batch | a step alone | gradients | link | " + " | ".join(f"{r} ranks" for r in RANKS) + " |")
    print("|---" * (4 + len(RANKS)) + "|")
    for name, parameters, alone, where in MODELS:
        for link, bandwidth, latency in LINKS:
            gains = [f"{alone / seconds(alone, parameters, r, bandwidth, latency):.1f}x" for r in RANKS]
            if "16 sequences" in name:
                gains[RANKS.index(32)] = "-"  # there are no more than 16 to share
            print(f"| {name} | {alone:.2g} s ({where}) | {4 * parameters / 1e6:.0f} MB | {link} | " + " | ".join(gains) + " |")


if __name__ == "__main__":
    main()
