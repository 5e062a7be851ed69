"""``manage.py redlock_list``: list the locks that are held now."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandParser

from ...core.lock_info import LockInfo, by_trouble
from ...formatting import FILTERS, LISTED_KINDS, STATES, as_dict
from ...store_queries import Listed, list_locks, pattern_for
from ..base import StoreCommand, add_duration, misused

CLEAR = "\x1b[H\x1b[2J"
_FOREVER = float("inf")
SORT: dict[str, Callable[[str, LockInfo], Any]] = {
    "trouble": lambda _, held: by_trouble(held),
    "name": lambda _, held: held.name,
    "store": lambda alias, held: (alias, held.name),
    "held": lambda _, held: held.since or _FOREVER,
    "left": lambda _, held: _FOREVER if held.remaining is None else held.remaining,
    "waiters": lambda _, held: -held.waiters,
}


class Command(StoreCommand):
    help = "Lists the locks that are held now: those with most waiters first, then those that are held longest."
    epilog = "Exit code: 0; 1 when a store could not be listed (the others are listed); 2 wrong arguments or settings."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("search", nargs="?", default="*", help="part of the name, or a glob (default: everything)")
        parser.add_argument("--kind", choices=LISTED_KINDS, help="only locks of this kind")
        parser.add_argument("--state", choices=STATES, help="only locks with a holder in this state")
        parser.add_argument("--host", help="only locks that are held on this host")
        parser.add_argument("--task", help="only locks of this task")
        parser.add_argument("--sort", choices=SORT, default="trouble", help="order of the locks (default: trouble)")
        parser.add_argument("--wide", action="store_true", help="don't shorten names to fit the terminal")
        parser.add_argument(
            "--limit", type=int, default=1000, metavar="N", help="list at most N locks of each store (default: 1000)"
        )
        add_duration(parser, "--watch", "repeat after this time (default: 2)", nargs="?", const=2.0)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["watch"] is not None and options["watch"] < 0.1:
            raise misused("--watch is at least 0.1 s")
        if options["limit"] < 1:
            raise misused("--limit is at least 1")
        aliases = self.aliases(options["using"])
        failed = False
        try:
            while True:
                seen = [_selected(alias, options) for alias in aliases]
                failed = any(each.error for each in seen)
                self._print(seen, options)
                if options["watch"] is None:
                    break
                self.stdout.flush()  # otherwise the reader of a pipe waits until the buffer is full
                time.sleep(options["watch"])
        except KeyboardInterrupt:
            pass
        if failed:
            raise SystemExit(1)

    def _print(self, seen: list[Listed], options: dict[str, Any]) -> None:
        found = [(each.alias, held) for each in seen for held in each.locks]
        found.sort(key=lambda pair: (SORT[options["sort"]](*pair), pair[1].name, pair[0]))
        if options["watch"] is not None and self.stdout.isatty():
            self.stdout.write(CLEAR, ending="")
        if options["format"] == "json":
            self.print_json([as_dict(alias, held) for alias, held in found])
        elif found:
            self.print_locks(found, wide=options["wide"])
        elif not any(each.error for each in seen):  # a store without an answer may have locks
            self.stdout.write(f"no locks found in {', '.join(each.alias for each in seen)}")
        for each in seen:
            if each.error:
                self.stderr.write(self.style.ERROR(f"could not list all locks of {each.alias}: {each.error}"))
            elif not each.complete:
                self.stderr.write(
                    f"{each.alias}: there are more than {len(each.locks)} locks: raise --limit, or search"
                )


def _selected(alias: str, options: dict[str, Any]) -> Listed:
    """List the locks of one store that match the command's options, at most ``--limit``.

    A lock with several holders matches if any holder does.
    """
    chosen = {option: options[option] for option in FILTERS if options[option] is not None}
    limit = options["limit"]
    # With max_keys, the scan doesn't end at the limit of locks, so it finds all locks with waiters.
    seen = list_locks(alias, pattern_for(options["search"]), None if chosen else limit, sys.maxsize)
    found = [held for held in seen.locks if all(value in FILTERS[option](held) for option, value in chosen.items())]
    return seen._replace(locks=found[:limit], complete=seen.complete and len(found) <= limit)
