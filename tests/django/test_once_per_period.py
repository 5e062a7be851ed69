"""``every=``: what starts at most once in a period, in decorators, commands and the admin."""

import io
import re
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from django_redlock import lock, locks
from django_redlock.decorators import locked
from django_redlock.errors import LockNotAcquired
from django_redlock.management.single import SingleInstanceCommand
from tests.django.management.command_result import Done

pytestmark = pytest.mark.usefixtures("stores")

PERIOD = timedelta(hours=4, minutes=30)


class Cleanup(SingleInstanceCommand):
    lock_name = "cleanup"
    every = PERIOD

    def handle(self, *args, **options):
        return "cleaned"


def test_function():
    """A second call within the period is refused until the lock is released by force."""
    calls = []

    @locked("report:{number}", every=PERIOD)
    def report(number):
        calls.append(number)

    for number in (1, 2):
        report(number)
        with pytest.raises(LockNotAcquired, match="was done") as refused:
            report(number)
        assert abs(PERIOD.total_seconds() - refused.value.retry_after) < 100
    assert locks["default"].force_release("report:1")
    report(1)
    assert calls == [1, 2, 1]


@pytest.mark.parametrize("every", [0, "23h", timedelta(days=-1)])
def test_bad_period(every):
    with pytest.raises((TypeError, ValueError), match="every"):
        locked("report", every=every)


def test_command():
    """A second command within the period is refused with the time of the next start."""
    call_command(Cleanup(stdout=io.StringIO()))
    with pytest.raises(CommandError, match=r"done on host .*, again in 4 h 29 min|again in 4 h 30 min") as refused:
        call_command(Cleanup(stdout=io.StringIO()))
    assert refused.value.returncode == 75


def test_run():
    """`redlock_run --every` does not start a second command, until `redlock_release` allows it."""

    def run(*options):
        return Done("redlock_run", "backup", "true", "--every", "4h", *options)

    assert (run().code, run().code) == (0, 75)
    assert re.search("done on host .*again in", run().err)
    assert (run("--skip-if-locked").code, run("--skip-if-locked").err) == (0, "")
    Done("redlock_release", "backup", "--yes")
    assert (run().code, run().code) == (0, 75)


def test_listed(operator, client):
    """The commands and the admin show that the work is done, and when it may start again."""
    with lock("cleanup", every=PERIOD):
        assert "running" in Done("redlock_list").out
    assert "done" in Done("redlock_list", "--state", "done").out
    assert "again in 4 h" in Done("redlock_list").out
    [row] = Done("redlock_list", format="json").json
    assert row["state"] == "done"
    page = client.get(reverse("admin:django_redlock_heldlock_changelist")).content.decode()
    assert "again in 4 h" in page
    assert "redlock-is-done" in page
