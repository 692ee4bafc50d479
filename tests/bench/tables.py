"""Shared by the scripts that print tables: programs that print JSON, the machine, and Markdown."""
import datetime
import json
import os
import subprocess
import sys


class Failed(SystemExit):
    """A program failed; ends the script with the program's message if nothing catches it."""

    def __init__(self, command, done):
        super().__init__(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr}")
        self.status, self.error = done.returncode, done.stderr


def result_of(command, environment=None):
    """The JSON object in the last line of a program's output."""
    command, environment = list(map(str, command)), environment or {}
    print(" ".join(command), *(f"[{name}={value}]" for name, value in environment.items()), file=sys.stderr)
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode != 0:
        raise Failed(command, done)
    return json.loads(done.stdout.splitlines()[-1])


def seconds_of(result):
    """The time of a result of `tally bench` or torch_step.py."""
    return result["step_s"] if result["work"] == "step" else result["both_s"]


def time_text(seconds):
    if seconds >= 0.2:
        return f"{seconds:.2f} s"
    return f"{1000 * seconds:.1f} ms" if seconds >= 0.01 else f"{1000 * seconds:.2f} ms"


def encodings_of(tally):
    """The names of all encodings."""
    return [entry["name"] for entry in result_of([tally, "describe", "encodings", "--json"])["encodings"]]


def machine_text(machine):
    """The origin of a table, from the member `machine` of a result."""
    at = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    commit = machine.get("commit") or "unknown"
    return (f"{machine['device_name'] or machine['processor']}, {machine['threads']} threads, {machine['blas']} kernels "
            f"of OpenBLAS, {machine['compiler']}, tally {machine['version']} at commit {commit}; {at}")


def row_text(cells):
    return "| " + " | ".join(cells) + " |"


def print_heads(heads):
    print(row_text(heads) + "\n|" + "---|" * len(heads))
