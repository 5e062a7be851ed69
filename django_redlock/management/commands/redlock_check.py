"""``manage.py redlock_check``: can locks be relied on?"""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from ...errors import LockError
from ...handler import locks
from ...rows import explained, facts, health
from ..base import StoreCommand, printable

ASSERTION = (
    "Arming takes new servers into service at once. By this you assert that no lock is held on them:\n"
    "that they are new, and have not lost what they held. If they have, two may hold one lock."
)


class Command(StoreCommand):
    help = "Checks each lock store and its servers, for people and for monitoring."
    epilog = "Exit code: 0 all well, 1 warnings, 2 problems (as monitoring plugins have it)."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--fix", action="store_true", help="load the scripts where they are missing")
        parser.add_argument("--arm", action="store_true", help="take new servers into service at once (asks)")
        parser.add_argument("--yes", action="store_true", help="don't ask before arming")

    def handle(self, *args: Any, **options: Any) -> None:
        aliases = self.aliases(options["using"])
        if options["fix"]:
            for alias in aliases:
                locks[alias].prepare()
        if options["arm"]:
            self._arm(aliases, options)
        stores = {alias: health(alias) for alias in aliases}
        if options["format"] == "json":
            self.print_json(stores)
        else:
            for alias, rows in stores.items():
                self._print(alias, rows)
        rows = [row for rows in stores.values() for row in rows]
        if any(not row["ok"] for row in rows):
            raise SystemExit(2)
        if any(row.get("warnings") for row in rows):
            raise SystemExit(1)

    def _arm(self, aliases: list[str], options: dict[str, Any]) -> None:
        armable = {alias: arm for alias in aliases if (arm := getattr(locks[alias], "arm", None))}
        self.stderr.write(self.style.WARNING(ASSERTION))
        if not options["yes"] and not self.confirmed(f"Arm {', '.join(armable)}?"):
            raise CommandError("nothing was armed")
        for alias, arm in armable.items():
            try:
                told = arm()
            except LockError as error:
                told = {alias: explained(error)}
            for node, outcome in told.items():
                self.stderr.write(f"{alias} {node}: {outcome}")

    def _print(self, alias: str, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            mark = self.style.SUCCESS("ok") if row["ok"] else self.style.ERROR("PROBLEM")
            self.stdout.write(f"{mark}  {printable(alias)}  {printable(row['node'])}")
            for problem in row["problems"]:
                self.stdout.write(self.style.ERROR(f"    {printable(problem)}"))
            for warning in row.get("warnings", ()):
                self.stdout.write(self.style.WARNING(f"    {printable(warning)}"))
            said = ", ".join(f"{label} {value}" for label, value in facts(row))
            if said:
                self.stdout.write(f"    {printable(said)}")
