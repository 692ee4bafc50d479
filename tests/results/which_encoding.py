#!/usr/bin/env python3
"""Writes the table of which-encoding.md, and its picture which-encoding.svg, from the other pages of this folder.

Usage: which_encoding.py

An interval is the mean +- t s / sqrt(n) of n seeds with standard deviation s, at a level of 95% (Student's t), cut at
the possible numbers.
"""
import math
import pathlib
import re

HERE = pathlib.Path(__file__).parent
T_95 = {2: 12.706, 3: 4.303}  # by the number of seeds

# Columns of every-task.md and their headings here.
ASKED = {
    "flip-flop sparse": "last write",
    "copy dense": "copy",
    "counting, few passes": "count",
    "mqar, twice the pairs": "recall",
    "s3 words": "state",
}
SEEDS = 3
TEXT = "prose, 4 times the context"
# The rows of the table; the picture has all encodings.
ROWS = ["none", "absolute", "rope", "alibi", "relative", "cope", "cope + rope", "contextual-rotary", "fox",
        "stick-breaking", "selective", "path", "grape-a", "grape-ap", "grape-m", "pope", "relative-bank", "bam", "repo"]
LEGEND = "filled: the share of the errors of none, a model without positions, that is avoided"


def first_table(page):
    """The first table of a page: a dictionary from the first cell of each row to {heading: cell}."""
    rows = []
    for line in (HERE / page).read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            if rows:
                break
            continue
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    headings = rows[0][1:]
    # The first of equal headings counts.
    return {row[0].rstrip(" †"): dict(reversed(list(zip(headings, row[1:])))) for row in rows[2:]}


def mean_and_deviation(cell):
    """Numbers of a cell such as `5.95% (4.88)`."""
    mean, deviation = re.match(r"([\d.]+)%? \(([\d.]+)\)", cell).groups()
    return float(mean), float(deviation)


def rounded(number):
    return f"{number:.2g}" if 0 < number < 10 else f"{number:.0f}"


def with_interval(cell, seeds, unit, most):
    mean, deviation = mean_and_deviation(cell)
    half = T_95[seeds] * deviation / math.sqrt(seeds)
    if half == 0:
        return f"{rounded(mean)}{unit}"
    return f"{rounded(mean)}{unit} ({rounded(max(0.0, mean - half))}-{rounded(min(most, mean + half))})"


def table(tasks, text, costs):
    lines = ["| encoding | " + " | ".join(ASKED.values()) + f" | {TEXT} | time of a step |",
             "|---|" + "---|" * (len(ASKED) + 2)]
    for row in ROWS:
        cells = [with_interval(tasks[row][column], SEEDS, "%", 100) if row in tasks else "" for column in ASKED]
        cells.append(with_interval(text[row]["1,024"], 2, "", math.inf) if row in text else "")
        cells.append(costs[row]["of none's"] if row in costs else "")
        lines.append("| " + " | ".join([row, *cells]) + " |")
    return lines


def picture(tasks):
    """A circle for each encoding and task, filled by the share of the errors of none that is avoided."""
    wrong = {row: [mean_and_deviation(cells[column])[0] for column in ASKED] for row, cells in tasks.items()}
    avoided = {row: [max(0.0, 1 - own / none) for own, none in zip(wrong[row], wrong["none"])] for row in wrong}
    order = sorted(wrong, key=lambda row: (-sum(avoided[row]), row))
    left, top, across, down, radius = 150, 40, 84, 22, 8
    width, height = left + across * len(ASKED) + 10, top + down * len(order) + 34
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
           'font-size="13">',
           "<title>Errors that each encoding avoids in five tasks</title>",
           "<style>text{fill:#1f2328}.full{fill:#1a7f37}.ring{fill:none;stroke:#59636e}"
           "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.full{fill:#3fb950}.ring{stroke:#9198a1}}</style>"]
    for n, heading in enumerate(ASKED.values()):
        svg.append(f'<text x="{left + across * n + across // 2}" y="{top - 22}" text-anchor="middle">{heading}</text>')
    for line, row in enumerate(order):
        y = top + down * line
        svg.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{row}</text>')
        for n, share in enumerate(avoided[row]):
            x = left + across * n + across // 2
            filled = radius * math.sqrt(share)
            svg.append(f'<circle class="ring" cx="{x}" cy="{y}" r="{radius}"/>')
            if filled > 0.3:
                svg.append(f'<circle class="full" cx="{x}" cy="{y}" r="{filled:.1f}"/>')
    svg += [f'<text x="10" y="{height - 10}">{LEGEND}</text>', "</svg>", ""]
    (HERE / "which-encoding.svg").write_text("\n".join(svg), encoding="utf-8")


def main():
    tasks, text, costs = first_table("every-task.md"), first_table("figure3.md"), first_table("encodings.md")
    page = HERE / "which-encoding.md"
    lines = page.read_text(encoding="utf-8").splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("| encoding |"))
    last = next(n for n in range(first, len(lines)) if not lines[n].startswith("|"))
    lines[first:last] = table(tasks, text, costs)
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    picture(tasks)


if __name__ == "__main__":
    main()
