"""Ends a command quietly when the reader of its output ends first: `redlock_list --watch | head`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UNREAD = 141  # 128 + SIGPIPE: the exit code that a shell reports for a program without a reader


@contextmanager
def unread() -> Iterator[None]:
    """Context manager that exits with code `UNREAD`, without a traceback, when the reader of stdout closes the pipe."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # here, because an error of the flush at the interpreter's end can't be caught
    except BrokenPipeError:
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())  # takes the rest of the buffer at the interpreter's end
        raise SystemExit(UNREAD) from None
