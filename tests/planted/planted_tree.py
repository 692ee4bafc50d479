"""The copy of the tree that errors are planted in, its build and its tests."""
import filecmp
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "planted"
COPY = WORK / "tree"
BUILD = COPY / "build" / "release"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
FAILED = re.compile(r"^\[  FAILED  \] ([\w/]+\.[\w/]+)", re.MULTILINE)
RUN = re.compile(r"^\[==========\] Running (\d+) tests? ", re.MULTILINE)
NO_PART_OF_A_TEST = ("tests/planted/", "tests/results/")


class NotPlanted(Exception):
    pass


def planted(error, root):
    """The file's text with the error in it; the text to be replaced is found however its lines are wrapped."""
    path = root / error.file
    if not path.is_file():
        raise NotPlanted(f"{error.id}: there is no file {error.file}")
    text = path.read_text(encoding="utf-8")
    wanted = re.compile(r"\s+".join(re.escape(word) for word in error.find.split()))
    places = [match.span() for match in wanted.finditer(text)]
    if len(places) != 1:
        there = "is not there" if not places else f"is there {len(places)} times"
        raise NotPlanted(f"{error.id}: {error.file}: the text to be replaced {there}: {error.find}")
    (begin, end), = places
    return text[:begin] + error.replace + text[end:]


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout.decode()


def commit():
    """The commit of the tree, with a + where the tree differs from it."""
    changes = git("status", "--porcelain", "--", ".", ":!tests/results")
    return git("rev-parse", "--short", "HEAD").strip() + ("+" if changes else "")


def tree_files():
    """The files that git tracks or would add."""
    names = git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    return {pathlib.Path(name) for name in names if name and (ROOT / name).is_file()}


def copy_tree():
    """Brings the copy up to date; a file that is the same keeps its time, so that it is not compiled again."""
    files = tree_files()
    for old in COPY.rglob("*"):
        name = old.relative_to(COPY)
        if name.parts[0] != "build" and old.is_file() and name not in files:
            old.unlink()
    digest = hashlib.sha256()
    for name in sorted(files):
        target = COPY / name
        if not target.exists() or not filecmp.cmp(ROOT / name, target, shallow=False):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
        if not str(name).startswith(NO_PART_OF_A_TEST):
            digest.update(f"{name}\0".encode() + hashlib.sha256(target.read_bytes()).digest())
    return digest.hexdigest()


def configure():
    done = subprocess.run(["cmake", "--preset", "release"], cwd=COPY, env=ENVIRONMENT, capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)


SKIPPED = 77  # tests/main.cpp


def run(command, limit=None):
    """(output, exit status). If this is interrupted, it ends the program and all its processes."""
    with subprocess.Popen(command, cwd=BUILD, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", start_new_session=True) as process:
        try:
            return process.communicate(timeout=limit)[0], process.returncode
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise


def build(folder, jobs):
    """Builds the folder's test program: None, or the compiler's messages."""
    said, status = run(["cmake", "--build", str(BUILD), "--parallel", str(jobs), "--target", f"{folder}_test"])
    return None if status == 0 else said


def by_folder(tests):
    """{"nn": "A.*:B.*"} of ["nn/A.*", "nn/B.*"]."""
    folders = {}
    for test in tests:
        folder, pattern = test.split("/", 1)
        folders[folder] = f"{folders[folder]}:{pattern}" if folder in folders else pattern
    return folders


def failing(folder, pattern, limit, *options):
    """Names of the tests that fail; one that ends the program, or comes to no end, counts as `folder_test`."""
    program = BUILD / "tests" / f"{folder}_test"
    try:
        said, status = run([str(program), f"--gtest_filter={pattern}", *options], limit)
    except subprocess.TimeoutExpired:
        return [f"{folder}_test (no end within {limit:.0f} s)"]
    count = RUN.search(said)
    if count is None or count.group(1) == "0":
        sys.exit(f"{folder}_test has no test '{pattern}'")
    found = sorted(set(FAILED.findall(said)))
    if status not in (0, SKIPPED) and not found:
        return [f"{folder}_test (ended by {status})"]
    return [f"{folder}/{name}" for name in found]
