#!/usr/bin/env python3
"""Writes numbers of the published code of encodings to <name>.safetensors in this folder; README.md describes them.

    make_published.py --code FOLDER [--check] [NAME ...]

FOLDER holds checkouts as <owner>/<repository> (of packages: the unpacked files at their place in the repository).
Missing sources are skipped, with a message. --check compares the files with the code's results instead. Needs Python
3.11, numpy, torch and einops.
"""

import argparse
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "outside")]
import tensor_file
from published_case import CASES, make, metadata

import content_cases  # noqa: F401 - these add to CASES
import decay_cases  # noqa: F401
import grape_cases  # noqa: F401
import network_cases  # noqa: F401
import rotation_cases  # noqa: F401
import score_cases  # noqa: F401

TOLERANCE = 1e-12  # of a tensor's largest magnitude: another version of a library adds up in another order


def difference(stored, made):
    """The first difference between two files' contents in words, or None."""
    if other := tensor_file.other_contents(stored, made):
        return other
    for name, array in made[0].items():
        old = stored[0][name]
        if old.shape != array.shape:
            return f"{name} is {list(old.shape)}, not {list(array.shape)}"
        scale = max(1.0, np.abs(array).max()) if name.startswith("d_") else np.abs(array).max()
        worst = np.abs(old - array).max()
        if not worst <= TOLERANCE * scale:
            return f"{name} differs by {worst:.1e}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--code", required=True, help="the folder of the checkouts")
    parser.add_argument("--check", action="store_true", help="compare the files with what the code gives now")
    parser.add_argument("names", nargs="*", help="of files, without .safetensors; all where none is given")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - {case.file for case in CASES}
    if unknown:
        parser.error(f"no file {', '.join(sorted(unknown))}")
    wrong = absent = 0
    for case in CASES:
        if arguments.names and case.file not in arguments.names:
            continue
        if not pathlib.Path(arguments.code, case.source.repository, case.source.path).exists():
            print(f"{case.file}: not made, {case.source.repository} {case.source.path} is not there")
            absent += 1
            continue
        made = make(case, arguments.code), metadata(case)
        path = HERE / f"{case.file}.safetensors"
        if not arguments.check:
            tensor_file.write(path, *made)
            continue
        found = difference(tensor_file.read(path), made) if path.exists() else "missing"
        if found:
            print(f"{case.file}: {found}")
            wrong += 1
    print(f"{len(CASES)} files, {absent} without their source, {wrong} that differ")
    return 1 if wrong or absent else 0


if __name__ == "__main__":
    sys.exit(main())
