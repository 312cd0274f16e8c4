# SPDX-License-Identifier: Apache-2.0
"""A job of PyTorch on `ringmaster run`, for the test and the benchmark: e2e/frameworks/train_ddp.py on two ranks."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import harness

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "e2e/frameworks/train_ddp.py"
DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
PRELOAD = ("torch", "torch._dynamo")  # DistributedDataParallel imports the second one
PODS = ("ddp-1-0", "ddp-1-1")


def python():
    """Returns the Python with PyTorch that RINGMASTER_TORCH names; None when there is none."""
    name = os.environ.get("RINGMASTER_TORCH", "")
    if name and not subprocess.run([name, "-c", "import torch.distributed"], check=False, stderr=subprocess.DEVNULL).returncode:
        return name
    return None


def arguments(checkpoints, steps, pause):
    return ["--data", str(DATA), "--checkpoints", str(checkpoints), "--steps", str(steps), "--step-seconds", str(pause)]


def lines_of(*files):
    """Returns the lines of JSON that the ranks printed into these files, in the order of time."""
    lines = []
    for file in files:
        for line in file.read_text(errors="replace").splitlines() if file.exists() else ():
            if found := re.fullmatch(r"(?:\[.*?\]:? ?)?(\{.*\})", line):  # after the prefix of the rank
                with contextlib.suppress(ValueError):  # one that is being written
                    lines.append(json.loads(found[1]))
    return sorted(lines, key=lambda line: line["time"])


class Training:
    """One run of the job in `folder`, with `pause` seconds between steps. `launcher`: words between Python and the script;
    `flags`: further ones of the script."""

    def __init__(self, ringmaster, folder, steps, pause=0.0, preload=(), spec="", launcher=(), flags=(), variables=None, workers=2):
        self.folder = pathlib.Path(folder)
        self.checkpoints = self.folder / "checkpoints"
        self.checkpoints.mkdir(parents=True)
        command = [python(), *launcher, str(SCRIPT), *arguments(self.checkpoints, steps, pause), *flags]
        env = [{"name": name, "value": value} for name, value in {"OMP_NUM_THREADS": "1", **(variables or {})}.items()]
        job = self.folder / "job.yaml"
        job.write_text(f"""apiVersion: ringmaster.dev/v1alpha1
kind: TrainingJob
metadata: {{name: ddp}}
spec:
  framework: pytorch
  launch: {{preload: {json.dumps(preload)}}}
  workers:
    replicas: {workers}
    template:
      spec:
        containers:
        - {{name: worker, image: none, command: {json.dumps(command)}, env: {json.dumps(env)}}}
{spec}""")
        self.run = harness.Run(ringmaster, job, self.folder / "out")
        self.logs = [self.folder / "out/logs" / f"{pod}.log" for pod in PODS]

    def said(self):
        return lines_of(*self.logs)

    def wait(self, what, condition):
        """Waits until `condition` returns something, and returns that."""
        end = time.monotonic() + harness.DEADLINE_S
        while not (found := condition()):
            assert time.monotonic() < end and self.run.within(0.05), (what, [log.read_text()[-3000:] for log in self.logs])
        return found

    def wait_for_step(self, step):
        self.wait(f"step {step}", lambda: any(line.get("step", 0) >= step for line in self.said()))

    def wait_for_spares(self, count=1):
        """Waits until each rank has had so many spares."""
        self.wait("spares", lambda: all(log.exists() and log.read_text().count(" is ready") >= count for log in self.logs))

    def kill_rank_1(self):
        """Sends SIGKILL to rank 1, and waits for the next step of both. Returns what took how long, in seconds."""
        # Not by the environment: a program that was a spare has that of its start.
        victim = int(re.findall(r" program pid=(\d+) rank=1 ", self.logs[1].read_text())[-1])
        lost_at = time.time()
        harness.kill(victim, signal.SIGKILL)
        return pause_after(lost_at, lambda what, condition: self.wait(what, condition), self.said)


def pause_after(lost_at, wait, said):
    """Returns the times from a failure at `lost_at` to parts of the next incarnation, in seconds; of the slower rank."""
    def phases():
        return [line for line in said() if "phases" in line and line["time"] > lost_at]
    wait("the first step of both ranks", lambda: len(phases()) == 2)
    again = min(line["time"] for line in phases())
    step = wait("a step", lambda: next((line for line in said() if "step" in line and line["time"] >= again), None))
    ups = [line for line in said() if line.get("up") and line["time"] > lost_at]
    slowest = {name: max(line["phases"][name] for line in phases()) for name in phases()[0]["phases"]}
    return {"next step": step["time"] - lost_at, "programs start": min(up["start"] for up in ups) - lost_at,
            "imports": slowest["import"], "model": slowest["optimizer"] - slowest["group"],
            "load": slowest["data"] - slowest["optimizer"]}
