# SPDX-License-Identifier: Apache-2.0
"""Jobs from Python, for scripts and notebooks: everything here is a call of the command line `ringmaster`.

    import ringmaster

    job = ringmaster.submit("train.py", ["--epochs", "3"], workers=8, gpus=1, image="registry.example.com/torch:1")
    for line in job.logs(follow=True):
        print(line)
    assert job.wait() == 0
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Union

from . import _programs
from ._errors import Error

_WAIT_S = 3600  # of one call of `ringmaster status --wait`
_NOT_ENDED = 3  # its exit code
_BAD_INPUT = 2

Path = Union[str, "os.PathLike[str]"]


def _command(*words: str) -> List[str]:
    return [str(_programs.find("ringmaster")), *words]


def _call(words: List[str], good: Sequence[int] = (0,), folder: Optional[Path] = None) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode not in good:
        raise Error(done.stderr.strip() or f"{words[:2]} ended with {done.returncode}")
    return done


class Job:
    """A job on a cluster, by its name: of `submit`, or of another session. Thread-safe."""

    def __init__(
        self,
        name: str,
        *,
        namespace: Optional[str] = None,
        context: Optional[str] = None,
        kubeconfig: Optional[Path] = None,
    ) -> None:
        self.name = name
        self._flags = _cluster_flags(namespace, context, kubeconfig)

    def __repr__(self) -> str:
        return f"<ringmaster.Job {self.name}>"

    def status(self) -> Mapping[str, Any]:
        """Returns the status of the TrainingJob, such as `phase`, `progress` and `conditions`; of a run on this machine its
        summary, or only `phase` while it runs."""
        done = _call(_command("status", self.name, "--json", *self._flags))
        status: Dict[str, Any] = json.loads(done.stdout)
        return {"phase": "Pending", **status}

    def wait(self, timeout: Optional[float] = None) -> int:
        """Waits until the job has ended. Returns 0 if it succeeded and 1 if it failed. Errors: TimeoutError after `timeout` s."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _WAIT_S if deadline is None else min(_WAIT_S, deadline - time.monotonic())
            words = _command("status", self.name, "--wait", str(max(1, round(left))), *self._flags)
            code = _call(words, good=(0, 1, _NOT_ENDED)).returncode
            if code != _NOT_ENDED:
                return code
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{self.name} has not ended within {timeout} s")

    def logs(self, follow: bool = False) -> Iterator[str]:
        """Yields the lines of rank 0, without their ends. `follow`: also those to come, until the job ends.
        Errors: Error with what the command line says, as for a job that does not exist."""
        if not follow:
            yield from _call(_command("logs", self.name, "--rank", "0", "--tail", "-1", *self._flags)).stdout.splitlines()
            return
        with tempfile.TemporaryFile("w+", errors="replace") as notes, subprocess.Popen(
            _command("attach", self.name, *self._flags),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=notes,
            text=True,
            errors="replace",
        ) as attached:
            assert attached.stdout is not None
            try:
                for line in attached.stdout:
                    yield line.rstrip("\n")
                if attached.wait() not in (0, 1):  # 1: the job failed
                    notes.seek(0)
                    raise Error(notes.read().strip() or f"ringmaster attach ended with {attached.returncode}")
            finally:
                attached.terminate()

    def cancel(self) -> None:
        """Deletes the job and stops its workers. A run on this machine writes a checkpoint and stops."""
        _call(_command("cancel", self.name, *self._flags))


class _LocalJob(Job):
    """A run of `ringmaster launch --local`, a child of this process. It outlives this process."""

    def __init__(self, name: str, words: List[str], folder: Optional[Path]) -> None:
        super().__init__(name)
        self._out = os.path.join(os.fspath(folder) if folder else os.getcwd(), "ringmaster-out", name)
        # A session of its own keeps the interrupt of a terminal or a notebook from it.
        self._process = subprocess.Popen(
            words,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._lines: List[str] = []
        self._ended = False
        self._news = threading.Condition()
        threading.Thread(target=self._read, name=f"output of {name}", daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                with self._news:
                    self._lines.append(line.rstrip("\n"))
                    self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def status(self) -> Mapping[str, Any]:
        if self._process.poll() is None:
            return {"phase": "Running"}
        try:
            with open(os.path.join(self._out, "summary.json"), encoding="utf-8") as file:
                summary: Dict[str, Any] = json.load(file)
            return summary
        except OSError:
            return {"phase": "Failed"}

    def wait(self, timeout: Optional[float] = None) -> int:
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.name} has not ended within {timeout} s") from None
        with self._news:
            self._news.wait_for(lambda: self._ended)
            if code == _BAD_INPUT:
                raise Error("\n".join(self._lines))
        return code

    def logs(self, follow: bool = False) -> Iterator[str]:
        seen = 0
        while True:
            with self._news:
                if follow:
                    self._news.wait_for(lambda: self._ended or len(self._lines) > seen)
                new = self._lines[seen:]
                ended = self._ended
            yield from new
            seen += len(new)
            if not follow or (ended and not new):
                return

    def cancel(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)


def _cluster_flags(namespace: Optional[str], context: Optional[str], kubeconfig: Optional[Path]) -> List[str]:
    given = {"--namespace": namespace, "--context": context, "--kubeconfig": kubeconfig}
    return [word for flag, value in given.items() if value is not None for word in (flag, os.fspath(value))]


def submit(
    script: Union[str, Sequence[str]],
    arguments: Sequence[str] = (),
    *,
    workers: Union[int, str] = 1,
    min_workers: Optional[int] = None,
    gpus: int = 0,
    image: Optional[str] = None,
    name: Optional[str] = None,
    local: bool = False,
    folder: Optional[Path] = None,
    flags: Sequence[str] = (),
    namespace: Optional[str] = None,
    context: Optional[str] = None,
    kubeconfig: Optional[Path] = None,
) -> Job:
    """Starts `ringmaster launch` with a script, or with a command as a list of words, and returns at once.

    workers: a number, or "MIN:MAX". image: required on a cluster. local: run on this machine. folder: whose code is sent, and
    where a local run starts (default: the current one). flags: any other flags of `ringmaster launch`.
    Errors: Error with what the command line says.
    """
    command = [script] if isinstance(script, str) else list(script)
    words = ["launch", "--workers", str(workers)]
    for flag, value in (("--min", min_workers), ("--gpus", gpus or None), ("--image", image), ("--name", name)):
        if value is not None:
            words += [flag, str(value)]
    program = [*flags, "--", *command, *map(str, arguments)]
    if local:
        manifest = _call(_command(*words, "--dry-run", "--local", *program), folder=folder).stdout
        found = re.search(r'^metadata:\n(?:  .*\n)*?  name: "?([a-z0-9-]+)', manifest, re.MULTILINE)
        assert found, manifest
        return _LocalJob(found.group(1), _command(*words, "--local", *program), folder)
    words += [*_cluster_flags(namespace, context, kubeconfig), "--detach"]
    submitted = _call(_command(*words, *program), folder=folder).stdout.strip()
    return Job(submitted, namespace=namespace, context=context, kubeconfig=kubeconfig)
