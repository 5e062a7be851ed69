"""``manage.py redlock_idempotency_prune``: remove stored answers that have expired from a database."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import DEFAULT_DB_ALIAS, connections
from django.utils import timezone

from ...models import StoredAnswer


class Command(BaseCommand):
    requires_system_checks = []
    help = "Removes answers to requests with idempotency keys that have expired from a database."
    epilog = "Exit code: 0, or 1 if the database was unavailable."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.epilog = self.epilog
        parser.add_argument(
            "--database", default=DEFAULT_DB_ALIAS, choices=tuple(connections), help="alias of the database"
        )
        parser.add_argument(
            "--batch", type=_positive, default=1000, help="rows that one statement removes (default: 1000)"
        )
        parser.add_argument("--dry-run", action="store_true", help="only count the answers that would be removed")

    def handle(self, *args: Any, **options: Any) -> None:
        rows = StoredAnswer.objects.using(options["database"])
        expired = rows.filter(expires_at__lte=timezone.now())
        if options["dry_run"]:
            self.stdout.write(f"{expired.count()} expired answers")
            return
        removed = 0
        # In batches, so that no statement locks many rows for long.
        while names := list(expired.values_list("pk", flat=True)[: options["batch"]]):
            removed += expired.filter(pk__in=names).delete()[0]
        self.stdout.write(f"{removed} expired answers removed")


def _positive(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return int(text)
