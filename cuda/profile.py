#!/usr/bin/env python3
"""Compiles forms of the attention kernels and checks limits on their registers and instructions. Needs no GPU.

    python3 cuda/profile.py [--limits cuda/attention/limits.json] [--arch sm_90] [--nvcc nvcc] [--nvdisasm nvdisasm]

The limits file lists forms: a kernel's template arguments, its largest number of registers, and for each loop with
tensor core instructions, in the order of the code, the largest number of instructions per HMMA. These loops have no
local memory, which spilled registers need; outside of them a form has at most "local" such instructions, or none. Loops and
forms marked "staged" copy (LDGSTS) and read (LDSM) staged tiles.
nvdisasm: `pip install nvidia-cuda-nvdisasm`. Exit status 1: a limit is broken; 2: a tool is missing or failed.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LABEL = re.compile(r"^(\.L_x_\d+):")
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)(.*?);")
JUMP = re.compile(r"BRA|EXIT|RET|BRX")
# A form of a kernel, with a score modification as core/cmake/score_mods.cmake includes it.
SOURCE = """#include "{header}"
#define TALLY_SCORE_MOD_ONLY
#define TALLY_SCORE_MOD_AGAIN(stem, Mod) \\
  namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {{ \\
  template __global__ void {kernel}(const __grid_constant__ DeviceCall<float>); }} \\
  static_assert(true)
{score_mod}
"""


def compiled(form, arch, nvcc, folder):
    """The path of the form's cubin."""
    own = f'#include "{form["score_mod"]}"' if "score_mod" in form else "TALLY_SCORE_MOD_AGAIN(none, NoScoreMod);"
    source, target = pathlib.Path(folder, "form.cu"), pathlib.Path(folder, "form.cubin")
    source.write_text(SOURCE.format(header=form["header"], kernel=form["kernel"], score_mod=own))
    subprocess.run([nvcc, f"-I{ROOT}", "-std=c++20", "-O3", "-DNDEBUG", "--expt-relaxed-constexpr", "-ftz=true",
                    f"-arch={arch}", "-cubin", source, "-o", target], check=True)
    return target


def disassembled(path, nvdisasm):
    """[(predicate, operation, operands)] and the labels' places among them."""
    text = subprocess.run([nvdisasm, "-c", path], check=True, capture_output=True, text=True).stdout
    code, labels = [], {}
    for line in text[text.index(".text.attention") if ".text.attention" in text else text.index(".text."):].splitlines():
        if match := LABEL.match(line):
            labels[match[1]] = len(code)
        elif match := INSTRUCTION.match(line):
            code.append(match.groups())
    return code, labels


def loops_of(code, labels):
    """The innermost loops with HMMA, in the order of the code: each a list of instructions."""
    begins = sorted({0, *labels.values(), *(n + 1 for n, (_, operation, _) in enumerate(code) if JUMP.match(operation))})
    begins = [n for n in begins if n < len(code)]
    ends = begins[1:] + [len(code)]
    after, before = [], collections.defaultdict(list)
    for n, end in enumerate(ends):
        predicate, operation, operands = code[end - 1]
        target = re.search(r"(\.L_x_\d+)", operands)
        next_ones = [begins.index(labels[target[1]])] if operation.startswith("BRA") and target else []
        always = not predicate and ".DIV" not in operation and not re.match(r"[^`(]*\bU?P\d", operands)
        if not (always and JUMP.match(operation)) and end < len(code):
            next_ones.append(n + 1)
        after.append(next_ones)
        for m in next_ones:
            before[m].append(n)
    loops = collections.defaultdict(set)  # by their first block
    for n, next_ones in enumerate(after):
        for head in (m for m in next_ones if m <= n):
            waiting = [n]
            while waiting:
                block = waiting.pop()
                if block >= head and block not in loops[head]:
                    loops[head].add(block)
                    waiting += before[block] if block != head else []
    whole = {n: [code[i] for m in sorted(loop) for i in range(begins[m], ends[m])] for n, loop in loops.items()}
    own = {n: loops[n] for n, loop in whole.items() if count(loop, "HMMA")}
    return [whole[n] for n in sorted(own) if not any(other < own[n] for other in own.values())]


def count(code, *names):
    return sum(bool(re.match("|".join(names), operation)) for _, operation, _ in code)


def check(form, code, labels):
    """Prints the form's counts and returns its broken limits."""
    numbers = re.findall(r"\bR(\d+)", " ".join(operands for _, _, operands in code))
    registers, local = max(map(int, numbers)) + 1, count(code, "LDL", "STL")
    print(f"{form['name']}: {registers} registers, {len(code)} instructions, {local} of local memory")
    broken = []

    def expect(holds, text):
        if not holds:
            broken.append(f"{form['name']}: {text}")

    expect(registers <= form["registers"], f"{registers} registers, the limit is {form['registers']}")
    expect(local <= form.get("local", 0), f"{local} loads and stores of local memory")

    def expect_staged(marked, own, name):
        expect(not marked.get("staged") or (count(own, "LDSM") and count(own, "LDGSTS")),
               f"{name}: tiles are not staged by LDGSTS and read by LDSM")

    expect_staged(form, code, "kernel")
    loops = loops_of(code, labels)
    expect(len(loops) == len(form["loops"]), f"{len(loops)} loops with HMMA, {len(form['loops'])} have limits")
    for own, limit in zip(loops, form["loops"]):
        products = count(own, "HMMA")
        print(f"  {limit['name']:10} {len(own):5} instructions, {products:4} HMMA, {len(own) / products:6.2f} per HMMA, "
              f"{count(own, 'LDSM')} LDSM, {count(own, 'LDGSTS')} LDGSTS, {count(own, 'BRA')} branches, "
              f"{16 * len(own) / 1024:.1f} KiB")
        ratio = len(own) / products
        expect(ratio <= limit["per_hmma"], f"{limit['name']}: {ratio:.2f} per HMMA, the limit is {limit['per_hmma']}")
        expect(not count(own, "LDL", "STL"), f"{limit['name']}: loads and stores of local memory")
        expect(count(own, "BRA") <= limit.get("branches", len(own)), f"{limit['name']}: {count(own, 'BRA')} branches")
        expect_staged(limit, own, limit["name"])
    return broken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limits", default=ROOT / "cuda/attention/limits.json")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--nvdisasm", default="nvdisasm")
    given = parser.parse_args()
    broken = []
    for form in json.loads(pathlib.Path(given.limits).read_text()):
        with tempfile.TemporaryDirectory() as folder:
            try:
                listing = disassembled(compiled(form, given.arch, given.nvcc, folder), given.nvdisasm)
            except (OSError, subprocess.CalledProcessError) as error:
                print(f"profile.py: {error}", file=sys.stderr)
                return 2
        broken += check(form, *listing)
    print("\n".join(broken), file=sys.stderr, end="\n" if broken else "")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
