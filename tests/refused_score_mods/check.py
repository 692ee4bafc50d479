#!/usr/bin/env python3
"""The first error of every wrong score modification of score_mods.cpp is its sentence.

    check.py COMPILER
"""
import os
import pathlib
import re
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent


def errors_of(compiler, options, source):
    done = subprocess.run([compiler, "-std=c++20", "-fopenmp", "-fsyntax-only", f"-I{FOLDER.parent.parent}", *options, source],
                          capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    assert done.returncode != 0, f"{source} is not refused"
    return done.stderr.splitlines()


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    compiler = sys.argv[1]
    source = FOLDER / "score_mods.cpp"
    expected = re.findall(r'^REFUSED\((\w+), "([^"]+)"', source.read_text(), re.MULTILINE)
    assert len(expected) == source.read_text().count("\nREFUSED("), "a score modification whose first line is not understood"
    clang = "clang" in compiler
    # An error with its context: the lines before it that name the place that required it, and the lines after it.
    said, pending = [], []
    for line in errors_of(compiler, ["-ferror-limit=0"][:clang], source):
        pending.append(line)
        if " error: " in line:
            said.append([line, "\n".join(pending)])
            pending = []
        elif said and clang:  # says it behind
            said[-1][1] += "\n" + line
    wrong = []
    for stem, sentence in expected:
        own = [error for error, context in said if re.search(rf"\bWrong{stem}\b", context)]
        if not own:
            wrong.append(f"{stem}: nothing is said of it")
        elif sentence not in own[0]:
            wrong.append(f"{stem}: first is said\n    {own[0]}\n  not\n    {sentence}")
    print(*wrong, f"{len(expected)} wrong score modifications, {'not all of them' if wrong else 'each'} refused by its sentence", sep="\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
