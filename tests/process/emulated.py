# SPDX-License-Identifier: Apache-2.0
"""Runs whole jobs with `device: cuda` on emulated GPUs. Only CUDA itself is replaced."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

import harness

STEPS = 30
DEADLINE_S = 600  # kernels run thread by thread

failures = []


def expect(good, what):
    if not good:
        failures.append(what)
        print(f"    FAILED: {what}")


def no_gpu(folder):
    """Returns None where this machine has a GPU that the binaries in the folder can use; otherwise prints the reason and
    returns the exit code of the test: 77, or 1 when the reason is in what was built."""
    devices = subprocess.run([folder / "ringmaster", "devices"], capture_output=True, text=True, check=False)
    if "(no GPU: " not in devices.stdout:
        return None
    reason = devices.stdout[devices.stdout.index("(no GPU: "):].splitlines()[0]
    broken = any(words in reason for words in ("does not exist", "another build", "cannot be loaded"))
    print(f"{'FAILED' if broken else 'skipped'}: {reason}")
    return 1 if broken else 77


def write_job(path, data, steps, workers, device, minimum=1, extra="", spec="", slots=1):
    """Writes a job file. `extra` is added to spec.training, `spec` to spec."""
    text = harness.job_text(data, "gpt", workers, steps, minimum, every=10, extra=spec, slots=slots)
    text = text.replace("maxRestarts: 100000, maxWithoutProgress: 100000", "maxRestarts: 4, maxWithoutProgress: 4")
    path.write_text(text.replace("\n    steps:", f"\n    device: {device}{extra}\n    steps:"))


class Case:
    def __init__(self, flags, folder, data, steps, real):
        self.binary = flags.bin.absolute() / "ringmaster"
        plugin = "libringmaster_cuda.so" if real else "tests/libringmaster_cuda_emulated.so"
        self.plugin = flags.bin.absolute() / plugin
        self.name = "" if real else "Emulated GPU"
        self.folder, self.data, self.steps = folder, data, steps

    def start(self, name, workers, device, extra="", minimum=1, spec="", slots=1, **environment):
        """Starts a run with additional environment variables."""
        print(name, flush=True)
        job = self.folder / f"{name}.yaml"
        write_job(job, self.data, self.steps, workers, device, minimum, extra, spec, slots)
        environment = {"RINGMASTER_DEVICE_PLUGIN": str(self.plugin), **environment}
        before = dict(os.environ)
        os.environ.update(environment)
        try:
            return harness.Run(self.binary, job, self.folder / name)
        finally:
            os.environ.clear()
            os.environ.update(before)

    def scale(self, name, run, workers):
        job = self.folder / f"{name}.yaml"
        job.write_text(re.sub(r"replicas: \d+", f"replicas: {workers}", job.read_text()))
        run.signal(signal.SIGHUP)

    def finish(self, name, run):
        code = run.wait(DEADLINE_S)
        expect(code == 0, f"{name}: exit code {code}: {run.stderr()[-600:]}")
        return self.folder / name

    def run(self, name, workers, device, **more):
        return self.finish(name, self.start(name, workers, device, **more))


def log_text(out):
    return "".join(path.read_text(errors="replace") for path in sorted((out / "logs").glob("*.log")))


def reported(out):
    """Returns the logs of the workers and the events of the run."""
    events = out / "events.jsonl"
    return log_text(out) + (events.read_text() if events.exists() else "")


def expect_same(name, out, reference):
    for difference in harness.differences(out, reference):
        expect(False, f"{name}: {difference}")


def trainers_of(run):
    return [pid for _, (_, pids) in sorted(run.workers().items()) for pid in pids]


@contextlib.contextmanager
def cases(flags, steps=STEPS, real=False):
    """Yields a Case with data, in a folder that is kept after a failure."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ringmaster-gpu-"))
    data = folder / "data"
    harness.make_data(data)
    yield Case(flags, folder, data, steps, real)
    if failures or flags.keep:
        print(f"left in {folder}")
    else:
        shutil.rmtree(folder)
    print(f"{len(failures)} failures")
