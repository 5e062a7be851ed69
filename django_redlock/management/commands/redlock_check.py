"""``manage.py redlock_check``: check whether the stores are reachable and safely configured."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser

from ...backend_registry import DEFAULT_ALIAS, locks
from ...checks.deploy import deployment
from ...errors import LockError
from ...formatting import facts, printable
from ...store_queries import explain, health
from ..base import StoreCommand, misused

ASSERTION = (
    "Arming takes new servers into service at once. You assert that no lock is held on them:\n"
    "they are new, and have not lost data. Otherwise a lock may get two holders."
)


class Command(StoreCommand):
    help = "Checks each lock store and its servers, for people and for monitoring."
    epilog = (
        "Exit code: 0 all well; 1 warnings, or nothing was armed; 2 problems, wrong arguments or settings "
        "(as monitoring plugins have it)."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--deploy", action="store_true", help="warn of settings that are dangerous in production")
        parser.add_argument("--arm", action="store_true", help="take new servers into service at once (asks)")
        parser.add_argument("--yes", action="store_true", help="don't ask before arming")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["arm"] and options["format"] == "json" and not options["yes"]:
            raise misused("--format json can't ask: --arm needs --yes")
        aliases = self.aliases(options["using"])
        if options["arm"] and not self._armed(aliases, options):
            raise CommandError("nothing was armed")
        if not options["using"] and "redlock.E001" not in settings.SILENCED_SYSTEM_CHECKS:
            aliases = list(dict.fromkeys([*aliases, DEFAULT_ALIAS]))  # lock() needs it: without it there is a problem
        stores = {alias: health(alias) for alias in aliases}
        stores = {
            alias: [*rows, *deployment(alias, rows, in_production=options["deploy"])] for alias, rows in stores.items()
        }
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

    def _armed(self, aliases: list[str], options: dict[str, Any]) -> bool:
        """Take the new servers of the stores ``aliases`` into service now, without a quarantine (``--arm``).

        Returns ``False`` without a change unless the operator confirms, or has given ``--yes``.
        """
        self.stderr.write(self.style.WARNING(ASSERTION))
        asks = options["format"] == "table"  # a program that reads JSON can't answer a question
        if not options["yes"] and not (asks and self.confirmed(f"Arm {', '.join(aliases)}?")):
            return False
        for alias in aliases:
            try:
                told = locks[alias].arm()
            except (LockError, ImproperlyConfigured) as error:
                told = {alias: explain(error)}
            for node, outcome in told.items():
                self.stderr.write(f"{alias} {node}: {outcome}")
        return True

    def _mark(self, row: dict[str, Any]) -> str:
        if not row["ok"]:
            return self.style.ERROR("PROBLEM")
        return self.style.WARNING("warning") if row.get("warnings") else self.style.SUCCESS("ok")

    def _print(self, alias: str, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            self.stdout.write(f"{self._mark(row)}  {printable(alias)}  {printable(row['node'])}")
            for problem in row["problems"]:
                self.stdout.write(self.style.ERROR(f"    {printable(problem)}"))
            for warning in row.get("warnings", ()):
                self.stdout.write(self.style.WARNING(f"    {printable(warning)}"))
            if details := ", ".join(f"{label} {value}" for label, value in facts(row)):
                self.stdout.write(f"    {printable(details)}")
