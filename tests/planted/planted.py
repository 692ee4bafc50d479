#!/usr/bin/env python3
"""Plants errors in a copy of the tree, one at a time, and asks the tests whether they find them.

Usage: planted.py [--only ID,ID,...] [--tests FOLDER/FILTER ...] [--jobs N] [--limit SECONDS]
       planted.py --list             the errors, and the tests that find them, as a table
       planted.py --check-anchors    whether every error still is in the tree once; builds nothing

The errors stand in errors.py. The copy and its build lie in build/planted and are used again by the next run; with
ccache on the path a build of the tree is taken over. --only takes ids or their beginnings; --tests runs other tests
instead of those that are expected to find an error, such as 'nn/*-CudaHost/*' (GoogleTest's filters after the folder).

Exit status 1 where an error survives, cannot be planted or does not compile.
"""
import argparse
import fcntl
import filecmp
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from errors import ERRORS

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "planted"
COPY = WORK / "tree"
BUILD = COPY / "build" / "release"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
FAILED = re.compile(r"^\[  FAILED  \] ([\w/]+\.[\w/]+)", re.MULTILINE)
RUN = re.compile(r"^\[==========\] Running (\d+) tests? ", re.MULTILINE)


class NotPlanted(Exception):
    pass


def anchor(error):
    """The text to be replaced, however its lines are wrapped."""
    return re.compile(r"\s+".join(re.escape(word) for word in error.find.split()))


def planted(error, root):
    """The file's text with the error in it."""
    path = root / error.file
    if not path.is_file():
        raise NotPlanted(f"{error.id}: there is no file {error.file}")
    text = path.read_text(encoding="utf-8")
    spans = [match.span() for match in anchor(error).finditer(text)]
    if len(spans) != 1:
        there = "is not there" if not spans else f"is there {len(spans)} times"
        raise NotPlanted(f"{error.id}: {error.file}: the text to be replaced {there}: {error.find}")
    (begin, end), = spans
    return text[:begin] + error.replace + text[end:]


def check_anchors():
    offences = []
    if len({error.id for error in ERRORS}) != len(ERRORS):
        offences.append("two errors have one id")
    for error in ERRORS:
        try:
            planted(error, ROOT)
        except NotPlanted as why:
            offences.append(str(why))
    print("\n".join(offences) if offences else f"planted errors: all {len(ERRORS)} are in the tree")
    return 1 if offences else 0


def table():
    print("| id | file | error | found by |\n|---|---|---|---|")
    for error in ERRORS:
        tests = ", ".join(f"`{test}`" for test in error.found_by)
        written = " (written for it)" if error.survived else ""
        print(f"| {error.id} | `{error.file}` | {error.what} | {tests}{written} |")


def tree_files():
    """What git tracks or would add, or everything outside build/ where there is no git."""
    try:
        listing = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                                 capture_output=True, check=True)
        names = [pathlib.Path(name) for name in listing.stdout.decode().split("\0") if name]
    except (FileNotFoundError, subprocess.CalledProcessError):
        names = [path.relative_to(ROOT) for path in ROOT.rglob("*") if path.relative_to(ROOT).parts[0] != "build"]
    return {name for name in names if (ROOT / name).is_file()}


def copy_tree():
    """Brings the copy up to date; a file that is the same keeps its time, so that it is not compiled again."""
    files = tree_files()
    for old in COPY.rglob("*"):
        name = old.relative_to(COPY)
        if name.parts[0] != "build" and old.is_file() and name not in files:
            old.unlink()
    for name in files:
        target = COPY / name
        if not target.exists() or not filecmp.cmp(ROOT / name, target, shallow=False):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)


def build(targets, jobs):
    """None, or what the compiler said."""
    done = subprocess.run(["cmake", "--build", str(BUILD), "--parallel", str(jobs), "--target", *targets],
                          capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stdout + done.stderr


def configure():
    if shutil.which("ccache"):
        os.environ.setdefault("CMAKE_CXX_COMPILER_LAUNCHER", "ccache")
        os.environ["CCACHE_BASEDIR"] = str(COPY)
        os.environ["CCACHE_NOHASHDIR"] = "1"
    done = subprocess.run(["cmake", "--preset", "release"], cwd=COPY, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)


def by_folder(tests):
    """{"nn": "A.*:B.*"} of ["nn/A.*", "nn/B.*"]."""
    folders = {}
    for test in tests:
        folder, pattern = test.split("/", 1)
        folders[folder] = f"{folders[folder]}:{pattern}" if folder in folders else pattern
    return folders


def failing(tests, limit):
    """The names of the tests that fail; one that ends the program, or comes to no end, counts as `folder_test`."""
    names = []
    for folder, pattern in by_folder(tests).items():
        program = BUILD / "tests" / f"{folder}_test"
        try:
            done = subprocess.run([str(program), f"--gtest_filter={pattern}"], cwd=BUILD, env=ENVIRONMENT,
                                  timeout=limit, capture_output=True, text=True, errors="replace", check=False)
        except subprocess.TimeoutExpired:
            names.append(f"{folder}_test (no end within {limit} s)")
            continue
        count = RUN.search(done.stdout)
        if count is None or count.group(1) == "0":
            sys.exit(f"{folder}_test has no test '{pattern}'")
        found = sorted(set(FAILED.findall(done.stdout)))
        names += [f"{folder}/{name}" for name in found]
        if done.returncode != 0 and not found:
            names.append(f"{folder}_test (ended by {done.returncode})")
    return names


def targets_of(tests):
    return [f"{folder}_test" for folder in by_folder(tests)]


def try_error(error, tests, arguments):
    """(outcome, who found it)"""
    path = COPY / error.file
    sound = path.read_text(encoding="utf-8")
    try:
        path.write_text(planted(error, COPY), encoding="utf-8")
        said = build(targets_of(tests), arguments.jobs)
        if said is not None:
            (WORK / f"{error.id}.log").write_text(said, encoding="utf-8")
            return "did not compile", f"see {WORK / error.id}.log"
        names = failing(tests, arguments.limit)
        more = f" and {len(names) - 3} more" if names[3:] else ""
        return ("found" if names else "SURVIVED"), ", ".join(names[:3]) + more
    finally:
        path.write_text(sound, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="ids, or beginnings of ids, with commas between them")
    parser.add_argument("--tests", nargs="+", help="tests to run instead of the expected ones")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="of the build")
    parser.add_argument("--limit", type=float, default=600, help="seconds for the tests of an error")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check-anchors", action="store_true")
    arguments = parser.parse_args()
    if arguments.list:
        return table()
    if arguments.check_anchors:
        return check_anchors()

    wanted = arguments.only.split(",") if arguments.only else [""]
    chosen = [error for error in ERRORS if any(error.id.startswith(beginning) for beginning in wanted)]
    if not chosen:
        sys.exit(f"no error is called {arguments.only}; --list names them")
    tests = {error.id: arguments.tests or error.found_by for error in chosen}
    WORK.mkdir(parents=True, exist_ok=True)
    with open(WORK / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one at a time works in the copy
        return plant(chosen, tests, arguments)


def plant(chosen, tests, arguments):
    copy_tree()
    configure()
    every = sorted({test for names in tests.values() for test in names})
    said = build(targets_of(every), arguments.jobs)
    if said is not None:
        sys.exit(said)
    before = failing(every, arguments.limit * len(every))
    if before:
        sys.exit(f"these fail without any error planted: {', '.join(before)}")

    bad = 0
    print("| id | outcome | by | seconds |\n|---|---|---|---|", flush=True)
    for error in chosen:
        begin = time.monotonic()
        try:
            outcome, names = try_error(error, tests[error.id], arguments)
        except NotPlanted as why:
            outcome, names = "not planted", str(why)
        bad += outcome != "found"
        print(f"| {error.id} | {outcome} | {names} | {time.monotonic() - begin:.0f} |", flush=True)
    print(f"\n{len(chosen) - bad} of {len(chosen)} planted errors were found")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
