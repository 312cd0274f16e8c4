# SPDX-License-Identifier: Apache-2.0
"""Reports progress to the agent of this worker, over the socket that RINGMASTER_PROGRESS_SOCKET names."""

import json
import math
import os
import socket
from typing import Dict, Optional, SupportsFloat, SupportsIndex

_socket: Optional[socket.socket] = None
_owner = 0  # the process that opened _socket: after a fork, each process has a separate one


def report(
    step: SupportsIndex,
    loss: Optional[SupportsFloat] = None,
    *,
    total_steps: Optional[SupportsIndex] = None,
    samples: Optional[SupportsIndex] = None,
    learning_rate: Optional[SupportsFloat] = None,
    grad_norm: Optional[SupportsFloat] = None,
) -> bool:
    """Reports that `step` (1 for the first) is done. One rank is enough.

    loss: of this step. total_steps: of the whole training, for the progress display. samples: of this step, over all
    ranks. Returns whether the agent has the report: False outside of Ringmaster, and while the agent is busy. Never
    blocks, and raises nothing because of the agent.
    """
    path = os.environ.get("RINGMASTER_PROGRESS_SOCKET")
    if not path:
        return False
    message: Dict[str, object] = {"step": step.__index__()}
    for name, count in (("total_steps", total_steps), ("samples", samples)):
        if count is not None:
            message[name] = count.__index__()
    for name, number in (("loss", loss), ("learning_rate", learning_rate), ("grad_norm", grad_norm)):
        if number is not None and math.isfinite(float(number)):
            message[name] = float(number)
    try:
        _connection().sendto(json.dumps(message).encode(), path)
        return True
    except OSError:
        return False


def _connection() -> socket.socket:
    global _socket, _owner
    if _socket is None or _owner != os.getpid():
        _socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        _socket.setblocking(False)
        _owner = os.getpid()
    return _socket
