#!/usr/bin/env python3
"""Plants errors in a copy of the tree, one at a time, and asks the tests whether they find them.

Usage: planted.py [--only ID,ID,...] [--again] [--tests FOLDER/FILTER ...] [--jobs N] [--limit SECONDS]
       planted.py --record           writes what is known of each error to tests/results/planted.md
       planted.py --check-anchors    whether every error still has its place in the tree; builds nothing

The errors are in errors_LAYER.py. The copy, its build and the results are in build/planted and are used again by the
next run: an error that has been found is not tried again, so that an interrupted run resumes. --again also tries
those found at another commit. With ccache, files that were compiled in the tree are not compiled again. --only takes
ids or their beginnings; --tests runs other tests instead of the expected ones, such as 'nn/*-CudaHost/*'
(GoogleTest's filters after the folder), and keeps no results.

Exit status 1 where an error survives, cannot be planted or does not compile.
"""
import argparse
import datetime
import fcntl
import fnmatch
import functools
import json
import os
import pathlib
import re
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import planted_results
import planted_tree
from errors import ERRORS
from planted_results import Result, digest_of
from planted_tree import COPY, ROOT, WORK, NotPlanted, by_folder, planted

SOUND = WORK / "sound.json"


def missing_tests(found_by):
    """Those of the filters `folder/Instance/Suite.Test` that no test in the folder's sources matches."""
    missing = []
    for wanted in found_by:
        folder, patterns = wanted.split("/", 1)
        for pattern in patterns.split(":"):
            suite, dot, test = pattern.partition(".")
            pattern = suite.rsplit("/", 1)[-1] + (dot + test.split("/")[0] if dot else ".*")
            if not any(fnmatch.fnmatchcase(name, pattern) for name in tests_of(folder)):
                missing.append(f"{folder}/{pattern}")
    return missing


@functools.cache
def tests_of(folder):
    """Names `Suite.Test` in the sources of a folder's tests."""
    declared = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\((\w+),\s*(\w+)\)", re.MULTILINE)
    return [".".join(names) for source in (ROOT / "tests" / folder).glob("*.cpp")
            for names in declared.findall(source.read_text(encoding="utf-8"))]


def check_anchors():
    offences = [f"{error.id}: no test matches {wanted}" for error in ERRORS for wanted in missing_tests(error.found_by)]
    if len({error.id for error in ERRORS}) != len(ERRORS):
        offences.append("two errors have one id")
    for error in ERRORS:
        try:
            planted(error, ROOT)
        except NotPlanted as why:
            offences.append(str(why))
    print("\n".join(offences) if offences else f"planted errors: all {len(ERRORS)} have their place")
    return 1 if offences else 0


def refuse_what_fails(tests, tree, arguments):
    """Ends the program where one of the tests fails without an error; those known to pass in this tree are not run."""
    known = json.loads(SOUND.read_text(encoding="utf-8")) if SOUND.exists() else {}
    passed = known.get("tests", []) if known.get("tree") == tree else []
    new = sorted(set(tests) - set(passed))
    for folder, pattern in by_folder(new).items():
        said = planted_tree.build(folder, arguments.jobs)
        if said is not None:
            sys.exit(said)
        names = planted_tree.failing(folder, pattern, arguments.limit * len(new))
        if names:
            sys.exit(f"these fail without any error planted: {', '.join(names)}")
    SOUND.write_text(json.dumps({"tree": tree, "tests": sorted({*passed, *new})}, indent=1), encoding="utf-8")


def try_error(error, tests, arguments):
    """(outcome, who found it): the first test that fails ends it."""
    path = COPY / error.file
    sound = path.read_text(encoding="utf-8")
    try:
        path.write_text(planted(error, COPY), encoding="utf-8")
        for folder, pattern in by_folder(tests).items():
            said = planted_tree.build(folder, arguments.jobs)
            if said is not None:
                (WORK / f"{error.id}.log").write_text(said, encoding="utf-8")
                return "did not compile", ""
            names = planted_tree.failing(folder, pattern, arguments.limit, "--gtest_fail_fast")
            if names:
                return "found", names[0]
        return "SURVIVED", ""
    finally:
        path.write_text(sound, encoding="utf-8")


def plant(chosen, arguments):
    tests = {error.id: arguments.tests or error.found_by for error in chosen}
    tree = planted_tree.copy_tree()
    planted_tree.configure()
    refuse_what_fails([test for names in tests.values() for test in names], tree, arguments)
    results, commit = planted_results.kept(), planted_tree.commit()
    day, processor = datetime.date.today().isoformat(), planted_results.processor()
    bad = 0
    print("| id | outcome | by | seconds |\n|---|---|---|---|", flush=True)
    for error in chosen:
        begin = time.monotonic()
        try:
            outcome, by = try_error(error, tests[error.id], arguments)
        except NotPlanted as why:
            outcome, by = "not planted", str(why)
        seconds = round(time.monotonic() - begin)
        bad += outcome != "found"
        print(f"| {error.id} | {outcome} | {by} | {seconds} |", flush=True)
        if not arguments.tests and outcome != "not planted":
            results[error.id] = Result(outcome, by, seconds, day, commit, processor, digest_of(error))
            planted_results.keep(results)
    print(f"\n{len(chosen) - bad} of {len(chosen)} planted errors were found")
    return 1 if bad else 0


def chosen_errors(arguments):
    """Untried errors come first, and errors of one file follow each other: fewer files are compiled again."""
    wanted = arguments.only.split(",") if arguments.only else [""]
    chosen = [error for error in ERRORS if any(error.id.startswith(beginning) for beginning in wanted)]
    if not chosen:
        sys.exit(f"no error is called {arguments.only}; they are in errors_*.py")
    own, known = planted_results.kept(), planted_results.all_results(ERRORS)
    if arguments.again:
        now = planted_tree.commit()
        chosen = [error for error in chosen if error.id not in own or own[error.id].outcome != "found"
                  or own[error.id].commit != now]
    elif not arguments.tests:
        chosen = [error for error in chosen if error.id not in own or own[error.id].outcome != "found"
                  or own[error.id].digest != digest_of(error)]
    files = list(dict.fromkeys(error.file for error in ERRORS))
    return sorted(chosen, key=lambda error: (error.id in known, files.index(error.file)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="ids, or beginnings of ids, with commas between them")
    parser.add_argument("--again", action="store_true", help="also those found at another commit")
    parser.add_argument("--tests", nargs="+", help="tests to run instead of the expected ones")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="of the build")
    parser.add_argument("--limit", type=float, default=600, help="seconds for the tests of an error")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--check-anchors", action="store_true")
    arguments = parser.parse_args()
    if arguments.check_anchors:
        return check_anchors()
    if arguments.record:
        return planted_results.write_page(ERRORS)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended; the same command goes on from here"))
    WORK.mkdir(parents=True, exist_ok=True)
    with open(WORK / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one at a time works in the copy
        chosen = chosen_errors(arguments)
        return plant(chosen, arguments) if chosen else print("all of these have been found; --again tries those found at another commit")


if __name__ == "__main__":
    sys.exit(main())
