# SPDX-License-Identifier: Apache-2.0
"""The Unix socket "control" in the folder of a test cluster or of test nodes: the client and the server side of requests to
the process that owns the folder. One JSON object per line and connection."""

import contextlib
import json
import os
import select
import signal
import socket
import sys

POLL_S = 5  # period at which the owner checks that its folder exists


def ask(folder, what, error, **request):
    """Sends a request and returns the answer. Raises `error` when `what` ("cluster") does not run or rejects it."""
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.socket(socket.AF_UNIX))
        try:
            with _address(folder) as address:
                connection.connect(address)
            stream = stack.enter_context(connection.makefile("rw"))
            stream.write(json.dumps(request) + "\n")
            stream.flush()
            line = stream.readline()
        except (OSError, TypeError) as problem:
            raise error(f"no {what} runs in {folder}: {problem}") from None
    if not line:
        raise error(f"the {what} in {folder} ended")
    answer = json.loads(line)
    if "error" in answer:
        raise error(answer["error"])
    return answer


class OwnerGone(Exception):
    """This process must end: its parent has ended, a signal arrived, or its folder was removed."""


def own(thing, folder, owned, failures):
    """Runs an owning process and returns its exit code. Prints one line when it has started: {"ready": true} or
    {"error": TEXT}. owned: the process ends when standard input ends.

    thing.up() starts the components, and thing.answer(request) handles a request; both raise one of `failures`.
    thing.down(keep) ends the components, and removes the folder unless `keep`."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _interrupted)
    try:
        try:
            thing.up()
            listener = _listen(folder)
        except failures as error:
            thing.down(keep=True)
            print(json.dumps({"error": str(error)}), flush=True)
            return 1
        print(json.dumps({"ready": True}), flush=True)
        os.dup2(2, 1)  # the process that read that line may have ended
        _serve(listener, thing, folder, owned, failures)
    except OwnerGone:
        thing.down(keep=False)
    return 0


def check_owner(owned, seconds=0):
    """Waits for `seconds`. Raises OwnerGone as soon as standard input ends."""
    if select.select([sys.stdin] if owned else [], [], [], seconds)[0] and not os.read(sys.stdin.fileno(), 4096):
        raise OwnerGone()


@contextlib.contextmanager
def _address(folder):
    directory = os.open(folder, os.O_PATH)
    try:
        yield f"/proc/self/fd/{directory}/control"  # the path itself may be too long for a socket address
    finally:
        os.close(directory)


def _listen(folder):
    listener = socket.socket(socket.AF_UNIX)
    with _address(folder) as address:
        listener.bind(address)
    listener.listen()
    return listener


def _serve(listener, thing, folder, owned, failures):
    """Handles requests until the request "down"."""
    while True:
        ready, _, _ = select.select([listener, *([sys.stdin] if owned else [])], [], [], POLL_S)
        if not folder.exists():
            raise OwnerGone()  # no client can connect any more
        check_owner(owned)
        if listener not in ready:
            continue
        connection, _ = listener.accept()
        with connection, connection.makefile("rw") as stream:
            request = json.loads(stream.readline() or "{}")
            down = request.get("verb") == "down"
            try:
                answer = {} if down else thing.answer(request)
            except failures as error:
                answer = {"error": str(error)}
            if down:
                thing.down(request["keep"])
            with contextlib.suppress(OSError):  # the client may have ended
                stream.write(json.dumps(answer) + "\n")
                stream.flush()
            if down:
                return


def _interrupted(number, _):
    raise OwnerGone(signal.Signals(number).name)
