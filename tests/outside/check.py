#!/usr/bin/env python3
"""Recomputes a dump of tally from outside: logits, loss, attention, gates, positions and every parameter gradient.

    check.py WEIGHTS.safetensors CONFIG.json DUMP.safetensors [WEIGHTS CONFIG DUMP ...]

WEIGHTS is a checkpoint or an export, CONFIG the config.json of its run, DUMP made by `tally inspect ... --gradients`.
Needs Python 3 and numpy. Exit code 0: all within tolerance, 1: not, 77: numpy is missing (nothing was checked).

Deviation of a tensor: the largest |dump - ours in float64|, divided by the largest |ours|. (The gradient of a bias is
a plain sum over tokens or pairs, which may be zero except for rounding, as the gradient of the keys' bias is without
an encoding: it is divided by the sum of the sizes of its terms.)

Tolerance: a float32 program may be wrong by as much as a plain float32 program is, so the same model is also computed
here in float32: twice its deviation, three times for gradients. A lucky plain run must not fail the program, and
where large terms cancel luck is a factor of ten: the largest deviation of sixteen runs counts. Fifteen of them have
parameters moved by half a unit in the last place, and every other one has softmax's derivative from the output, as
fused attention has it, and 8 units in the last place at least. A float64 dump: 1e-10, or by the same rule, computed
in float64, if that is more.
"""

import argparse
import sys

try:
    import numpy as np
except ImportError:
    print("check.py: numpy is missing (Debian: python3-numpy); nothing was checked", file=sys.stderr)
    sys.exit(77)

import config as run_config
import model
import tape
import tensor_file

INPUTS = {"tokens", "targets", "loss_mask", "score_mask"}
FLOOR = 8 * float(np.finfo(np.float32).eps)
DOUBLE_TOLERANCE = 1e-10
FACTOR, GRADIENT_FACTOR = 2, 3
PLAIN_RUNS = 16


def deviations(values, exact, terms):
    """{name: deviation of values[name]}; infinite for another shape. `exact`, `terms`: as model.run has them."""
    result = {}
    for name in sorted(exact.keys() & values.keys()):
        scale = terms[name] if name in terms else np.abs(exact[name]).max(initial=0.0)
        if values[name].shape != exact[name].shape:
            result[name] = np.inf
            continue
        largest = np.abs(values[name].astype(np.float64) - exact[name]).max(initial=0.0)
        result[name] = 0.0 if largest == 0 else float(largest / scale) if scale > 0 else np.inf
    return result


def tolerances(arrays, config, dump, exact, terms, measured):
    """{name: tolerance}. Plain runs end when every `measured` deviation is within the tolerances found so far."""
    dtype, random = dump["logits"].dtype, np.random.RandomState(1)
    factors = {name: GRADIENT_FACTOR if name.startswith("gradients.") else FACTOR for name in exact}
    plain = {name: DOUBLE_TOLERANCE / factors[name] if dtype == np.float64 else FLOOR for name in exact}
    half_unit = float(np.finfo(dtype).eps) / 2
    for run in range(PLAIN_RUNS):
        if all(deviation <= factors[name] * plain[name] for name, deviation in measured.items()):
            break
        moved = arrays if run == 0 else {name: array * (1 + random.uniform(-half_unit, half_unit, array.shape))
                                         for name, array in arrays.items()}
        tape.derivative_by_output = run % 2 == 1
        for name, deviation in deviations(model.run(config, moved, dump, dtype)[0], exact, terms).items():
            plain[name] = max(plain[name], deviation)
    tape.derivative_by_output = False
    return {name: factors[name] * deviation for name, deviation in plain.items()}


def check(tensors, config, dump, out=None):
    """Prints the table; returns the complaints, one line each."""
    arrays = {name: array for name, array in tensors.items() if name.startswith("model.")}
    exact, used, terms = model.run(config, arrays, dump, np.float64)
    complaints = [f"parameter {name} is in the file, but the model of this configuration does not read it"
                  for name in sorted(arrays.keys() - used)]
    complaints += [f"the dump has no {name}" for name in sorted(exact.keys() - dump.keys())]
    complaints += [f"the dump has {name}, which is not known here"
                   for name in sorted(dump.keys() - exact.keys() - INPUTS)]

    measured = deviations(dump, exact, terms)
    allowed = tolerances(arrays, config, dump, exact, terms, measured)
    width = max(map(len, measured), default=0)
    print(f"{'tensor':{width}}  {'largest':>9}  {'deviation':>9}  {'tolerance':>9}", file=out)
    for name, deviation in measured.items():
        good = deviation <= allowed[name]  # false for NaN
        largest = np.abs(exact[name]).max(initial=0.0)
        print(f"{name:{width}}  {largest:9.2e}  {deviation:9.2e}  {allowed[name]:9.2e}{'' if good else '  WRONG'}",
              file=out)
        if not good:
            complaints.append(f"{name} deviates by {deviation:.2e}, {allowed[name]:.2e} allowed")
    return complaints


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="WEIGHTS CONFIG DUMP")
    files = parser.parse_args(given).files
    if len(files) % 3 != 0:
        parser.error("each check takes three files: WEIGHTS CONFIG DUMP")
    complaints = []
    for weights, config, dump in zip(files[0::3], files[1::3], files[2::3]):
        print(dump)
        complaints += [f"{dump}: {line}" for line in
                       check(tensor_file.read(weights)[0], run_config.read(config), tensor_file.read(dump)[0])]
    for line in complaints:
        print(f"WRONG: {line}")
    print(f"{len(complaints)} complaints" if complaints else "all within tolerance")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
