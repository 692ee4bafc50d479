#!/usr/bin/env python3
"""Prints the sources that changed, or include a header that changed, since the last full run of the tests.

    tests/changed.py PATTERN...     such as '*.cu'

The last full run (tests/full.sh) is the commit named in tests/results/full.md. All matching sources are printed if that
commit does not exist here. Files below tests are not printed.
"""
import functools
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
FULL_RUN = re.compile(r"^Commit of the last full run: `([0-9a-f]+)`", re.MULTILINE)


def output_of(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True, cwd=ROOT).stdout


@functools.cache
def text_of(path):
    return path.read_text(encoding="utf-8")


def with_headers(source):
    """The source and the project headers that it includes, directly or indirectly."""
    found, left = set(), [source]
    while left:
        path = left.pop()
        if path in found or not path.exists():
            continue
        found.add(path)
        left += [ROOT / name for name in INCLUDE.findall(text_of(path))]
    return sorted(found)


def changed_files():
    """Paths that differ from the last full run, or None if that is unknown."""
    page = ROOT / "tests" / "results" / "full.md"
    commit = FULL_RUN.search(page.read_text(encoding="utf-8")) if page.exists() else None
    if commit is None:
        return None
    try:
        names = output_of("git", "diff", "--name-only", commit[1]).split()
        names += output_of("git", "ls-files", "--others", "--exclude-standard").split()
    except (subprocess.CalledProcessError, FileNotFoundError):
        return None
    return {ROOT / name for name in names}


def sources(*patterns):
    """All sources outside tests that match one of the patterns."""
    return [ROOT / name for name in output_of("git", "ls-files", *patterns, ":!tests").split()]


def changed_sources(*patterns):
    changed = changed_files()
    return [path for path in sources(*patterns) if changed is None or not changed.isdisjoint(with_headers(path))]


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for source in changed_sources(*sys.argv[1:]):
        print(source.relative_to(ROOT))
