"""Base classes of the commands: common options, output formats, exit codes."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import threading
from collections.abc import Sequence
from typing import Any, ClassVar, TextIO, cast

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ..backend_registry import WHAT_TO_WRITE, locks
from ..core.lock_info import LockInfo
from .pipes import MayBeClosed, unread
from .tables import lock_table

MISUSED, INTERRUPTED = 2, 130  # argparse's exit code; 128 + SIGINT, as a shell reports it
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+\.?\d*|\.\d+)([smhd]?)")


def misused(text: object) -> CommandError:
    """Return the ``CommandError`` with exit code 2 for wrong arguments or settings. ``text``: the message.

    Exit code 2 means that the command has done nothing.
    """
    return CommandError(str(text), returncode=MISUSED)


class LockCommand(BaseCommand):
    """Base class of the package's commands.

    It needs no database, and runs no system checks, because the checks of other apps may fail.
    """

    requires_system_checks = []
    epilog: ClassVar[str] = ""

    def __init__(self, stdout: Any = None, stderr: Any = None, **options: Any) -> None:
        # Without a reader of its messages a command does the same, with the same exit code.
        out, err = stdout or sys.stdout or MayBeClosed(None), MayBeClosed(stderr or sys.stderr)
        super().__init__(cast("TextIO", out), cast("TextIO", err), **options)

    def run_from_argv(self, argv: list[str]) -> None:
        with unread():
            try:
                super().run_from_argv(argv)
            except KeyboardInterrupt:
                raise SystemExit(INTERRUPTED) from None

    def add_arguments(self, parser: CommandParser) -> None:
        # The epilog lists exit codes line by line.
        parser.epilog, parser.formatter_class = self.epilog, argparse.RawDescriptionHelpFormatter

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            result: str | None = super().execute(*args, **options)
        except ImproperlyConfigured as error:
            raise misused(error) from error
        return result


class StoreCommand(LockCommand):
    """Base class of the commands that read lock stores, with the options ``--using`` and ``--format``."""

    default_stores: ClassVar[str] = "all"

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        which = "all of them" if self.default_stores == "all" else repr(self.default_stores)
        parser.add_argument(
            "--using", action="append", metavar="ALIAS", help=f"store, may be repeated (default: {which})"
        )
        parser.add_argument("--format", choices=("table", "json"), default="table")

    def aliases(self, using: Sequence[str] | None) -> list[str]:
        """Return the aliases of the chosen stores.

        ``using``: the values of ``--using``; ``None`` or an empty list means the default of the command. Raises
        ``CommandError`` for an alias that is not configured, and when no store is configured.
        """
        if not len(locks):
            raise misused(f"no store is configured. {WHAT_TO_WRITE}")
        chosen = list(using or (locks if self.default_stores == "all" else [self.default_stores]))
        if unknown := [alias for alias in chosen if alias not in locks]:
            raise misused(f"no such store: {', '.join(unknown)} (configured: {', '.join(locks)})")
        return chosen

    def confirmed(self, question: str) -> bool:
        """Ask the operator ``question``. Returns whether the answer is yes."""
        self.stdout.write(f"{question} [y/N] ", ending="")
        self.stdout.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    # ── output ───────────────────────────────────────────────────────────────────────────────

    def print_json(self, value: Any) -> None:
        """Write ``value`` to stdout as JSON. Control characters and invisible characters in texts are escaped."""
        text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
        self.stdout.write("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text))

    def print_locks(self, found: Sequence[tuple[str, LockInfo]], *, wide: bool = False) -> None:
        """Write a table to stdout with a line for each lock. ``found``: pairs of store alias and lock.

        If several stores are configured, each line has the store's alias. Unless ``wide``, names and holders are
        shortened to fit the terminal.
        """
        width = None if wide or not self.stdout.isatty() else shutil.get_terminal_size().columns
        lines = lock_table(found, width, with_store=len(locks) > 1)
        widths = [max(len(cell.text) for cell in column) for column in zip(*lines, strict=True)]
        for line in lines:
            padded = [
                (getattr(self.style, cell.style) if cell.style else str)(cell.text.ljust(width))
                for cell, width in zip(line, widths, strict=True)
            ]
            self.stdout.write("  ".join(padded).rstrip())


def add_duration(parser: CommandParser, option: str, text: str, **more: Any) -> None:
    """Add ``option``, which takes a duration, to ``parser``. ``text``: its help."""
    parser.add_argument(option, type=duration_seconds, metavar="DURATION", help=text, **more)


def duration_seconds(text: str) -> float:
    """Return the seconds in ``text``: a number of seconds, or a number with the unit s, m, h or d.

    A parser for argparse's ``type``. Raises ``ArgumentTypeError`` for any other text, and above
    ``threading.TIMEOUT_MAX``.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text} is not a duration: write seconds, or 90s, 15m, 1h, 2d")
    value = float(found[1]) * _SECONDS[found[2]]
    if value > threading.TIMEOUT_MAX:
        raise argparse.ArgumentTypeError(f"{text} is more than {threading.TIMEOUT_MAX:.0f} s")
    return value
