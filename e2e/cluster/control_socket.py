# SPDX-License-Identifier: Apache-2.0
"""The socket "control" in the folder of a test's cluster or nodes: requests to the process that owns them, and that process's
side of it. One JSON object per line and connection."""

import contextlib
import json
import os
import select
import signal
import socket
import sys

LOOK_S = 5  # how often the owner looks whether its folder is still there


def ask(folder, what, error, **request):
    """The answer to one request. Raises `error` when `what` ("cluster in FOLDER") does not run or refuses."""
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
    """Nobody wants us any more: whoever started us is gone, a signal came, or our folder was removed."""


def own(thing, folder, owned, failures):
    """The life of an owning process; its exit code. Its first line on standard output says whether all came up:
    {"ready": true} or {"error": TEXT}. owned: it ends when standard input does.

    thing.up() makes it, and raises one of `failures` when that cannot be; thing.answer(request) raises one of them for a
    refusal; thing.down(keep) ends all of it, and leaves the folder there if `keep`."""
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
        os.dup2(2, 1)  # whoever waited for that line may be gone
        _serve(listener, thing, folder, owned, failures)
    except OwnerGone:
        thing.down(keep=False)
    return 0


def look_for_owner(owned, seconds=0):
    """Waits so long; raises OwnerGone as soon as standard input ends."""
    if select.select([sys.stdin] if owned else [], [], [], seconds)[0] and not os.read(sys.stdin.fileno(), 4096):
        raise OwnerGone()


@contextlib.contextmanager
def _address(folder):
    directory = os.open(folder, os.O_PATH)
    try:
        yield f"/proc/self/fd/{directory}/control"  # a long path does not fit into an address
    finally:
        os.close(directory)


def _listen(folder):
    listener = socket.socket(socket.AF_UNIX)
    with _address(folder) as address:
        listener.bind(address)
    listener.listen()
    return listener


def _serve(listener, thing, folder, owned, failures):
    """Until somebody asks for "down"."""
    while True:
        ready, _, _ = select.select([listener, *([sys.stdin] if owned else [])], [], [], LOOK_S)
        if not folder.exists():
            raise OwnerGone()  # nobody can reach us any more
        look_for_owner(owned)
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
            with contextlib.suppress(OSError):  # whoever asked does not want to know any more
                stream.write(json.dumps(answer) + "\n")
                stream.flush()
            if down:
                return


def _interrupted(number, _):
    raise OwnerGone(signal.Signals(number).name)
