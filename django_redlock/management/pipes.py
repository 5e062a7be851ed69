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
        _discard(sys.stdout)
        raise SystemExit(UNREAD) from None


@contextmanager
def unread_errors() -> Iterator[None]:
    """Context manager at whose end nothing is left in the buffer of stderr, also if that has no reader."""
    try:
        yield
    finally:
        try:
            if sys.stderr is not None:
                sys.stderr.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                _discard(sys.stderr)


class MayBeClosed:
    """The stream ``stream``, or none at all: what can't be written is dropped."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> None:
        if self._stream is not None:
            try:
                self._stream.write(text)
                self._stream.flush()
            except (OSError, ValueError):  # ValueError: the file object is closed
                with suppress(OSError, ValueError):
                    _discard(self._stream)


def _discard(stream: Any) -> None:
    """Discard what ``stream`` has in its buffer: the interpreter writes it at its end, and would exit with code 120."""
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())
