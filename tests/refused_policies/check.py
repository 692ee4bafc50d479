#!/usr/bin/env python3
"""Every wrong policy of policies.cpp is refused by its sentence, and before anything else is said of it.

    check.py COMPILER [its options]
"""
import os
import pathlib
import re
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    source = FOLDER / "policies.cpp"
    expected = re.findall(r'^REFUSED\((\w+), "([^"]+)"', source.read_text(), re.MULTILINE)
    assert len(expected) == source.read_text().count("\nREFUSED("), "a policy whose first line is not understood"
    clang = "clang" in sys.argv[1]
    options = ["-std=c++20", "-fopenmp", "-fsyntax-only", f"-I{FOLDER.parent.parent}", *["-ferror-limit=0"][:clang]]
    done = subprocess.run([*sys.argv[1:], *options, source], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    # An error with what leads to it: the lines before it that say where it is required from, and those behind it.
    said, pending = [], []
    for line in done.stderr.splitlines():
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
    print(*wrong, f"{len(expected)} wrong policies, {len(expected) - len(wrong)} refused by their sentences", sep="\n")
    sys.exit(1 if wrong or done.returncode == 0 else 0)


if __name__ == "__main__":
    main()
