#!/usr/bin/env python3
"""The scripts of `tally sweep --print parallel` and `--print make`, run by the real programs: every run is finished
exactly once, with the bytes that one process alone gives it.

Usage: parallel.py TALLY parallel|make. Exit status 77 (skipped) where the program is missing, 1 where something differs.
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

from grid import differences, grid, trained_alone

COMMANDS = {"parallel": ["bash", "script", "2"],
            "make": ["make", "--silent", "--keep-going", "--jobs=2", "--file=script"]}


def main(tally, program):
    if shutil.which(program) is None:
        print(f"skipped: no {program} here; tests/install.sh --with-slurm installs it")
        return 77
    options = grid(seeds=2, steps=40)
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        alone, shared = place / "alone", place / "it's shared"  # a name that shells would take apart
        trained_alone(tally, alone, options)
        with open(place / "script", "wb") as script:
            subprocess.run([tally, "sweep", shared, *options, f"--print={program}"], check=True, stdout=script)
        for _ in range(2):  # started again it finds nothing to do
            subprocess.run(COMMANDS[program], cwd=place, check=True, stdout=subprocess.DEVNULL)
        wrong = list(differences(shared, alone))
    for line in wrong:
        print(line)
    print("as alone" if not wrong else "NOT as alone")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2]))
