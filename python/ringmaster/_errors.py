# SPDX-License-Identifier: Apache-2.0
"""What calls of this package raise, and how the exceptions of a program are reported."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from typing import Optional, Set

# Exit codes of a process that may be started again; base/exit_codes.h has all of them.
EXIT_MEMORY = 71
EXIT_DEVICE = 74

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Error(Exception):
    """A mistake in the calling program. The message names the place, the reason and the remedy."""


class Retry(Exception):
    """A program raises it, or an exception of a class derived from it, where another attempt may succeed: the worker is restarted."""


class Remote(Exception):
    """The cause of an exception that another process of this worker raised: its report, as describe_exception returns it."""


class Failed(SystemExit):
    """This process cannot continue: the message is printed, and the process ends with the code that the job expects.

    A program need not catch it. It is a SystemExit, so `except Exception` does not catch it by accident.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code)
        self.message = message


class Stopped(SystemExit):
    """The job stops here, with a checkpoint: the same command continues it. Code after the loop over the steps is not run."""


# Errors that say how a path was spelled: of the program before its first step, and of the storage afterwards.
_OF_PATHS = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError)
# Classes, by module and name, of libraries that reach storage over a network. Those that are an OSError, as of requests, urllib and
# ssl, need no entry.
_OF_NETWORKS = {
    "aiohttp": ("ClientError",),
    "azure": ("AzureError",),
    "botocore": ("BotoCoreError", "ClientError", "HTTPClientError"),
    "datasets": ("DatasetGenerationError",),
    "fsspec": ("FSTimeoutError",),
    "gcsfs": ("HttpError",),
    "google": ("GoogleAPIError", "TransportError"),
    "http": ("HTTPException",),
    "httpcore": ("NetworkError", "TimeoutException", "ProtocolError"),
    "httpx": ("TransportError", "HTTPStatusError"),
    "huggingface_hub": ("HfHubHTTPError",),
    "urllib3": ("HTTPError",),
    "asyncio": ("TimeoutError",),
}


def is_transient(error: BaseException, trained: bool) -> bool:
    """Returns whether the error, or one that caused it, is one of the network or of storage, which another attempt may resolve.

    trained: whether this process has committed a step, so that its paths are known to be right.
    """
    seen: Set[int] = set()
    current: Optional[BaseException] = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        if isinstance(current, Retry):
            return True
        if isinstance(current, OSError):
            return trained or not isinstance(current, _OF_PATHS)
        for kind in type(current).__mro__:
            if kind.__name__ in _OF_NETWORKS.get(kind.__module__.split(".")[0], ()):
                # With what it reports as its cause, such as a damaged file, it may be something else.
                cause = current.__cause__
                return not isinstance(current, _generation_errors()) or cause is None or is_transient(cause, trained)
        current = current.__cause__
    return False


def _generation_errors() -> tuple[type, ...]:
    """Returns the class of `datasets` that wraps whatever a generator of samples raised."""
    module = sys.modules.get("datasets.exceptions")
    kind = getattr(module, "DatasetGenerationError", None)
    return (kind,) if isinstance(kind, type) else ()


def describe_exception(error: BaseException) -> str:
    """Returns the exception and its place in the first line, then the traceback without the frames of this package."""
    if isinstance(error.__cause__, Remote):
        return str(error.__cause__)
    report = traceback.TracebackException.from_exception(error)
    seen = set()
    current: Optional[traceback.TracebackException] = report
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        outside = [frame for frame in current.stack if not frame.filename.startswith(_PACKAGE)]
        current.stack = traceback.StackSummary.from_list(outside)
        current = current.__cause__ or current.__context__
    what = "".join(report.format_exception_only()).strip()
    return f"{_place(report.stack)}{what}\n\n" + "".join(report.format())


def _place(stack: traceback.StackSummary) -> str:
    """Returns "FILE:LINE: " of the last frame outside of installed packages: an error inside of PyTorch is of its caller."""
    folders = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), os.path.dirname(sys.executable or ""))
    installed = ("<frozen ", *(folder + os.sep for folder in folders if folder))
    ours = [
        frame
        for frame in stack
        if not frame.filename.startswith(installed)
        and not {"site-packages", "dist-packages"} & set(frame.filename.split(os.sep))
    ]
    frames = ours or list(stack)  # the program itself may be installed
    return f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
