#!/usr/bin/env python3
"""The first run of a carried build on a GPU: `cuda/offline.sh first`. Ten minutes are enough for all of it.

    first_contact.py FOLDER [--out FOLDER] [--only STEP,STEP] [--rehearse]

FOLDER holds the programs of `cuda/offline.sh carry`. The steps run in the order of STEPS, most basic first, each with a time
limit, and a step that fails does not stop the next. Each prints one JSON object, {"step", "seconds", "ok", ...}, which is
also a line of OUT/first.jsonl; the step's output is OUT/<step>.log. --rehearse uses --device cuda-host, so that the order and
the commands can be tried without a GPU. Exit status 1 if a step failed.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# `cuda/offline.sh carry` runs the same on the CPU.
QUICK_RUN = ("--task flip-flop --pe cope --preset quick --steps 100 --log-every 1 --quiet "
             "--task.eval-count 4 --task.sparse-count 4 --task.dense-count 4").split()
LARGEST_LOSS_DIFFERENCE = 1e-3  # relative, in the first 50 steps: f32 sums have another order on a GPU
SMALL = {
    "operations": ("autograd_test", "Operation.EqualsThePlainReference/*"),
    "attention": ("nn_test", "Tiled.*:TiledProducts.*:Reference.*"),
    "captured-steps": ("tasks_test", "Steps.*"),
}
COUNTERS = ["gpu__time_duration.sum", "sm__inst_executed.sum", "sm__inst_executed_pipe_tensor.sum",
            "l1tex__data_bank_conflicts_pipe_lsu.sum", "sm__throughput.avg.pct_of_peak_sustained_elapsed"]


class Runner:
    def __init__(self, args):
        self.folder, self.out, self.rehearse = args.folder, args.out, args.rehearse
        self.device = "cuda-host" if args.rehearse else "cuda"
        self.environment = dict(os.environ, TALLY_TEST_SMALL="1")
        if not args.rehearse:
            self.environment["TALLY_REQUIRE_GPU"] = "1"
        self.log = None

    def program(self, name):
        return str(self.folder / name)

    def call(self, command, seconds, **environment):
        """(exit status, output) of a command; 124 if it took longer than its limit."""
        self.log.write("$ " + " ".join(command) + "\n")
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                  timeout=seconds, env={**self.environment, **environment}, check=False)
            status, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired as error:
            output = (error.stdout or b"").decode(errors="replace") + f"\nstopped after {seconds} s\n"
            status = 124
        except OSError as error:
            status, output = 127, f"{error}\n"
        self.log.write(output + "\n")
        self.log.flush()
        return status, output

    def tests(self, name, seconds, **environment):
        """Runs the tests of SMALL[name]; prints the first failure again with the failing kernel's name."""
        program, suites = SMALL[name]
        prefix = "CudaHost/" if self.rehearse else "Cuda/"
        wanted = ":".join(prefix + suite for suite in suites.split(":"))
        if self.rehearse:
            wanted = wanted.split(":")[0].replace("Reference/*", "Reference/matmul*").replace("Steps.*", "Steps.SayOnce*")
        status, output = self.call([self.program(program), "--gtest_filter=" + wanted, "--gtest_brief=1"], seconds,
                                   **environment)
        failed = [line.split("]")[1].split(",")[0].strip() for line in output.splitlines() if line.startswith("[  FAILED  ]")]
        if failed and status != 124:
            self.call([self.program(program), "--gtest_filter=" + failed[0]], seconds, TALLY_CUDA_SYNC="1")
        passed = sum(int(line.split("]")[1].split()[0]) for line in output.splitlines() if line.startswith("[  PASSED  ]"))
        return {"ok": status == 0 and passed > 0, "status": status, "passed": passed, "failed": failed[:5]}

    def json_of(self, command, seconds):
        status, output = self.call(command, seconds)
        lines = [line for line in output.splitlines() if line.startswith("{")]
        return json.loads(lines[-1]) if status == 0 and lines else {"error": output[-300:], "status": status}


def machine(run):
    status, output = run.call(["nvidia-smi", "--query-gpu=name,driver_version,compute_cap,memory.total", "--format=csv"], 15)
    info = run.json_of([run.program("tally"), "info", "--json", "--device", run.device], 60)
    return {"ok": (status == 0 or run.rehearse) and "error" not in info, "gpu": output.splitlines()[-1:], "info": info}


def ceilings(run):
    """A copy of 4 GiB and a product of 8192 x 8192 matrices in bf16 by PyTorch: the limits of everything below."""
    program = """
import json, time, torch
def best(f, n):
    for _ in range(3): f()
    times = []
    for _ in range(n):
        torch.cuda.synchronize(); start = time.perf_counter(); f(); torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return sorted(times)[n // 2]
x = torch.randn(1 << 30, device="cuda"); y = torch.empty_like(x)
a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
print(json.dumps({"copy_tb_per_s": 2 * x.numel() * 4 / best(lambda: y.copy_(x), 10) / 1e12,
                  "bf16_tflop_per_s": 2 * 8192**3 / best(lambda: a @ b, 10) / 1e12, "torch": torch.__version__}))
"""
    found = run.json_of(["python3", "-c", program], 60)
    return {"ok": "error" not in found, **found}


def quick_run(run):
    """100 training steps: their losses beside those that the CPU had when the build was packed."""
    target = run.out / "quick"
    options = QUICK_RUN
    if run.rehearse:
        options = [option.replace("100", "2") for option in QUICK_RUN] + ["--length", "32", "--batch", "2"]
    status, output = run.call([run.program("tally"), "train", str(target), *options, "--force", "--device", run.device], 90)
    if status != 0:
        return {"ok": False, "error": output[-300:]}

    def losses(folder):
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        return {line["step"]: line["loss"] for line in lines if "loss" in line and "step" in line}

    ours, kept = losses(target), losses(run.folder / "quick")
    if run.rehearse:
        return {"ok": len(ours) == 2, "losses": ours}
    largest = max(abs(ours[step] / kept[step] - 1) for step in kept if step <= 50)
    return {"ok": largest < LARGEST_LOSS_DIFFERENCE, "largest_relative_difference": largest, "losses": ours}


def sanitizers(run):
    if run.rehearse:
        return {"ok": True, "skipped": "compute-sanitizer needs a GPU"}
    found = {}
    for tool, name in [("memcheck", "operations"), ("memcheck", "attention"), ("racecheck", "attention")]:
        program, suites = SMALL[name]
        command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "--print-limit", "10", run.program(program),
                   "--gtest_filter=Cuda/" + suites.split(":")[0], "--gtest_brief=1"]
        status, output = run.call(command, 40)
        found[f"{tool} {name}"] = {0: "clean", 124: "clean until its limit of time"}.get(status, output[-300:])
    return {"ok": all(text.startswith("clean") for text in found.values()), **found}


def speed(run):
    """Training steps of the paper's model, and attention over long texts."""
    found, small = [], ["--set", "task.length=64", "--set", "batch=2", "--steps", "1", "--warmup", "0"] if run.rehearse else []
    for precision in (["f32"] if run.rehearse else ["f32", "tf32", "bf16"]):
        words = ["--precision", precision, "--device", run.device, "--json", *small]
        for pe in ["none", "rope", "cope"]:
            found.append(run.json_of([run.program("tally"), "bench", "step", "--pe", pe, "--preset",
                                      "quick" if run.rehearse else "paper", *words], 30))
    for pe in ["none", "cope"]:
        for length in ["64"] if run.rehearse else ["4096", "16384"]:
            words = ["--set", "batch=1", "--set", "task.length=" + length, "--device", run.device, "--json"]
            if not run.rehearse:
                words += ["--precision", "bf16"]
            found.append(run.json_of([run.program("tally"), "bench", "attention", "--pe", pe, *words, *small[4:]], 30))
    return {"ok": not any("error" in line for line in found), "lines": found}


def peer(run):
    script = str(ROOT / "tests/bench/torch_step.py")
    device = ["--device", "cpu", "--length", "64", "--batch", "2", "--width", "32", "--steps", "1"] if run.rehearse else \
        ["--device", "cuda", "--precision", "bf16", "--graph"]
    found = [run.json_of(["python3", script, "--pe", pe, *device], 45) for pe in ["none", "cope"]]
    return {"ok": not any("error" in line for line in found), "lines": found}


def counters(run):
    """Instructions, tensor instructions and bank conflicts of the attention kernels, to compare with predicted counts."""
    if run.rehearse:
        return {"ok": True, "skipped": "ncu needs a GPU"}
    command = ["ncu", "--csv", "--clock-control", "none", "--launch-count", "16", "--kernel-name", "regex:attention|forward|backward",
               "--metrics", ",".join(COUNTERS), run.program("tally"), "bench", "attention", "--pe", "cope", "--set", "batch=1",
               "--set", "task.length=4096", "--precision", "bf16", "--device", "cuda", "--steps", "1", "--warmup", "0"]
    status, output = run.call(command, 60)
    return {"ok": status == 0, "lines": sum(line.startswith('"') for line in output.splitlines())}


STEPS = {
    "machine": machine,
    "ceilings": ceilings,
    "operations": lambda run: run.tests("operations", 60),
    "attention": lambda run: run.tests("attention", 60),
    "captured-steps": lambda run: run.tests("captured-steps", 30),
    "quick-run": quick_run,
    "sanitizers": sanitizers,
    "speed": speed,
    "peer": peer,
    "counters": counters,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/first"))
    parser.add_argument("--only", default=",".join(STEPS))
    parser.add_argument("--rehearse", action="store_true")
    args = parser.parse_args()
    if not (args.folder / "tally").is_file():
        sys.exit(f"first_contact.py: {args.folder} holds no program 'tally'; 'cuda/offline.sh carry' packs it")
    unknown = set(args.only.split(",")) - STEPS.keys()
    if unknown:
        sys.exit(f"first_contact.py: no step {', '.join(sorted(unknown))}; the steps are {', '.join(STEPS)}")
    args.out.mkdir(parents=True, exist_ok=True)
    run, good, began = Runner(args), True, time.monotonic()
    with open(args.out / "first.jsonl", "a", encoding="utf-8") as results:
        for name in args.only.split(","):
            start = time.monotonic()
            with open(args.out / f"{name}.log", "w", encoding="utf-8") as run.log:
                try:
                    found = STEPS[name](run)
                except Exception as error:  # whatever one step meets, the next ones run
                    found = {"ok": False, "error": f"{type(error).__name__}: {error}"}
            good = good and found["ok"]
            line = json.dumps({"step": name, "seconds": round(time.monotonic() - start, 1), **found})
            print(line, flush=True)
            results.write(line + "\n")
            results.flush()
    print(json.dumps({"seconds": round(time.monotonic() - began, 1), "ok": good}))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
