#!/usr/bin/env python3
"""Runs clang-tidy on the sources outside tests, except unchanged ones that it found clean before.

    tests/tidy.py [--changed]

--changed: only sources that changed since the last full run of the tests (changed.py).
A source is unchanged if its text, the text of every project header that it includes, its compile command, .clang-tidy and
the version of clang-tidy are the same. Sums of these are remembered in ~/.cache/tally-tidy ($XDG_CACHE_HOME). Exit status 1
if it finds something, which it prints, and if it is ended early.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys

import changed
from changed import ROOT, output_of, text_of, with_headers


def keys(build):
    """Source -> the digest of everything that clang-tidy's result depends on."""
    common = output_of("clang-tidy", "--version") + text_of(ROOT / ".clang-tidy")
    result = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["directory"], entry["file"]).resolve()
        text = common + entry["command"].replace(str(ROOT), "")  # other copies of the tree have the same sums
        text += "".join(text_of(path) for path in with_headers(source))
        result[source] = hashlib.sha256(text.encode()).hexdigest()
    return result


def main():
    if sys.argv[1:] not in ([], ["--changed"]):
        sys.exit(__doc__)
    # Commands for single files: a unity build has none.
    build = ROOT / "build" / "tidy"
    output_of("cmake", "--preset", "asan", "-B", str(build), "-DTALLY_UNITY=OFF")
    sources = changed.changed_sources("*.cpp") if sys.argv[1:] else changed.sources("*.cpp")
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
        os._exit(1 if failed else 128 + number)  # at once: threads wait for running work

    signal.signal(signal.SIGTERM, end)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in pool.map(look_at, left):
            if done.returncode > 0:
                failed += 1
                print(done.stdout, done.stderr, flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
