"""A grid of tiny runs for tests of sweeps over many machines, trained by one process and compared file by file."""
import json
import pathlib
import subprocess

TINY = ("--task flip-flop --pe cope,rope --preset quick --length=16 --model.width=8 --model.heads=2 --batch=4 "
        "--eval-every=20 --save-every=10 --log-every=1 --optimiser.warmup=0 --task.eval-count=6 "
        "--task.sparse-count=5 --task.dense-count=4").split()


def grid(seeds, steps):
    """The options of a sweep of 2 * `seeds` runs."""
    return [*TINY, f"--seeds=1..{seeds}", f"--steps={steps}"]


def trained_alone(tally, folder, options):
    """The same sweep by one process."""
    subprocess.run([tally, "sweep", folder, *options, "--jobs=2", "--quiet"], check=True, stdout=subprocess.DEVNULL)


def content(run):
    """What two trainings of a run have in common: checkpoints to the byte, metrics and results without times."""
    files = {path.name: path.read_bytes() for path in (run / "checkpoints").iterdir()}
    files["config.json"] = (run / "config.json").read_bytes()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    files["metrics.jsonl"] = [{k: v for k, v in line.items() if k != "seconds"} for line in lines if "start" not in line]
    results = json.loads((run / "results.json").read_text())
    files["results.json"] = {k: v for k, v in results.items() if k not in ("seconds", "evaluation_seconds", "peak_tensor_bytes")}
    return files


def runs_of(folder):
    return sorted(path.name for path in pathlib.Path(folder).iterdir() if path.is_dir())


def times_finished(folder, run):
    """How many claims of the run ended with it finished."""
    claims = pathlib.Path(folder).glob(f"{run}.claim-*")
    return sum(json.loads(claim.read_text())["state"] == "finished" for claim in claims)


def differences(folder, alone):
    """What is not as it must be, a line each: every run finished exactly once, with the bytes of a run alone."""
    if runs_of(folder) != runs_of(alone):
        yield f"other runs: {runs_of(folder)}"
        return
    for run in runs_of(alone):
        if times_finished(folder, run) != 1:
            yield f"{run}: finished {times_finished(folder, run)} times"
        here, there = content(pathlib.Path(folder) / run), content(pathlib.Path(alone) / run)
        for name in sorted(here.keys() | there.keys()):
            if here.get(name) != there.get(name):
                yield f"{run}: {name} differs"


def status(tally, folder):
    answer = subprocess.run([tally, "sweep", folder, "--dry-run", "--json"], check=True, stdout=subprocess.PIPE)
    return json.loads(answer.stdout)
