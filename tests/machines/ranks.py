#!/usr/bin/env python3
"""One run by 1, 2 and 4 processes of mpirun, and by four of which a random one is killed (SIGKILL), resumed by two, one of
them killed as well, and ended by one: all have the same bytes. For cope, fox and stick-breaking, f32 and bf16, dropout on,
and with the optimiser's state split. Gradients are exchanged in four buckets.

Usage: ranks.py TALLY [--steps 40] [--random SEED]. Prints a table of SHA-256 digests. Exit status 1 where something differs,
77 where mpirun is missing.
"""
import argparse
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from grid import content

MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "plm", "isolated", "-np"]
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
OPTIONS = ("--task=flip-flop --preset=quick --length=64 --model.layers=2 --model.width=96 --model.heads=2 "
           "--model.dropout=0.1 --batch=8 --micro-batch=1 --save-every=5 --log-every=1 --optimiser.warmup=0 "
           "--task.eval-count=20 --task.sparse-count=9 --task.dense-count=9 --eval-batch=4 --threads=1 --quiet").split()


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def digests(run):
    """Of the checkpoints together, of the metrics without times and starts, of the results without times and memory."""
    files = content(run)
    checkpoints = b"".join(name.encode() + data for name, data in sorted(files.items()) if isinstance(data, bytes))
    return [digest(checkpoints), *(digest(json.dumps(files[name]).encode()) for name in ("metrics.jsonl", "results.json"))]


def start(tally, ranks, words):
    words = [*([] if ranks == 1 else [*MPIRUN, str(ranks)]), tally, *words]
    return subprocess.Popen(words, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def train(tally, ranks, words):
    process = start(tally, ranks, words)
    errors = process.communicate()[1]
    if process.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))} by {ranks} ended with {process.returncode}:\n{errors}")


def process_of(rank, run):
    """The process that is this rank of those that train the run."""
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if not entry.name.isdigit() or str(run).encode() not in (entry / "cmdline").read_bytes():
                continue
            if f"OMPI_COMM_WORLD_RANK={rank}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                return int(entry.name)
        except OSError:
            continue  # gone meanwhile
    return None


def checkpoints(run):
    return {path.name for path in (run / "checkpoints").glob("*.safetensors")}


def killed(tally, run, ranks, words, chance):
    """Starts the ranks, kills one of them at a random moment after their first checkpoint; what was killed and when."""
    before = checkpoints(run)
    process = start(tally, ranks, words)
    while not checkpoints(run) - before and process.poll() is None:
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 0.05))
    rank = chance.randrange(ranks)
    victim = process_of(rank, run)
    if victim is not None:
        os.kill(victim, signal.SIGKILL)
    errors = process.communicate()[1]
    newest = max(checkpoints(run), default="none")
    if victim is None or process.returncode == 0 or (run / "results.json").exists():
        return f"rank {rank} of {ranks} came to its end before"
    return f"rank {rank} of {ranks} at {newest.split('.')[0]}" + ("" if f"rank {rank}" in errors else " (not named)")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tally")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--random", type=int, default=time.time_ns() % 10**6)
    arguments = parser.parse_args()
    if shutil.which("mpirun") is None:
        print("no mpirun here: skipped")
        return 77
    chance = random.Random(arguments.random)
    same = True
    print(f"random seed {arguments.random}\n\n| encoding | precision | by | checkpoints | metrics | results |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as place:
        for encoding in ("cope", "fox", "stick-breaking"):
            for precision in ("f32", "bf16"):
                def words(name):
                    return ["train", pathlib.Path(place) / f"{encoding}-{precision}-{name}", f"--pe={encoding}",
                            f"--precision={precision}", f"--steps={arguments.steps}", f"--eval-every={arguments.steps // 2}",
                            *OPTIONS]
                expected = None
                for name, ranks, more in (("1", 1, []), ("2", 2, []), ("4", 4, []), ("4, split", 4, ["--split-optimiser"])):
                    train(arguments.tally, ranks, [*words(name), *more])
                    found = digests(words(name)[1])
                    expected = expected or found
                    same = same and found == expected
                    print(f"| {encoding} | {precision} | {name} | {' | '.join(found)} |", flush=True)
                run = words("killed")[1]
                resume = ["resume", run, f"--precision={precision}", "--threads=1", "--quiet"]
                first = killed(arguments.tally, run, 4, words("killed"), chance)
                second = killed(arguments.tally, run, 2, resume, chance)
                train(arguments.tally, 1, resume)
                found = digests(run)
                same = same and found == expected
                print(f"| {encoding} | {precision} | {first}; {second}; 1 | {' | '.join(found)} |", flush=True)
    print("\n" + ("the same bytes" if same else "NOT the same bytes"))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
