#!/usr/bin/env python3
"""A sweep by real Slurm, controller and node on this machine: `tally sweep --print slurm` is handed to sbatch; of its
array one worker is killed, one element is told that its time is up, one is requeued from outside. Every run must be
finished exactly once, with the bytes that one process alone gives it.

Then processes that srun starts: several of one run are refused, workers are not.

Usage: slurm.py TALLY [--transcript]. Starts munged, slurmctld and slurmd of its own, with everything in a folder of its
own, and ends them; installs nothing. Exit status 77 (skipped) where Slurm or the right to start it is missing, with
what is missing; 1 where something differs.
"""
import argparse
import json
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from grid import differences, grid, status, trained_alone

DAEMONS = ["munged", "slurmctld", "slurmd"]
TOOLS = ["sbatch", "squeue", "scontrol", "sinfo", "scancel"]
SKIPPED = 77
RUNS = 6


class CannotRun(Exception):
    """Slurm is there and does not come up here: why."""


def where(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def free_port():
    with socket.socket() as one:
        one.bind(("", 0))
        return one.getsockname()[1]


class TooLate(Exception):
    """What should have happened did not: why."""


class Slurm:
    """A cluster of one machine, with its files below `place`."""

    def __init__(self, place):
        self.place = place
        self.daemons = []
        self.environment = {**os.environ, "SLURM_CONF": str(place / "slurm.conf"),
                            "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}

    def start(self):
        munge = self.place / "munge"
        munge.mkdir(mode=0o755)
        key = munge / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        host = socket.gethostname().split(".")[0]
        for folder in ("state", "spool"):
            (self.place / folder).mkdir()
        facts = subprocess.run(["slurmd", "-C"], env=self.environment, check=True, text=True,
                               stdout=subprocess.PIPE).stdout.split("\n")[0].split()
        node = " ".join(word for word in facts if word.split("=")[0] in ("CPUs", "RealMemory"))
        (self.place / "slurm.conf").write_text(f"""ClusterName=alone
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={munge}/socket
CredType=cred/munge
StateSaveLocation={self.place}/state
SlurmdSpoolDir={self.place}/spool
SlurmctldPidFile={self.place}/slurmctld.pid
SlurmdPidFile={self.place}/slurmd.pid
SlurmctldLogFile={self.place}/slurmctld.log
SlurmdLogFile={self.place}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=5
MinJobAge=600
SchedulerParameters=sched_min_interval=100000,batch_sched_delay=1
NodeName={host} NodeAddr=127.0.0.1 {node} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
""")
        self.daemon("munged", "--foreground", f"--key-file={key}", f"--socket={munge}/socket",
                    f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed", "--force")
        self.wait_for(lambda: (munge / "socket").exists(), "munged", failure=CannotRun)
        self.daemon("slurmctld", "-D", "-f", self.environment["SLURM_CONF"])
        self.daemon("slurmd", "-D", "-f", self.environment["SLURM_CONF"])
        self.wait_for(lambda: self.run("sinfo", "--noheader", "--format=%T").strip() == "idle", "the node",
                      failure=CannotRun)

    def daemon(self, name, *words):
        log = open(self.place / f"{name}.out", "w")  # pylint: disable=consider-using-with
        self.daemons.append(subprocess.Popen([name, *words], env=self.environment, stdout=log, stderr=log))

    def wait_for(self, ready, what, seconds=30, failure=TooLate):
        end = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > end:
                logs = "\n".join(f"{path.name}: {path.read_text()[-600:]}" for path in sorted(self.place.glob("*.[lo]*")))
                raise failure(f"{what} did not come in {seconds} s:\n{logs}")
            time.sleep(0.2)

    def run(self, *words):
        answer = subprocess.run(words, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return answer.stdout

    def begin_at_once(self):
        """What was requeued does not wait for the two minutes that Slurm would keep it back."""
        for line in self.run("squeue", "--array", "--noheader", "--states=PD", "--format=%i %r").splitlines():
            job, why = line.split()[:2]
            if why == "BeginTime":
                self.run("scontrol", "update", f"JobId={job}", "StartTime=now")

    def stop(self):
        if len(self.daemons) == len(DAEMONS):
            self.run("scancel", "--user=root")
        for process in reversed(self.daemons):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def worker_of(shared, run):
    """The process of the worker that trains this run, from its claim."""
    newest = sorted(shared.glob(f"{run}.claim-*"), key=lambda path: int(path.name.rsplit("-", 1)[1]))
    return json.loads(newest[-1].read_text())["process"]


def trouble(slurm, tally, shared, told):
    """Waits until runs are at work, then disturbs three of them in three ways."""
    done = []
    while len(done) < 3:
        time.sleep(0.3)
        states = status(tally, shared)
        if states["states"].get("finished", 0) == len(states["runs"]):
            raise TooLate(f"all runs were finished after {done}: too small for this machine")
        for run in states["runs"]:
            if run["state"] != "at work" or run["saved_step"] == 0 or run["run"] in [name for name, _ in done]:
                continue
            jobs = [line.split() for line in slurm.run("squeue", "--array", "--noheader", "--states=R",
                                                       "--format=%A %K").splitlines()]
            names = [one["run"] for one in states["runs"]]
            mine = [job for job, element in jobs if int(element) == names.index(run["run"])]
            if not mine:
                continue
            how = ["a worker is killed", "its time is up", "it is requeued"][len(done)]
            if len(done) == 0:
                os.kill(worker_of(shared, run["run"]), signal.SIGKILL)
            elif len(done) == 1:
                # It waits for the end of a job that is requeued by its signal.
                slurm.run("timeout", "3", "scancel", "--batch", "--signal=USR1", mine[0])
            else:
                slurm.run("scontrol", "requeue", mine[0])
            told(f"{run['run']} (job {mine[0]}), at step {run['saved_step']} or later: {how}")
            done.append((run["run"], how))
            break
    return done


def started_by_slurm(slurm, tally, place, told):
    """What srun starts twice is refused; a batch script of a job with two tasks trains, and so do the workers that srun
    starts. What is wrong."""
    words = grid(seeds=1, steps=2)
    one = [word.replace("cope,rope", "cope") for word in words if not word.startswith("--seeds")]
    refused = slurm.run("srun", "--ntasks=2", tally, "train", str(place / "twice"), *one)
    told(f"$ srun --ntasks=2 tally train twice ...\n{refused}")
    if refused.count("srun started 2 processes that do not know of each other") != 1 or (place / "twice").exists():
        yield f"two processes of srun: {refused}"
    script = shlex.join([tally, "train", str(place / "batch"), *one])
    trained = slurm.run("sbatch", "--wait", "--ntasks=2", f"--output={place}/batch.log", f"--wrap={script}")
    if not (place / "batch" / "results.json").exists():
        yield f"a batch script with two tasks: {trained}{(place / 'batch.log').read_text()}"
    worked = slurm.run("srun", "--ntasks=2", tally, "sweep", str(place / "workers"), *words, "--worker", "--jobs=1")
    told(f"$ srun --ntasks=2 tally sweep workers ... --worker\n{worked}")
    if status(tally, place / "workers")["states"] != {"finished": 2}:
        yield f"workers that srun starts: {worked}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tally")
    parser.add_argument("--transcript", action="store_true", help="show what the commands print")
    arguments = parser.parse_args()
    missing = [name for name in DAEMONS + TOOLS if where(name) is None]
    if missing:
        print(f"skipped: no Slurm here ({', '.join(missing)} missing); tests/install.sh --with-slurm installs it")
        return SKIPPED
    if os.geteuid() != 0:
        print("skipped: Slurm's daemons are started by root alone")
        return SKIPPED

    def told(text):
        if arguments.transcript:
            print(text, flush=True)

    tally = str(pathlib.Path(arguments.tally).resolve())
    options = grid(seeds=RUNS // 2, steps=5000)
    with tempfile.TemporaryDirectory(prefix="tally-slurm-") as place:
        place = pathlib.Path(place)
        place.chmod(0o755)
        alone, shared = place / "alone", place / "shared"
        slurm = Slurm(place)
        try:
            try:
                slurm.start()
            except CannotRun as why:
                print(f"skipped: Slurm is installed and cannot run here: {why}")
                return SKIPPED
            told(slurm.run("sinfo"))
            script = subprocess.run([tally, "sweep", shared, *options, "--print=slurm", "--threads=1"], check=True,
                                    stdout=subprocess.PIPE).stdout
            (place / "script").write_bytes(script)
            told("$ sbatch script\n" + slurm.run("sbatch", "--chdir", str(place), str(place / "script")))
            trouble(slurm, tally, shared, told)
            told("$ squeue --array\n" + slurm.run("squeue", "--array"))
            trained_alone(tally, alone, options)
            slurm.wait_for(lambda: slurm.begin_at_once() or status(tally, shared)["states"].get("finished") == RUNS,
                           "the end of the sweep", 400)
            slurm.wait_for(lambda: slurm.run("squeue", "--noheader").strip() == "", "the end of the jobs", 60)
            told("$ tally sweep shared --dry-run\n" + slurm.run(tally, "sweep", str(shared), "--dry-run"))
            for log in sorted(shared.glob("slurm-*.log")):
                told(f"{log.name}:\n{log.read_text()}")
            wrong = [*differences(shared, alone), *started_by_slurm(slurm, tally, place, told)]
        except TooLate as why:
            wrong = [str(why)]
        finally:
            slurm.stop()
    for line in wrong:
        print(line)
    print("as alone" if not wrong else "NOT as alone")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
