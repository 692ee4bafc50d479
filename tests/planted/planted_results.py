"""What became of planted errors: kept in build/planted while runs go on, and on the page tests/results/planted.md."""
import hashlib
import json
import re
from typing import NamedTuple

from planted_tree import ROOT, WORK

PAGE = ROOT / "tests" / "results" / "planted.md"
KEPT = WORK / "results.json"
PROCESSOR = re.compile(r"^## (.+)$")
ROW = re.compile(r"^\| ([\w-]+) \| ([\w ]+) \| (.*) \| (\d+) \| (\d{4}-\d\d-\d\d) \| (\w+\+?) \|$")


class Result(NamedTuple):
    outcome: str  # found, SURVIVED, did not compile
    by: str       # the first test that failed
    seconds: int  # of building and testing
    day: str
    commit: str
    processor: str
    digest: str = ""  # of the error; not on the page


def digest_of(error):
    return hashlib.sha256("\0".join([error.file, error.find, error.replace]).encode()).hexdigest()[:16]


def processor():
    """As `tally info` says it."""
    try:
        lines = open("/proc/cpuinfo", encoding="utf-8", errors="replace").read().splitlines()
    except OSError:
        return "unknown"
    return next((line.split(": ", 1)[1] for line in lines if line.startswith("model name") and ": " in line), "unknown")


def kept():
    """Results of this copy's runs, by id."""
    if not KEPT.exists():
        return {}
    return {name: Result(**fields) for name, fields in json.loads(KEPT.read_text(encoding="utf-8")).items()}


def keep(results):
    trial = KEPT.with_suffix(".new")
    trial.write_text(json.dumps({name: result._asdict() for name, result in results.items()}, indent=1),
                     encoding="utf-8")
    trial.replace(KEPT)


def on_page():
    results, machine = {}, "unknown"
    for line in PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []:
        if heading := PROCESSOR.match(line):
            machine = heading.group(1)
        elif row := ROW.match(line):
            name, outcome, by, seconds, day, commit = row.groups()
            results[name] = Result(outcome, by.strip("`"), int(seconds), day, commit, machine)
    return results


def all_results(errors):
    """The results of all listed errors: of this copy, or else of the page."""
    own = kept()
    of_this = {error.id: own[error.id] for error in errors
               if error.id in own and own[error.id].digest == digest_of(error)}
    return {**{error.id: result for error in errors for name, result in on_page().items() if name == error.id},
            **of_this}


def write_page(errors):
    results = all_results(errors)
    outcomes = [results[error.id].outcome if error.id in results else "not run" for error in errors]
    counts = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in dict.fromkeys(["found", *outcomes]))
    lines = ["# Planted errors and what found them", "",
             "Written by `tests/planted/planted.py --record`: the last run of each error of the",
             "[list](../planted/README.md), the first test that failed, the seconds of building and testing (beside other",
             "work), the day and the commit; + is a tree that differed from it.", "",
             f"{len(errors)} errors: {counts}."]
    for machine in sorted({result.processor for result in results.values()}):
        own = [(error, results[error.id]) for error in errors
               if error.id in results and results[error.id].processor == machine]
        lines += ["", f"## {machine}", "", f"{len(own)} errors, {sum(r.seconds for _, r in own)} s.", "",
                  "| error | outcome | by | seconds | day | commit |", "|---|---|---|---|---|---|"]
        lines += [f"| {error.id} | {r.outcome} | {'`' + r.by + '`' if r.by else ''} | {r.seconds} | {r.day} | "
                  f"{r.commit} |" for error, r in own]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
