"""What reads may go away: `redlock_list --watch | head`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UNREAD = 141  # as the shell says that SIGPIPE ended a program, which is how others end then


@contextmanager
def unread() -> Iterator[None]:
    """End quietly once nobody reads what is written to stdout."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # when the interpreter ends, nobody could catch what comes of that
    except BrokenPipeError:
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())  # what is left in the buffer
        raise SystemExit(UNREAD) from None
