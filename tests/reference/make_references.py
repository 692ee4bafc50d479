#!/usr/bin/env python3
"""Writes the reference values of the position encodings to this folder; README.md describes the files.

    make_references.py            writes the files that are missing or hold other values
    make_references.py --check    compares the files that are there with what the formulas give now

The formulas are in tests/outside, whose tape differentiates them. For each file central differences confirm the
gradients. Needs Python 3 and numpy.
"""

import argparse
import importlib
import pathlib
import sys

try:
    import numpy as np
except ImportError:
    print("make_references.py: numpy is missing (Debian: python3-numpy); nothing was checked", file=sys.stderr)
    sys.exit(77)

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "outside")]
import position_encodings as position
import tensor_file
from bias_encodings import t5_bucket
from reference_case import CASES, tensors_of, wrong_gradients

for module in sorted(FOLDER.glob("*_cases.py")):
    importlib.import_module(module.stem)  # adds to CASES

TOLERANCE = 1e-12  # of a tensor's largest magnitude: exp may differ in the last place elsewhere


def files():
    """(path, tensors, metadata) of every file."""
    tested = {name for case in CASES for name in case.parts}
    if untested := {name for hook in position.HOOKS.values() for name in hook} - tested:
        sys.exit(f"no case has the encoding {', '.join(sorted(untested))}")
    for case in CASES:
        tensors = tensors_of(case)
        if wrong := wrong_gradients(case, tensors):
            sys.exit(f"{case.file}: central differences contradict the gradients of {', '.join(wrong)}")
        yield f"{case.file}.safetensors", tensors, case.metadata()
    slopes = {f"slopes.{heads}": position.alibi_slopes(heads) for heads in (1, 2, 3, 4, 6, 8, 12, 16)}
    yield "alibi-slopes.safetensors", slopes, {"encoding": "alibi-slopes"}
    yield "t5-buckets.safetensors", {"buckets": t5_bucket(np.arange(300)).astype(float)}, {"encoding": "t5-buckets"}


def largest(tensors, name):
    """The magnitude that a tensor's errors are measured by. The gradient of a bias may be zero except for rounding."""
    weight = name.removesuffix(".bias") + ".weight"
    names = {name, weight} if name.startswith("d_") and weight in tensors else {name}
    return max(np.abs(tensors[one]).max() for one in names)


def difference(stored, made):
    """The first difference between two files' contents in words, or None."""
    if other := tensor_file.other_contents(stored, made):
        return other
    for name, array in made[0].items():
        old = stored[0][name]
        if old.dtype != array.dtype or old.shape != array.shape:
            return f"{name} is {old.dtype}{list(old.shape)}, not {array.dtype}{list(array.shape)}"
        if not np.isfinite(old).all():
            return f"{name} is not finite"
        worst = np.abs(old.astype(np.float64) - array).max()
        if not worst <= TOLERANCE * largest(made[0], name):  # also for NaN
            return f"{name} differs by {worst:.1e}"
    return None


def write_or_check(folder, contents):
    """The command line of this script and of those for plain operations. Returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compare the files with what the formulas give now")
    check, differing = parser.parse_args().check, 0
    for name, tensors, metadata in contents:
        path = pathlib.Path(folder, name)
        found = difference(tensor_file.read(path), (tensors, metadata)) if path.exists() else "missing"
        if not found:
            continue  # a file that agrees keeps its bytes
        differing += 1
        print(f"{name}: {found}{'' if check else '; written'}")
        if not check:
            tensor_file.write(path, tensors, metadata)
    print(f"{differing} files differ" if differing else "all files are as the formulas give them")
    return 1 if check and differing else 0


if __name__ == "__main__":
    sys.exit(write_or_check(FOLDER, files()))
