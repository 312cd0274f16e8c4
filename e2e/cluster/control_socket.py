"""Requests to the process that owns a test's cluster or nodes, over the socket "control" in its folder."""

import contextlib
import json
import os
import socket


def ask(folder, what, error, **request):
    """The answer to one request. Raises `error` when `what` ("cluster in FOLDER") does not run or refuses."""
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.socket(socket.AF_UNIX))
        try:
            directory = os.open(folder, os.O_PATH)
            stack.callback(os.close, directory)
            connection.connect(f"/proc/self/fd/{directory}/control")  # a long path does not fit into an address
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
