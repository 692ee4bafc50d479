#!/usr/bin/env python3
"""What the compiler makes of the attention kernels: registers of a thread and bytes spilled, for each form of each.

    python3 cuda/registers.py [--arch sm_90] [--nvcc nvcc]

Takes minutes and no GPU. Exit code 1: a kernel in single precision spills (those in double are for checks), 2: nvcc is
missing or failed.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent
FILES = ("attention", "attention_backward_rows", "attention_backward_keys")
PRODUCTS = ("f32", "tf32", "bf16")
FAMILIES = ("plain", "contextual", "gated", "ruled")
# Template arguments as the symbol has them: type, products, width of a head in shared memory, family.
KERNEL = re.compile(r"\d+(attention_[a-z_]+)I([fd])LN\w*?MatmulPrecisionE(\d)ELi(\d+)ELNS\w*?FamilyE(\d)E")


def report(nvcc, arch, name):
    """[(kernel, type, products, width, family, registers, spilled bytes)] of one file."""
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc, f"-I{FOLDER.parent}", "-O3", "-DNDEBUG", "-std=c++20", "--expt-relaxed-constexpr", "-ftz=true",
                   "-Xcompiler=-fPIC", f"-arch={arch}", "-Xptxas=-v", "-c", FOLDER / f"{name}.cu", "-o",
                   os.path.join(folder, "out.o")]
        outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    if outcome.returncode != 0:
        raise RuntimeError(f"nvcc failed on {name}.cu:\n{outcome.stderr}")
    rows, form, spilled = [], None, 0
    for line in outcome.stderr.splitlines():
        if found := re.search(r"Compiling entry function '(\S+)'", line):
            form, spilled = KERNEL.search(found[1]), 0
        elif found := re.search(r"(\d+) bytes spill stores", line):
            spilled = int(found[1])
        elif form and (found := re.search(r"Used (\d+) registers", line)):
            kernel, kind, products, width, family = form.groups()
            rows.append((kernel, "f64" if kind == "d" else "f32", PRODUCTS[int(products)], int(width),
                         FAMILIES[int(family)], int(found[1]), spilled))
            form = None
    if not rows:
        raise RuntimeError(f"nvcc's report on {name}.cu has no kernel of attention")
    return sorted(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--nvcc", default="nvcc")
    options = parser.parse_args()
    spills = 0
    try:
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            print(f"{'kernel':24} {'type':4} {'products':8} {'width':>5} {'family':14} {'registers':>9} {'spilled':>7}")
            for rows in pool.map(lambda name: report(options.nvcc, options.arch, name), FILES):
                for kernel, kind, products, width, family, registers, spilled in rows:
                    print(f"{kernel:24} {kind:4} {products:8} {width:5} {family:14} {registers:9} {spilled:7}")
                    spills += kind == "f32" and spilled > 0
    except FileNotFoundError:
        print(f"registers.py: there is no {options.nvcc} here; CUDA's compiler is needed, a GPU is not", file=sys.stderr)
        return 2
    except RuntimeError as error:
        print(f"registers.py: {error}", file=sys.stderr)
        return 2
    print(f"{spills} kernels in single precision spill registers")
    return 1 if spills else 0


if __name__ == "__main__":
    sys.exit(main())
