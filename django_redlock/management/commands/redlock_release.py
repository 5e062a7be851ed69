"""``manage.py redlock_release``: release locks by force, after a confirmation."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser

from ...audit import log_force_release
from ...backend_registry import locks
from ...core.keys import glob_escape, is_stripe
from ...core.lock_info import LockInfo
from ...errors import LockError, LockNotSupported
from ...formatting import FILTERS, LISTED_KINDS, STATES, age, as_dict, owners, printable
from ...models import HeldLock
from ...store_queries import explain
from ..base import StoreCommand, add_duration, misused

GLOB = set("*?[")


Found = tuple[str, LockInfo]  # the alias of a store, and a live lock that matches the command's arguments


class Command(StoreCommand):
    help = (
        "Releases locks by force: those that are shown, unless they have a new holder meanwhile.\n"
        "The holder is not asked. It detects the loss at its next renewal, and works on until then."
    )
    epilog = (
        "Exit code: 0 when all locks that were found have been released, or none was found; "
        "1 when a lock was not released: it has a new holder, a store was unavailable, or the answer was no; "
        "2 wrong arguments or settings."
    )
    default_stores = "default"

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("names", nargs="*", metavar="NAME", help="a lock's name (with all its stripes), or a glob")
        parser.add_argument("--task", help="only locks of this task; without a NAME, all of them")
        parser.add_argument("--kind", choices=LISTED_KINDS, help="only locks of this kind")
        parser.add_argument("--state", choices=STATES, help="only tasks or holders in this state; needs no NAME")
        parser.add_argument("--exact", action="store_true", help="take names literally: no globs, no stripes")
        add_duration(parser, "--older-than", "only locks held for at least this time: 600, 15m, 1h")
        parser.add_argument("--dry-run", action="store_true", help="only show what would be released")
        parser.add_argument("--yes", action="store_true", help="don't ask")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["format"] == "json" and not (options["yes"] or options["dry_run"]):
            raise misused("--format json can't ask: it needs --yes or --dry-run")
        if not (options["names"] or options["task"] or options["state"]):
            raise misused("which locks? Give a NAME, --task or --state")
        self.failed, self.username = False, _username()
        aliases = self.aliases(options["using"])
        found = self._find(aliases, options)
        results = [(each, "") for each in found]
        if options["format"] == "table" and found:
            self.print_locks(found, wide=True)  # a shortened name might hide which lock it is
        if found and not options["dry_run"]:
            if not options["yes"] and not self.confirmed(f"Release {_number(found)} by force?"):
                raise CommandError("nothing was released")
            results = [(each, self._release(*each)) for each in found]
        self._print(results, aliases, options)
        if self.failed:
            raise SystemExit(1)

    def _find(self, aliases: list[str], options: dict[str, Any]) -> list[Found]:
        found: dict[tuple[str, str], Found] = {}
        for alias in aliases:
            for name in options["names"] or ["*"]:
                try:
                    for held in _named(alias, name, options):
                        found[alias, held.name] = alias, held
                except ValueError as error:  # an invalid name of a lock
                    raise misused(error) from error
                except (LockError, ImproperlyConfigured) as error:
                    self.failed = True
                    self.stderr.write(self.style.ERROR(f"{alias}: {name}: {explain(error)}"))
        return [each for each in found.values() if _wanted(each[1], options)]

    def _release(self, alias: str, held: LockInfo) -> str:
        try:
            if locks[alias].force_release(held.name, held.digest, self.username):
                log_force_release(HeldLock.of(alias, held), self.username, where=f"on {socket.gethostname()}")
                return "released"
            gone = locks[alias].describe(held.name) is None
        except LockError as error:
            self.failed = True
            return f"unknown: {explain(error)}"
        self.failed = self.failed or not gone
        return "was free already" if gone else "has a new holder, not released"

    def _print(self, results: list[tuple[Found, str]], aliases: list[str], options: dict[str, Any]) -> None:
        if options["format"] == "json":
            self.print_json([{**as_dict(*each), "result": result or None} for each, result in results])
        elif not results:
            if not self.failed:  # after a failure, stderr has the reason
                self.stdout.write(_nothing_in(aliases))
                if patterns := [] if options["exact"] else [name for name in options["names"] if GLOB & set(name)]:
                    self.stdout.write(f"Taken as a pattern: {', '.join(map(printable, patterns))}; see --exact.")
        elif options["dry_run"]:
            self.stdout.write(f"Would release {_number(results)}.")
        else:
            for (alias, held), result in results:
                self.stdout.write(f"{printable(alias)}  {printable(held.name)}  {printable(result)}")


def _named(alias: str, name: str, options: dict[str, Any]) -> Iterator[LockInfo]:
    """Yield the held locks of one store that NAME selects: the lock with its stripes, or all that match a glob."""
    backend = locks[alias]
    if not options["names"] or (not options["exact"] and GLOB & set(name)):
        yield from backend.held(name)
        return
    if held := backend.describe(name):
        yield held
    if not options["exact"]:
        with suppress(LockNotSupported):  # a store that can't list its locks
            yield from (each for each in backend.held(f"{{{glob_escape(name)}}}#*") if is_stripe(each.name))


def _wanted(held: LockInfo, options: dict[str, Any]) -> bool:
    """Return whether the lock matches the command's options ``--older-than``, ``--task``, ``--state`` and ``--kind``.

    Every holder must match, because a force release affects all holders.
    """
    oldest = options["older_than"]
    return all(
        options[each] is None or FILTERS[each](held) == {options[each]} for each in ("task", "state", "kind")
    ) and (oldest is None or all((age(owner) or 0.0) >= oldest for owner in owners(held)))


def _username() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container may run under a uid without a name
        return "unknown"


def _nothing_in(aliases: list[str]) -> str:
    text = f"Nothing to release in {', '.join(aliases)}."
    others = [alias for alias in locks if alias not in aliases]
    return f"{text} Not searched: {', '.join(others)}; see --using." if others else text


def _number(found: list[Any]) -> str:
    return f"{len(found)} lock{'s' if len(found) != 1 else ''}"
