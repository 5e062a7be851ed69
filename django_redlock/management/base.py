"""What the commands share: their options, and how they print."""

from __future__ import annotations

import argparse
import csv
import json
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ..core.lock_info import LockInfo
from ..formatting import age, duration, others
from ..handler import WHAT_TO_WRITE, locks
from .pipes import unread

COLUMNS = ("STORE", "NAME", "KIND", "HOLDER", "HELD FOR", "LEFT", "WAITERS", "NODES")
MISUSED, INTERRUPTED = 2, 130  # as argparse has it; as the shell says that SIGINT ended a program


def misused(text: object) -> CommandError:
    """The error for what was typed, or stands in the settings, and can't be meant. Nothing was done."""
    return CommandError(str(text), returncode=MISUSED)


class LockCommand(BaseCommand):
    """A command about locks. It needs no database, and no other app that is in order."""

    requires_system_checks = []
    epilog: ClassVar[str] = ""

    def run_from_argv(self, argv: list[str]) -> None:
        try:
            super().run_from_argv(argv)
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None

    def add_arguments(self, parser: CommandParser) -> None:
        # Exit codes are told below the options, in their own lines.
        parser.epilog, parser.formatter_class = self.epilog, argparse.RawDescriptionHelpFormatter

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            result: str | None = super().execute(*args, **options)
        except ImproperlyConfigured as error:
            raise misused(error) from error
        return result


class StoreCommand(LockCommand):
    """A command about lock stores."""

    formats: ClassVar[Sequence[str]] = ("table", "json")
    default_stores: ClassVar[str] = "all"

    def run_from_argv(self, argv: list[str]) -> None:
        with unread():
            super().run_from_argv(argv)

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        which = "all of them" if self.default_stores == "all" else repr(self.default_stores)
        parser.add_argument(
            "--using", action="append", metavar="ALIAS", help=f"store, may be repeated (default: {which})"
        )
        parser.add_argument("--format", choices=self.formats, default=self.formats[0])

    def aliases(self, using: Sequence[str] | None) -> list[str]:
        """The stores that are meant. Raises ``CommandError`` for one that is not configured, and when none is."""
        if not len(locks):
            raise misused(f"no store is configured. {WHAT_TO_WRITE}")
        chosen = list(using or (locks if self.default_stores == "all" else [self.default_stores]))
        if unknown := [alias for alias in chosen if alias not in locks]:
            raise misused(f"no such store: {', '.join(unknown)} (configured: {', '.join(locks)})")
        return chosen

    def confirmed(self, question: str) -> bool:
        """Whether somebody at the keyboard says yes."""
        self.stdout.write(f"{question} [y/N] ", ending="")
        self.stdout.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    # ── printing ─────────────────────────────────────────────────────────────────────────────

    def print_json(self, value: Any) -> None:
        """``value``, and nothing else, on stdout."""
        self.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=str))

    def print_csv(self, head: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
        """With the head also when there is no row. What is no text and no number stands there as JSON."""
        writer = csv.writer(self.stdout)
        writer.writerow(head)
        writer.writerows([_cell(row[name]) for name in head] for row in rows)

    def print_table(self, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Columns as wide as needed."""
        lines = [list(head), *([printable(cell) for cell in row] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for number, line in enumerate(lines):
            text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            self.stdout.write(self.style.MIGRATE_HEADING(text) if number == 0 else text)


def at_least(least: float, kind: type[int | float] = float) -> Callable[[str], int | float]:
    """For ``type=``: a number that is not below ``least``, nor too large to wait for, nor NaN."""

    def number(text: str) -> int | float:
        value = kind(text)
        if not least <= value <= threading.TIMEOUT_MAX:
            raise argparse.ArgumentTypeError(f"{text} is not a number from {least:g} on")
        return value

    number.__name__ = kind.__name__  # argparse: "invalid int value"
    return number


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict) else value


def printable(value: Any) -> str:
    """Other people's text, without anything that a terminal would obey."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value))


def cells(alias: str, held: LockInfo) -> list[Any]:
    """A lock as a line of a table with `COLUMNS`."""
    held_for, remaining = age(held.owner), held.remaining
    left = "no end" if remaining is None else f"{remaining:.1f} s" if remaining < 60 else duration(remaining)
    for_long = "unknown" if held_for is None else duration(held_for)
    holder = f"{held.owner} {others(held)}".rstrip()
    return [alias, held.name, held.kind, holder, for_long, left, held.waiters, len(held.nodes) or 1]
