"""``manage.py redlock_release``: release locks by force."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser

from ...core.lock_info import LockInfo
from ...errors import LockError
from ...formatting import age, as_dict, owners, task_of
from ...handler import locks
from ...inspection import explain
from ..base import COLUMNS, StoreCommand, cells, misused
from ..durations import duration_seconds

GLOB = set("*?[")


class Found(NamedTuple):
    """A lock that may be released."""

    alias: str
    held: LockInfo


class Command(StoreCommand):
    help = (
        "Releases locks by force, whoever holds them: those that are shown, if they have not changed hands since.\n"
        "The holder is not asked, and learns of it at its next renewal; until then it works on."
    )
    epilog = (
        "Exit code: 0 when all that was found has been released (or nothing was found), "
        "1 when something was not: it changed hands, a store could not be asked, or the answer was no."
    )
    default_stores = "default"

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("names", nargs="*", metavar="NAME", help="a lock's name, or a glob")
        parser.add_argument("--task", help="only this task's; without a NAME all of them")
        parser.add_argument("--exact", action="store_true", help="names are names: * ? [ mean themselves")
        parser.add_argument(
            "--older-than",
            type=duration_seconds,
            metavar="TIME",
            help="only what has been held that long: 600, 15m, 1h",
        )
        parser.add_argument("--dry-run", action="store_true", help="only show what would be released")
        parser.add_argument("--yes", action="store_true", help="don't ask")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["format"] == "json" and not (options["yes"] or options["dry_run"]):
            raise misused("--format json can't ask: it needs --yes or --dry-run")
        if not (options["names"] or options["task"]):
            raise misused("which locks? Give a NAME or --task")
        self.failed = False
        found = self._find(self.aliases(options["using"]), options)
        results = [(each, "") for each in found]
        if options["format"] == "table" and found:
            self.print_table(COLUMNS, (cells(*each) for each in found))
        if found and not options["dry_run"]:
            if not options["yes"] and not self.confirmed(f"Release {_number(found)} by force?"):
                raise CommandError("nothing was released")
            results = [(each, self._release(each)) for each in found]
        self._print(results, options)
        if self.failed:
            raise SystemExit(1)

    def _find(self, aliases: list[str], options: dict[str, Any]) -> list[Found]:
        found: dict[tuple[str, str], Found] = {}
        for alias in aliases:
            for name in options["names"] or ["*"]:
                try:
                    if options["names"] and (options["exact"] or not GLOB & set(name)):
                        rows = [held] if (held := locks[alias].describe(name)) else []
                    else:
                        rows = locks[alias].held(name)
                except ValueError as error:  # no name that a lock can have
                    raise misused(error) from error
                except (LockError, ImproperlyConfigured) as error:
                    self.failed = True
                    self.stderr.write(self.style.ERROR(f"{alias}: {name}: {explain(error)}"))
                    continue
                found.update({(alias, held.name): Found(alias, held) for held in rows})
        return [each for each in found.values() if _wanted(each.held, options)]

    def _release(self, each: Found) -> str:
        try:
            if locks[each.alias].force_release(each.held.name, each.held.digest):
                return "released"
            gone = locks[each.alias].describe(each.held.name) is None
        except LockError as error:
            self.failed = True
            return f"unknown: {explain(error)}"
        self.failed = self.failed or not gone
        return "was free already" if gone else "changed hands, not released"

    def _print(self, results: list[tuple[Found, str]], options: dict[str, Any]) -> None:
        if options["format"] == "json":
            self.print_json([{**as_dict(*each), "result": result or None} for each, result in results])
        elif not results:
            if not self.failed:  # why nothing was found has been said
                self.stdout.write("Nothing to release.")
        elif options["dry_run"]:
            self.stdout.write(f"Would release {_number(results)}.")
        else:
            self.print_table(
                ("STORE", "NAME", "RESULT"), ((each.alias, each.held.name, told) for each, told in results)
            )


def _wanted(held: LockInfo, options: dict[str, Any]) -> bool:
    """Of several who hold it each has to have held it that long: it is taken from all of them."""
    task, oldest = options["task"], options["older_than"]
    shortest = min(age(owner) or 0.0 for owner in owners(held))
    return task in (None, task_of(held.owner)) and (oldest is None or shortest > oldest)


def _number(found: list[Any]) -> str:
    return f"{len(found)} lock{'s' if len(found) != 1 else ''}"
