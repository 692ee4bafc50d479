#!/usr/bin/env python3
"""Runs clang-tidy on the sources outside tests, except those that it found clean before and that are unchanged.

    tests/tidy.py

A source is unchanged if its text, the text of every project header that it includes, its compile command, .clang-tidy and
the version of clang-tidy are the same. Sums of these are remembered in ~/.cache/tally-tidy ($XDG_CACHE_HOME). Exit status 1
if it finds something, which it prints, and if it is ended early.
"""
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def output_of(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True, cwd=ROOT).stdout


INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


@functools.cache
def text_of(path):
    return path.read_text(encoding="utf-8")


def with_headers(source):
    """The source and the headers of the project that it includes, directly or not."""
    found, left = set(), [source]
    while left:
        path = left.pop()
        if path in found or not path.exists():
            continue
        found.add(path)
        left += [ROOT / name for name in INCLUDE.findall(text_of(path))]
    return sorted(found)


def keys(build):
    """Source -> the sum of all that decides what is found in it."""
    common = output_of("clang-tidy", "--version") + text_of(ROOT / ".clang-tidy")
    result = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["directory"], entry["file"]).resolve()
        text = common + entry["command"].replace(str(ROOT), "")  # other copies of the tree have the same sums
        text += "".join(text_of(path) for path in with_headers(source))
        result[source] = hashlib.sha256(text.encode()).hexdigest()
    return result


def main():
    if len(sys.argv) != 1:
        sys.exit(__doc__)
    # Commands for single files: a unity build has none.
    build = ROOT / "build" / "tidy"
    output_of("cmake", "--preset", "asan", "-B", str(build), "-DTALLY_UNITY=OFF")
    sources = [ROOT / name for name in output_of("git", "ls-files", "*.cpp", ":!tests").split()]
    clean = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "tally-tidy"
    clean.mkdir(parents=True, exist_ok=True)
    known = keys(build)
    left = [path for path in sources if path not in known or not (clean / known[path]).exists()]
    print(f"clang-tidy: {len(left)} of {len(sources)} sources; the others were clean and are the same", flush=True)

    def look_at(path):
        done = subprocess.run(["clang-tidy", "-p", build, "--quiet", path], capture_output=True, text=True)
        if done.returncode == 0 and path in known:
            (clean / known[path]).touch()
        return done

    failed = 0

    def end(number, _):
        os._exit(1 if failed else 128 + number)  # at once: threads wait for what still runs

    signal.signal(signal.SIGTERM, end)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in pool.map(look_at, left):
            if done.returncode > 0:
                failed += 1
                print(done.stdout, done.stderr, flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
