"""Handles output whose reader has gone: `redlock_list --watch | head`, `redlock_run … 2>&-`."""

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
    """Context manager that exits with code `UNREAD`, without a traceback, when the reader of stdout closes the pipe.

    It flushes stdout and stderr at its end, because the interpreter would exit with code 120 for unflushed output.
    """
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)
        raise SystemExit(UNREAD) from None
    finally:
        MayBeClosed(sys.stderr).write("")


class MayBeClosed:
    """Wraps ``stream``, which may be ``None``. Output that can't be written is dropped."""

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
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())
