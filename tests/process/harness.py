# SPDX-License-Identifier: Apache-2.0
"""Shared parts of the process tests: tiny data, tiny jobs, runs of `ringmaster`, and checks for leftover processes.

Nothing here sleeps: every wait is for an event (a line, an exit, a pidfd) with a deadline.
"""

import ctypes
import fcntl
import json
import os
import pathlib
import queue
import random
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time

DEADLINE_S = 300  # for anything that should take seconds, on a slow and busy machine
GONE_S = 20  # for the end of the processes of a run that has ended
CLEANUP_S = 50  # the same where a test cleans up: below the grace period of job_text()
ENDLESS = 1_000_000  # steps of a run that the test ends when it has seen what it waits for, however fast the machine is

WORDS = "the of and a to in he was that it his her with as had for she not at but be on they him is have".split()


# Programs that train through libringmaster, by the name of their model: the command without its number of steps, which is
# its last argument. Tests add to them.
PROGRAMS: dict[str, list[str]] = {}


def make_data(folder: pathlib.Path) -> None:
    """Writes text, and images in the MNIST layout: a few kilobytes each, the same on every call."""
    dice = random.Random(1)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_text(" ".join(dice.choice(WORDS) for _ in range(6000)))
    images = folder / "images"
    images.mkdir(exist_ok=True)
    for split, count in (("train", 250), ("t10k", 40)):  # 250: the last step of an epoch is short
        labels = bytes(dice.randrange(10) for _ in range(count))
        pixels = bytes(min(255, label * 20 + dice.randrange(40)) for label in labels for _ in range(64))
        (images / f"{split}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, count, 8, 8) + pixels)
        (images / f"{split}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, count) + labels)


def job_text(data: pathlib.Path, model: str, workers: int = 2, steps: int = 60, minimum: int = 1, extra: str = "",
             every: int = 10, slots: int = 1, transport: str = "auto", keep: int = 2, schedule: str = "cosine") -> str:
    """Returns a manifest. Its restarts are unlimited, because the tests kill far more often than real machines fail. With
    `schedule` constant, a run may continue with another number of steps and equals one that had that number at first."""
    framework, launch, template = "native", "", ""
    if model in PROGRAMS:
        framework, launch, training = "pytorch", "  launch: {kind: library}\n", ""
        command = json.dumps([*map(str, PROGRAMS[model]), str(steps)])
        template = f", template: {{spec: {{containers: [{{name: worker, image: program, command: {command}}}]}}}}"
    elif model == "gpt":
        training = f"""
    model: {{kind: gpt, layers: 2, heads: 2, width: 32, context: 32, tokenizer: bytes}}
    data: {{kind: text, path: {data}/text.txt}}"""
    else:
        training = f"""
    model: {{kind: {model}, layers: 2, width: {512 if model == "mlp" else 8}}}
    data: {{kind: idx, path: {data}/images}}"""
    if framework == "native":
        training = f"""  training:{training}
    batch: {{samplesPerStep: {12 if model == "gpt" else 48}, microBatches: 6}}
    optimizer: {{kind: {"sgd" if model == "cnn" else "adamw"}, learningRate: "1e-2", schedule: {schedule}, warmupSteps: 5, clipNorm: "1"}}
    steps: {steps}
"""
    network = "" if transport == "auto" else f"  network: {{transport: {transport}}}\n"
    return f"""apiVersion: ringmaster.dev/v1alpha1
kind: TrainingJob
metadata: {{name: tiny-{model}}}
spec:
  framework: {framework}
{launch}  workers: {{replicas: {workers}, min: {minimum}, max: {6 // slots}, slots: {slots}{template}}}
{network}{training}  checkpoint: {{everySteps: {every}, keep: {keep}, gracePeriodSeconds: 60}}
  restart: {{maxRestarts: 100000, maxWithoutProgress: 100000, backoff: {{initialSeconds: 0, maxSeconds: 1}}}}
{extra}"""


def has_module(python: str, module: str) -> bool:
    """Returns whether `python` is a Python that finds the module."""
    find = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return os.access(python, os.X_OK) and subprocess.run([python, "-c", find], check=False).returncode == 0


def prepare_child():
    """Runs in the child process. However the test ends, its runs end too; and a SIGHUP that arrives before the run
    listens for it waits, instead of ending it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)


class Run:
    """One `ringmaster run`, whose metrics lines can be read as they are printed."""

    def __init__(self, binary, job, out, *flags, progress="json", environment=None):
        self.out = pathlib.Path(out)
        self.lines = queue.Queue()
        self.errors = []
        self.process = subprocess.Popen(
            [str(binary), "run", str(job), "--out", str(out), "--progress", progress, *map(str, flags)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=dict(os.environ, **(environment or {})), preexec_fn=prepare_child)
        self.readers = [threading.Thread(target=self._read_out, daemon=True),
                        threading.Thread(target=self._read_err, daemon=True)]
        for reader in self.readers:
            reader.start()

    def _read_out(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def _read_err(self):
        self.errors.extend(self.process.stderr)

    def next_line(self, timeout_s=DEADLINE_S):
        """Returns the next line; None when the output has ended. Raises queue.Empty at the deadline."""
        return self.lines.get(timeout=timeout_s)

    def wait_for_step(self, step, timeout_s=DEADLINE_S):
        """Waits until a step of at least `step` is printed and returns it; None when the run ended before."""
        end = time.monotonic() + timeout_s
        while (line := self.next_line(max(0.01, end - time.monotonic()))) is not None:
            seen = json.loads(line)["step"]
            if seen >= step:
                return seen
        return None

    def wait(self, timeout_s=DEADLINE_S):
        code = self.process.wait(timeout_s)
        for reader in self.readers:
            reader.join(10)
        self.process.stdout.close()
        self.process.stderr.close()
        return code

    def within(self, seconds):
        """Waits for `seconds` and returns True; returns False as soon as the run ends."""
        try:
            self.process.wait(seconds)
            return False
        except subprocess.TimeoutExpired:
            return True

    def signal(self, number):
        self.process.send_signal(number)

    def wait_until_it_blocks(self, number, timeout_s=DEADLINE_S):
        """Waits until the run takes signal `number` in its own time. Before that, the signal simply ends it.

        A program that starts a thread blocks all signals for a moment: then SIGUSR2 is blocked too.
        """
        status, end = pathlib.Path(f"/proc/{self.process.pid}/status"), time.monotonic() + timeout_s
        while self.process.poll() is None and time.monotonic() < end:
            blocked = int(re.search(r"^SigBlk:\s*(\w+)", status.read_text(), re.M)[1], 16)
            if blocked >> (number - 1) & 1 and not blocked >> (signal.SIGUSR2 - 1) & 1:
                return True
        return False

    def stderr(self):
        return "".join(self.errors)

    def workers(self):
        """Returns {pod: (agent pid, [trainer pids])} of the workers with a live agent."""
        return {pod: pids for pod, pids in workers_of(self.out).items() if pids[0] > 0}


def environment_of(pid):
    try:
        raw = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    return dict(part.split("=", 1) for part in raw.decode(errors="replace").split("\0") if "=" in part)


def parent_and_state(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None, "X"
    state, parent = stat[stat.rindex(")") + 2:].split()[:2]
    return int(parent), state


def workers_of(out):
    """Returns {pod: (agent, [trainers])} of the run in `out`. Processes of the run have its job file in their environment;
    trainers, and the processes that they start, also have RINGMASTER_MEMBER. A pod with slots is listed without trainers, each
    agent of a slot as pod/pid with its trainer, and their relay as pod/pid without one."""
    folder = pathlib.Path(out).absolute() / ".run"
    agents, trainers = {}, []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        environment = environment_of(entry)
        if environment.get("RINGMASTER_JOB_FILE") != str(folder / "job.json"):
            continue
        parent, state = parent_and_state(entry)
        if state in "ZX":
            continue
        if "RINGMASTER_MEMBER" in environment:
            trainers.append((int(entry), parent, environment.get("RINGMASTER_POD", "?")))
        else:
            agents[int(entry)] = (environment.get("RINGMASTER_POD", "?"), parent)
    names = {pid: f"{pod}/{pid}" if parent in agents else pod for pid, (pod, parent) in agents.items()}
    workers = {name: (pid, []) for pid, name in names.items()}
    parents = {pid: parent for pid, parent, _ in trainers}
    for pid, parent, pod in trainers:
        while parent in parents:  # a process that reads ahead belongs to its trainer
            parent = parents[parent]
        workers.setdefault(names.get(parent, pod), (parent if parent in agents else 0, []))[1].append(pid)
    return workers


def processes_of(out):
    """Returns {pid: pod} of every live process of the run."""
    return {pid: name for name, (agent, trainers) in workers_of(out).items() for pid in [agent, *trainers] if pid > 0}


def kill(pid, number):
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


def wait_gone(out, timeout_s=GONE_S):
    """Waits for the end of every process of the run; returns those that are still alive at the deadline."""
    end = time.monotonic() + timeout_s
    while processes := processes_of(out):
        pid = next(iter(processes))
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            ready, _, _ = select.select([handle], [], [], max(0.0, end - time.monotonic()))
        finally:
            os.close(handle)
        if not ready:
            break
    return processes_of(out)


def summary(out):
    return json.loads((pathlib.Path(out) / "summary.json").read_text())


# Of the tests with TensorBoard and MLflow: the path of its text, and its steps.
TRACKED_JOB = """
apiVersion: ringmaster.dev/v1alpha1
kind: TrainingJob
metadata: {name: tiny}
spec:
  framework: native
  workers: {replicas: 2, min: 1, max: 2}
  training:
    model: {kind: gpt, layers: 2, heads: 2, width: 32, context: 32, tokenizer: bytes}
    data: {kind: text, path: %s, validationFraction: "0.01"}
    batch: {samplesPerStep: 8, microBatches: 4}
    optimizer: {kind: adamw, learningRate: "1e-2"}
    steps: %d
    validateEverySteps: 50
  checkpoint: {everySteps: 20}
"""


def whole_lines(path):
    """Returns the lines of a file. The last one of a run that still writes, or was killed, may be torn: it is left out."""
    text = pathlib.Path(path).read_text()
    return text[:text.rfind("\n") + 1].splitlines()


def metrics(out):
    """Returns the records of a run. A line that is an array has the first values of the object before it."""
    records = []
    for line in whole_lines(pathlib.Path(out) / "metrics.jsonl"):
        record = json.loads(line)
        if isinstance(record, list):
            record = records[-1] | dict(zip(records[-1], record))
        records.append(record)
    return records


def steps_done(out):
    """Returns how many steps a run that has ended has done. One that was killed may have lost records of the last ones."""
    recorded = pathlib.Path(out) / "metrics.jsonl"
    last = metrics(out)[-1:] if recorded.exists() else []
    saved = (pathlib.Path(out) / "checkpoints").glob("step-*/MANIFEST")
    return max([record["step"] for record in last] + [int(path.parent.name.removeprefix("step-")) for path in saved], default=0)


def names(workers):
    """Returns each name of a list in the short form of cli/history/worker_names.h: gpt-1-[2,0,3-5]."""
    every = []
    for text in workers:
        short = re.fullmatch(r"(.*)\[([\d,-]+)\]", text)
        for item in short[2].split(",") if short else ():
            first, _, last = item.partition("-")
            every += [f"{short[1]}{number}" for number in range(int(first), int(last or first) + 1)]
        every += [] if short else [text]
    return every


def events(out):
    """Returns the events of a run, with the names of their workers."""
    found = [json.loads(line) for line in whole_lines(pathlib.Path(out) / "events.jsonl")]
    return [{**event, "workers": names(event["workers"])} if "workers" in event else event for event in found]


def busy_times(out):
    """Returns the windows of a run. A line that is an array has the first values of the object before it."""
    keys, windows = ("monotonicSeconds", "step", "seconds", "longest", "stragglers"), []
    for line in whole_lines(pathlib.Path(out) / "busy_times.jsonl"):
        window = json.loads(line)
        windows.append(dict(zip(keys, window)) if isinstance(window, list) else window)
        if "workers" in windows[-1]:
            windows[-1]["workers"] = names(windows[-1]["workers"])
    return windows


# Keys whose text must be equal in every run; the others depend on where and how fast it ran.
SAME_KEYS = ("step", "loss", "lr", "gradNorm", "samples")


def curve(out):
    return [json.dumps([record[key] for key in SAME_KEYS]) for record in metrics(out)]


def newest_chunks(out):
    """Returns {file name: bytes} of the newest checkpoint, without its manifest (which also describes the run)."""
    folders = sorted((pathlib.Path(out) / "checkpoints").glob("step-[0-9]*"))
    folders = [folder for folder in folders if (folder / "MANIFEST").exists()]
    if not folders:
        return {}
    return {path.name: path.read_bytes() for path in sorted(folders[-1].glob("chunk-*"))}


def differences(out, reference):
    """Describes the differences between a finished run and a reference run."""
    found = []
    ours, theirs = summary(out), summary(reference)
    for key in ("phase", "step", "weightsHash", "optimizerHash"):
        if ours[key] != theirs[key]:
            found.append(f"summary {key}: {ours[key]} instead of {theirs[key]}")
    for key in ("loss", "validation"):
        if json.dumps(ours[key]) != json.dumps(theirs[key]):
            found.append(f"summary {key}: {ours[key]} instead of {theirs[key]}")
    ours, theirs = curve(out), curve(reference)
    if ours != theirs:
        steps = [json.loads(line)[0] for line in ours]
        if steps != list(range(1, len(theirs) + 1)):
            found.append(f"metrics: steps are not each once and in order: {steps}")
        else:
            first = next(i for i in range(len(theirs)) if ours[i] != theirs[i])
            found.append(f"metrics of step {first + 1}: {ours[first]} instead of {theirs[first]}")
    ours, theirs = newest_chunks(out), newest_chunks(reference)
    if not theirs or ours != theirs:
        found.append(f"the final checkpoint differs: {sorted(ours)} against {sorted(theirs)}")
    return found


def on_terminal(words, columns=80, **environment):
    """Runs a command on a terminal of so many columns. Returns its exit code and the bytes that it wrote there."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    process = subprocess.Popen([*map(str, words)], env={**plain, "TERM": "xterm", "LC_ALL": "C.UTF-8", **environment},
                               stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, preexec_fn=prepare_child)
    os.close(theirs)
    written, end = b"", time.monotonic() + DEADLINE_S
    with os.fdopen(ours, "rb", buffering=0) as screen:
        while select.select([screen], [], [], max(0.0, end - time.monotonic()))[0]:
            try:
                piece = screen.read(65536)
            except OSError:  # every process has closed it
                break
            if not piece:
                break
            written += piece
    return process.wait(max(1.0, end - time.monotonic())), written


SIGNAL_NAMES = {signal.SIGKILL: "SIGKILL", signal.SIGSTOP: "SIGSTOP", signal.SIGCONT: "SIGCONT"}
