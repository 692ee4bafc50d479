#!/usr/bin/env python3
"""Writes tests/reference/printed.safetensors: arrays, and in the metadata their text as numpy prints it.

Usage: make_printed.py [--check]
"""
import pathlib
import sys

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(FOLDER.parent / "outside"))

import tensor_file  # noqa: E402


def arrays():
    random = np.random.default_rng(7)
    f32, f64 = np.float32, np.float64
    yield "whole", np.array([1, 2, -3], f32)
    yield "digits", np.array([[0.1, 2.5], [-3, 1 / 3]], f32)
    yield "digits_f64", np.array([[0.1, 2.5], [-3, 1 / 3]], f64)
    yield "negative_zero", np.array([-0.0, 0.0, 1.5], f32)
    yield "zeros", np.zeros((2, 3), f32)
    yield "small", np.array([0.0001, 1], f64)
    yield "smaller", np.array([0.00001, 1], f64)
    yield "small_f32", np.array([0.0001, 0.05], f32)
    yield "ratio", np.array([1.0, 1000.0], f32)
    yield "ratio_above", np.array([1.0, 1000.5], f32)
    yield "large", np.array([99999992, 16777218], f32)
    yield "larger", np.array([1e8, 2.5], f32)
    yield "powers", 10.0 ** np.arange(-5, 6)
    yield "hundreds", np.array([1e-150, 1e150, -3], f64)
    yield "digits_beyond_the_shortest", np.array([0.7, 0.1, 1.2345678e-9], f32)
    yield "not_finite", np.array([np.nan, np.inf, 1.25], f32)
    yield "negative_infinity", np.array([-np.inf, np.inf, 12345.5], f32)
    yield "only_nan", np.array([np.nan, -np.inf], f32)
    yield "scientific_not_finite", np.array([np.nan, 1e-9, 3], f64)
    yield "normal", random.standard_normal((3, 4)).astype(f32)
    yield "normal_f64", random.standard_normal((2, 3, 4))
    yield "long_row", random.standard_normal((2, 17)).astype(f32)
    yield "wide", random.standard_normal((50, 40)).astype(f32)
    yield "long", np.arange(2000).astype(f32)
    yield "thousand", np.arange(1000).astype(np.int32)
    yield "deep", random.integers(-50, 50, (2, 3, 2, 3)).astype(np.int64)
    yield "deep_shortened", random.standard_normal((9, 2, 8, 10))
    yield "i64", np.array([[2 ** 62, -1], [0, 7]], np.int64)
    yield "i32", np.arange(-3, 9).astype(np.int32).reshape(3, 4)
    yield "bool", np.array([[True, False], [True, True]])
    yield "only_true", np.array([True, True])
    yield "column", np.arange(3).astype(f32).reshape(3, 1)
    for n, x in enumerate((1.5, 2.0, 1e-5, 1e16, 123456789.0, -0.1, np.nan)):
        yield f"number{n}", np.array(x, f32)
        yield f"number{n}_f64", np.array(x, f64)
    yield "number_i32", np.array(-4, np.int32)
    yield "number_bool", np.array(False)


if __name__ == "__main__":
    np.set_printoptions(edgeitems=3, threshold=1000, precision=8, linewidth=75, suppress=False, floatmode="maxprec")
    path = FOLDER / "printed.safetensors"
    if sys.argv[1:] != ["--check"]:
        tensors = dict(arrays())
        tensor_file.write(path, tensors, {name: str(x) for name, x in tensors.items()})
        sys.exit()
    stored, texts = tensor_file.read(path)
    wrong = sorted({name for name, x in stored.items() if texts.get(name) != str(x)} | stored.keys() ^ dict(arrays()).keys())
    print("not as numpy prints it:", *wrong) if wrong else print("all texts are as numpy prints them")
    sys.exit(bool(wrong))
