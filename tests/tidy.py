#!/usr/bin/env python3
"""clang-tidy on the sources outside tests, without those that it found clean before and that are the same since.

    tests/tidy.py BUILD      a folder that clang has built in, such as build/asan

The same are: the text of the source and of all that it includes, as the build has noted it, the command that compiles it,
.clang-tidy, and clang-tidy itself. What was clean is remembered in ~/.cache/tally-tidy ($XDG_CACHE_HOME), by sums of these.
Exit status 1 where it finds something, and then all that it says; also where it is ended before it is through.
"""
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def output_of(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True, cwd=ROOT).stdout


@functools.cache
def sum_of_file(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def includes(build):
    """Object -> the files that it was made of."""
    found, current = {}, None
    for line in output_of("ninja", "-C", str(build), "-t", "deps").splitlines():
        if line.startswith("    "):
            current.append((build / line.strip()).resolve())
        elif ": #deps" in line:
            current = found[line.split(":")[0]] = []
    return found


def keys(build):
    """Source -> the sum of all that decides what is found in it; without those whose includes are not known."""
    made_of = includes(build)
    common = output_of("clang-tidy", "--version") + sum_of_file(ROOT / ".clang-tidy")
    result = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = entry["command"].split()
        files = made_of.get(words[words.index("-o") + 1])
        if not files or not all(path.exists() for path in files):
            continue
        # Other copies of the tree have the same sums.
        text = common + entry["command"].replace(str(ROOT), "")
        text += "".join(sorted(sum_of_file(path) for path in files))
        result[pathlib.Path(entry["directory"], entry["file"]).resolve()] = hashlib.sha256(text.encode()).hexdigest()
    return result


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
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
