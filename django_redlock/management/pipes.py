"""Output without a reader: `redlock_list --watch | head`, `redlock_run … 2>&-`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

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


class MayBeClosed:
    """The stream ``stream``, or none at all: what can't be written is dropped."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> None:
        if self._stream is not None:
            with suppress(OSError, ValueError):  # ValueError: the file object is closed
                self._stream.write(text)
                self._stream.flush()
