#!/usr/bin/env python3
"""Checks that a lesson of the course shows what its files contain and what its program prints.

    lesson.py LESSON.md PROGRAM

* A block ```cpp must occur in program.cpp next to the lesson, or in the file that the last link since the block before
  names (`[core/cpu/softmax.cpp](../../../core/cpu/softmax.cpp)`), apart from its indentation. A line that is only `...` stands
  for any number of lines.
* A block ```text must occur in what the program prints.
* Other blocks are not checked. A lesson has at most 150 lines, its program at most 90.
"""
import pathlib
import re
import subprocess
import sys
import textwrap

LINK = re.compile(r"\]\(([^)#\s]+\.(?:cpp|hpp|cu|cuh|def))\)")


def blocks_of(lines):
    """(line number, language, text, the file linked last since the block before) of each block."""
    language, begin, linked = None, 0, None
    for number, line in enumerate(lines, 1):
        if not line.startswith("```"):
            found = LINK.findall(line)
            if language is None and found:
                linked = found[-1]
        elif language is None:
            language, begin = line[3:].strip(), number
        else:
            yield begin, language, "\n".join(lines[begin:number - 1]), linked
            language, linked = None, None


def occurs(block, text):
    """Whether the parts of the block between lines `...` occur in the text in this order, apart from indentation."""
    plain = [line.strip() for line in text.split("\n")]
    begin = 0
    for part in re.split(r"^\s*\.\.\.\s*$", textwrap.dedent(block), flags=re.MULTILINE):
        wanted = [line.strip() for line in part.strip("\n").split("\n")]
        places = [at for at in range(begin, len(plain) - len(wanted) + 1) if plain[at:at + len(wanted)] == wanted]
        if not places:
            return False
        begin = places[0] + len(wanted)
    return True


def main():
    lesson, program = pathlib.Path(sys.argv[1]), sys.argv[2]
    source = lesson.parent / "program.cpp"
    lines = lesson.read_text(encoding="utf-8").splitlines()
    run = subprocess.run([program], capture_output=True, text=True, timeout=60)
    faults = [] if run.returncode == 0 else [f"{source}: exit status {run.returncode}: {run.stderr}"]
    shown = 0
    for number, language, text, linked in blocks_of(lines):
        if language == "cpp":
            files = [source] + ([lesson.parent / linked] if linked else [])
            if not any(occurs(text, file.read_text(encoding="utf-8")) for file in files):
                faults.append(f"{lesson}:{number}: not in {' or '.join(map(str, files))}")
        elif language == "text":
            shown += 1
            if not occurs(text, run.stdout):
                faults.append(f"{lesson}:{number}: the program does not print this")
    if shown == 0:
        faults.append(f"{lesson}: shows nothing of what its program prints")
    if len(lines) > 150:
        faults.append(f"{lesson}: {len(lines)} lines; at most 150")
    if len(source.read_text(encoding="utf-8").splitlines()) > 90:
        faults.append(f"{source}: more than 90 lines")
    print("\n".join(faults) + ("\n\nThe program printed:\n" + run.stdout if faults else f"{shown} outputs are right"))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
