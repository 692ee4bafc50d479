#!/usr/bin/env python3
"""A sweep by four workers, of which three are killed (SIGKILL) at random moments and started again: every run is
finished exactly once, with the bytes that one process alone gives it.

Usage: workers.py TALLY [--seeds 50] [--steps 200] [--kills 12] [--random SEED]. Two runs a seed. Exit status 1 where
something differs.
"""
import argparse
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

from grid import differences, grid, status, trained_alone


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tally")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--random", type=int, default=time.time_ns() % 10**6)
    arguments = parser.parse_args()
    chance = random.Random(arguments.random)
    options = grid(arguments.seeds, arguments.steps)
    with tempfile.TemporaryDirectory() as place:
        alone, shared = pathlib.Path(place) / "alone", pathlib.Path(place) / "shared"
        begin = time.monotonic()
        trained_alone(arguments.tally, alone, options)
        seconds_alone = time.monotonic() - begin

        def worker():
            words = [arguments.tally, "sweep", shared, "--worker", "--jobs=1", "--threads=1", *options]
            return subprocess.Popen(words, stdout=subprocess.DEVNULL)

        begin = time.monotonic()
        workers = [worker() for _ in range(4)]
        kills = 0
        while kills < arguments.kills:
            time.sleep(chance.uniform(0, 1.5 * seconds_alone / arguments.kills))
            victim = 1 + kills % 3
            if workers[victim].poll() is not None:  # the grid is done
                break
            workers[victim].send_signal(signal.SIGKILL)
            workers[victim].wait()
            workers[victim] = worker()
            kills += 1
        codes = [one.wait() for one in workers]
        seconds = time.monotonic() - begin
        wrong = list(differences(shared, alone))
        if codes != [0, 0, 0, 0]:
            wrong.append(f"the workers ended with {codes}")
        states = status(arguments.tally, shared)["states"]
        if states != {"finished": 2 * arguments.seeds}:
            wrong.append(f"states: {states}")
        taken_over = sum(1 for _ in shared.glob("*.claim-[2-9]*"))
        print(f"{2 * arguments.seeds} runs of {arguments.steps} steps; alone {seconds_alone:.1f} s, by four workers "
              f"{seconds:.1f} s; {kills} killed, {taken_over} runs taken over; random seed {arguments.random}")
    for line in wrong:
        print(line)
    print("as alone" if not wrong else "NOT as alone")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
