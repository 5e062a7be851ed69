"""What the commands share: their options, and how they print."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ..core.held import Held
from ..handler import locks
from ..wording import duration, others, tenure
from .pipes import unread

COLUMNS = ("STORE", "NAME", "KIND", "HOLDER", "HELD FOR", "LEFT", "RENEWALS", "WAITERS", "NODES")


class StoreCommand(BaseCommand):
    """A command about lock stores. It needs no database, and no other app that is in order."""

    requires_system_checks = []
    epilog: ClassVar[str] = ""
    formats: ClassVar[Sequence[str]] = ("table", "json")
    default_stores: ClassVar[str] = "all"

    def run_from_argv(self, argv: list[str]) -> None:
        with unread():
            super().run_from_argv(argv)

    def add_arguments(self, parser: CommandParser) -> None:
        explain(parser, self.epilog)
        which = "all of them" if self.default_stores == "all" else repr(self.default_stores)
        parser.add_argument(
            "--using", action="append", metavar="ALIAS", help=f"store, may be repeated (default: {which})"
        )
        parser.add_argument("--format", choices=self.formats, default=self.formats[0])

    def aliases(self, using: Sequence[str] | None) -> list[str]:
        """The stores that are meant. Raises ``CommandError`` for one that is not configured."""
        chosen = list(using or (locks if self.default_stores == "all" else [self.default_stores]))
        if unknown := [alias for alias in chosen if alias not in locks]:
            raise CommandError(f"no such store: {', '.join(unknown)} (configured: {', '.join(locks)})")
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

    def print_csv(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """With a head, also when there is no row."""
        writer = csv.DictWriter(self.stdout, list(rows[0]) if rows else ["name"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)

    def print_table(self, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Columns as wide as needed."""
        lines = [list(head), *([printable(cell) for cell in row] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for number, line in enumerate(lines):
            text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            self.stdout.write(self.style.MIGRATE_HEADING(text) if number == 0 else text)


def explain(parser: CommandParser, epilog: str) -> None:
    """Put ``epilog``, where exit codes are told, below the options, in its own lines."""
    parser.epilog, parser.formatter_class = epilog, argparse.RawDescriptionHelpFormatter


def printable(value: Any) -> str:
    """Other people's text, without anything that a terminal would obey."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value))


def cells(alias: str, held: Held) -> list[Any]:
    """A lock as a line of a table with `COLUMNS`."""
    known = tenure(held)
    left = "no end" if held.ttl is None else f"{held.ttl:.1f} s"
    for_long = "unknown" if known.held is None else duration(known.held)
    renewals = "unknown" if known.renewals is None else known.renewals
    holder = f"{held.owner} {others(held)}".rstrip()
    return [alias, held.name, held.kind, holder, for_long, left, renewals, held.waiters, len(held.nodes) or 1]
