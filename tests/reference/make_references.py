#!/usr/bin/env python3
"""Writes the reference values of the position encodings beside itself; README.md describes the files.

    make_references.py            writes the files
    make_references.py --check    compares the files that are there with what the formulas give now; of gradients a
                                  tenth of the elements, or all with TALLY_TEST_EVERYTHING=1

Forward: the formulas of the *_references.py in this folder, in plain loops over Python numbers, nothing clever. Gradients:
complex step, the imaginary part of L(input + 1e-30 i) / 1e-30 for every single element, L = sum(output * d_output); exact to
rounding, and no backward formula to get wrong. Needs Python 3 and numpy.
"""

import argparse
import importlib
import os
import pathlib
import sys
import zlib

try:
    import numpy as np
except ImportError:
    print("make_references.py: numpy is missing (Debian: python3-numpy); nothing was checked", file=sys.stderr)
    sys.exit(77)

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "outside")]
import tensor_file
from reference_case import B, CASES, H, KINK, T, forward

from bias_references import t5_bucket
from classic_references import published_slopes

for module in sorted(FOLDER.glob("*_references.py")):
    if module.stem != "make_references":
        importlib.import_module(module.stem)  # adds to CASES

STEP = 1e-30
TOLERANCE = 1e-12  # of a tensor's largest magnitude, for --check: exp may differ in the last place elsewhere


def draw(case, random):
    """Inputs, parameters and d_output; multiples of 2^-10, so that they are exact in float32 too."""
    def normal(shape):
        return np.round(random.normal(size=shape) * 1024) / 1024

    inputs = {"x": normal((B, T, case.D))}
    if not case.is_embed:
        inputs |= {name: normal((B, H, T, case.d)) for name in "qkv"}
    inputs |= {name: normal(shape) for name, shape in case.parameter_shapes().items()}
    if case.adjust:
        case.adjust(inputs)
    return inputs, normal((B, T, case.D) if case.is_embed else (B, H, T, case.d))


def near_integer(numbers):
    return any(abs(number - round(number)) < KINK for number in numbers)


def plain(value):
    """Drops the imaginary part, which is 0."""
    return np.real(np.array(value)).astype(np.float64)


def elements(nested):
    """The innermost lists with an index each, in order."""
    for n, item in enumerate(nested):
        if isinstance(item, list):
            yield from elements(item)
        else:
            yield nested, n


def make(case, share=1.0):
    """{tensor name: array} of one file. The random numbers follow from its name. With a share below 1 so many of the
    gradients' elements, at least two of each, and NaN for the others."""
    random = np.random.RandomState(zlib.crc32(case.file.encode()))
    while True:
        inputs, d_output = draw(case, random)
        lists = {name: array.tolist() for name, array in inputs.items()}
        expected, kinks = forward(case, lists)
        if case.at_kinks or not near_integer(kinks):
            break
    tensors = {**inputs, "d_output": d_output, **{name: plain(value) for name, value in expected.items()}}

    upstream = [row[n] for row, n in elements(d_output.tolist())]

    def slope(entries):
        """Of the loss along these elements of the inputs together, (row, n)."""
        kept = [row[n] for row, n in entries]
        for row, n in entries:
            row[n] = complex(row[n], STEP)
        output = forward(case, lists)[0]["output"]
        for (row, n), value in zip(entries, kept):
            row[n] = value
        return sum(row[n] * d for (row, n), d in zip(elements(output), upstream)).imag / STEP

    for name, array in inputs.items():
        entries = list(elements(lists[name]))
        if name == "x" and slope(entries) == 0:
            continue  # plays no part beyond q, k, v
        taken = random.uniform(size=len(entries)) < share
        taken[random.permutation(len(entries))[:2]] = True
        slopes = [slope([entry]) if wanted else np.nan for entry, wanted in zip(entries, taken)]
        tensors[f"d_{name}"] = np.array(slopes).reshape(array.shape)
    return tensors


def files(share):
    """(path, tensors, metadata) of every file, with this share of the gradients' elements."""
    for case in CASES:
        yield f"{case.file}.safetensors", make(case, share), case.metadata()
    slopes = {f"slopes.{heads}": np.array(published_slopes(heads)) for heads in (1, 2, 3, 4, 6, 8, 12, 16)}
    yield "alibi-slopes.safetensors", slopes, {"encoding": "alibi-slopes"}
    buckets = np.array([float(t5_bucket(n)) for n in range(300)])
    yield "t5-buckets.safetensors", {"buckets": buckets}, {"encoding": "t5-buckets"}


def largest(tensors, name):
    """Magnitude that a tensor's errors are measured by. The gradient of a bias may be zero but for rounding."""
    weight = name.removesuffix(".bias") + ".weight"
    names = {name, weight} if name.startswith("d_") and weight in tensors else {name}
    return max(np.nanmax(np.abs(tensors[one])) for one in names)


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
        worst = np.nanmax(np.abs(old.astype(np.float64) - array))  # NaN: not computed anew
        # A tensor is measured by all of its elements, of which some were not computed anew and may be wrong.
        if not worst <= TOLERANCE * min(largest(stored[0], name), 100 * largest(made[0], name)):
            return f"{name} differs by {worst:.1e}"
    return None


def write_or_check(folder, contents):
    """The command line of this script and of its sister for plain operations. Returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compare the files with what the formulas give now")
    check, wrong = parser.parse_args().check, 0
    for name, tensors, metadata in contents:
        path = pathlib.Path(folder, name)
        if not check:
            tensor_file.write(path, tensors, metadata)
            continue
        found = difference(tensor_file.read(path), (tensors, metadata)) if path.exists() else "missing"
        if found:
            print(f"{name}: {found}")
            wrong += 1
    if check:
        print(f"{wrong} files differ" if wrong else "all files are as the formulas give them")
    return 1 if wrong else 0


if __name__ == "__main__":
    only_some = "--check" in sys.argv and os.environ.get("TALLY_TEST_EVERYTHING") != "1"
    sys.exit(write_or_check(FOLDER, files(0.1 if only_some else 1.0)))
