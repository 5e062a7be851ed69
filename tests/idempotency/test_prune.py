"""`redlock_idempotency_prune` removes answers that have expired, and no others."""

from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from django_redlock.idempotency.models import StoredAnswer
from tests.django.management.command_result import Done


@pytest.fixture
def rows(database):
    """Seven answers in the database, five of them expired."""
    rows = StoredAnswer.objects.using(database)
    for number in range(7):
        expires_at = timezone.now() + timedelta(minutes=1 if number < 2 else -1)
        rows.create(name=str(number), fingerprint="f", expires_at=expires_at)
    return rows


def prune(database, *words):
    return Done("redlock_idempotency_prune", "--database", database, *words).out


@pytest.mark.parametrize("words", [(), ("--batch", "2")], ids=str)
def test_prune(database, rows, words):
    """Expired answers are removed in batches of any size."""
    assert prune(database, *words) == "5 expired answers removed\n"
    assert sorted(rows.values_list("name", flat=True)) == ["0", "1"]
    assert prune(database) == "0 expired answers removed\n"


def test_dry_run(database, rows):
    assert prune(database, "--dry-run") == "5 expired answers\n"
    assert rows.count() == 7


@pytest.mark.parametrize("words", [("--batch", "0"), ("--batch", "x"), ("--database", "nowhere")])
def test_bad_options(words):
    with pytest.raises(CommandError):
        call_command("redlock_idempotency_prune", *words)
