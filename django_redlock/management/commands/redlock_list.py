"""``manage.py redlock_list``: the locks that are held now."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import CommandParser

from ...core.lock_info import LockInfo
from ...core.owner import Owner
from ...formatting import as_dict, owners, task_of
from ...inspection import Listed, list_locks, pattern_for
from ..base import COLUMNS, StoreCommand, at_least, cells

CLEAR = "\x1b[H\x1b[2J"
FIELDS = tuple(as_dict("", LockInfo("", "", Owner(), None)))


class Command(StoreCommand):
    help = "Lists the locks that are held now."
    epilog = "Exit code: 0, or 1 when a store could not be asked (the others are listed)."
    formats = ("table", "json", "csv")

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("search", nargs="?", default="*", help="part of the name, or a glob (default: everything)")
        parser.add_argument("--kind", help="mutex, semaphore, task …")
        parser.add_argument("--host")
        parser.add_argument("--task", help="name of a task")
        parser.add_argument(
            "--limit", type=at_least(1, int), default=1000, metavar="N", help="locks of one store (default: 1000)"
        )
        parser.add_argument(
            "--watch", nargs="?", type=at_least(0), const=2.0, metavar="SECONDS", help="again and again (2)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        aliases = self.aliases(options["using"])
        failed = False
        try:
            while True:
                seen = [list_locks(alias, pattern_for(options["search"]), options["limit"]) for alias in aliases]
                failed = any(each.error for each in seen)
                self._print(seen, options)
                if options["watch"] is None:
                    break
                self.stdout.flush()  # a pipe would get nothing for long
                time.sleep(max(0.1, options["watch"]))
        except KeyboardInterrupt:
            pass
        if failed:
            raise SystemExit(1)

    def _print(self, seen: list[Listed], options: dict[str, Any]) -> None:
        found = [(each.alias, held) for each in seen for held in each.locks if _wanted(held, options)]
        found.sort(key=lambda pair: (pair[1].name, pair[0]))
        if options["watch"] is not None and self.stdout.isatty():
            self.stdout.write(CLEAR, ending="")
        if options["format"] == "json":
            self.print_json([as_dict(alias, held) for alias, held in found])
        elif options["format"] == "csv":
            self.print_csv(FIELDS, [as_dict(alias, held) for alias, held in found])
        else:
            self.print_table(COLUMNS, (cells(alias, held) for alias, held in found))
        for each in seen:
            if each.error:
                self.stderr.write(self.style.ERROR(f"{each.alias} could not be asked: {each.error}"))
            elif not each.complete:
                self.stderr.write(f"{each.alias}: there are more than {len(each.locks)}; see --limit, or search")


def _wanted(held: LockInfo, options: dict[str, Any]) -> bool:
    """Any of those who hold it will do."""
    hosts, tasks = ({of(owner) for owner in owners(held)} for of in (lambda owner: owner.host, task_of))
    values = {"kind": {held.kind}, "host": hosts, "task": tasks}
    return all(options[option] is None or options[option] in found for option, found in values.items())
