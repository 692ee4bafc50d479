#!/usr/bin/env python3
"""Writes tests/reference/numbers.safetensors: numbers of f32 and f64 with the nearest ones of two bytes.

By rational arithmetic: a number is a multiple of a step of its power of two, and the multiple is rounded, halves to
even.

Usage: make_numbers.py [--check]

given_f32 [N], given_f64 [M]    as they are, all finite
bf16_f32 [N], bf16_f64 [M]      i32: the 16 bits of the nearest bfloat16; below its normal numbers 0 with the sign
f16_f64 [M]                     i32: those of the nearest binary16, which has numbers below the normal ones
"""
import math
import pathlib
import sys
from fractions import Fraction

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(FOLDER))

import make_references  # noqa: E402

BF16 = {"fraction": 7, "exponents": 8, "below_normal": False}
F16 = {"fraction": 10, "exponents": 5, "below_normal": True}


def bits(x, fraction, exponents, below_normal):
    """The bits of the nearest number with these numbers of bits for fraction and exponent."""
    sign = (1 << (fraction + exponents)) if math.copysign(1.0, x) < 0 else 0
    largest_exponent, bias = (1 << exponents) - 1, (1 << (exponents - 1)) - 1
    exact, least = abs(Fraction(x)), 1 - bias
    if exact == 0 or (not below_normal and exact < Fraction(2) ** least):
        return sign
    power = least
    while exact >= Fraction(2) ** (power + 1):
        power += 1
    steps = round(exact / Fraction(2) ** (power - fraction))  # Python rounds halves to the even one
    if steps == 1 << (fraction + 1):
        steps, power = steps // 2, power + 1
    if power > bias:
        return sign | largest_exponent << fraction
    if steps < 1 << fraction:  # no bit before the point
        return sign | steps
    return sign | (power + bias) << fraction | (steps - (1 << fraction))


def given(random):
    """Numbers of every size, at and next to the halves between neighbours, and at the ends of the types."""
    numbers = [0.0, -0.0, 1.0, -1.5, 65504.0, 65519.99, 65520.0, 65536.0, -70000.0]
    for power in (-149, -140, -127, -126, -125, -30, -25, -24, -20, -15, -14, -13, -1, 0, 1, 14, 15, 16, 126, 127):
        for steps in (256, 257, 258, 259, 260, 511, 2048, 2049, 2050, 2051, 4095):
            exact = math.ldexp(steps, power - steps.bit_length() + 1)
            for beside in (0.0, 2.0 ** -20, -2.0 ** -20, 2.0 ** -40, -2.0 ** -40):
                numbers += [exact * (1 + beside), -exact * (1 + beside)]
    numbers += list(random.standard_normal(300) * 2.0 ** random.integers(-60, 60, 300))
    return np.array(numbers, dtype=np.float64)


if __name__ == "__main__":
    wide = given(np.random.default_rng(16))
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    tensors = {"given_f32": narrow[np.isfinite(narrow)], "given_f64": wide}
    for name, values in (("f32", tensors["given_f32"]), ("f64", wide)):
        tensors[f"bf16_{name}"] = np.array([bits(float(x), **BF16) for x in values], dtype=np.int32)
    tensors["f16_f64"] = np.array([bits(float(x), **F16) for x in wide], dtype=np.int32)
    # numpy has binary16 itself
    with np.errstate(over="ignore"):
        assert (tensors["f16_f64"] == wide.astype(np.float16).view(np.uint16)).all()
    sys.exit(make_references.write_or_check(FOLDER, [("numbers.safetensors", tensors, {})]))
