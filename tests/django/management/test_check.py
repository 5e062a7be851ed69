"""`redlock_check`: the health of servers and settings."""

import io
import time
from types import SimpleNamespace

import pytest
from django.core.management import CommandError, call_command

from tests.django.management.command_result import Done


def test_check(stores):
    """With healthy stores the exit code is 0 and each store is named."""
    done = Done("redlock_check")
    assert (done.code, done.out.count("ok  "), "version" in done.out) == (0, 2, True)
    assert "polls" not in done.out  # a server where waiters poll has a warning in words


def test_check_json(one_down):
    """JSON has the same facts; a store that is down gives exit code 2 and the reason."""
    done = Done("redlock_check", format="json")
    assert done.code == 2
    assert done.json["default"][0]["ok"]
    assert "Connection refused" in done.json["broken"][0]["problems"][0]


@pytest.mark.parametrize(("asked", "answered", "code"), [(-60, -60, 1), (60, 60, 1), (-4, 0, 0), (0, 4, 0)])
def test_check_of_clocks(stores, monkeypatch, asked, answered, code):
    """A server's clock that differs is a warning; a pause of this process before or after the request is none."""
    steps = iter([asked, answered])
    clock = SimpleNamespace(time=lambda: time.time() + next(steps), perf_counter=time.perf_counter)
    monkeypatch.setattr("django_redlock.backends.health.time", clock)
    done = Done("redlock_check", "--using", "default")
    assert (done.code, "its clock is" in done.out) == (code, bool(code))


def test_check_finds_a_replica(stores, redis_server, own_redis, settings):
    replica = own_redis("--replicaof", "127.0.0.1", str(redis_server.port))
    settings.REDLOCK = {"default": {**settings.REDLOCK["default"], "LOCATION": replica.url}}
    done = Done("redlock_check")
    assert done.code == 2
    assert "is a slave, which takes no writes" in done.out


def test_check_arm_says_what_it_asserts_and_asks(stores, answer):
    answer("no")
    with pytest.raises(CommandError, match="nothing was armed"):
        call_command("redlock_check", "--arm", stdout=io.StringIO(), stderr=io.StringIO())
    done = Done("redlock_check", "--arm", "--yes", "--using", "default")
    assert "no lock is held" in done.err
    assert "armed" in done.err


def test_check_deploy(stores, settings):
    """--deploy warns of settings that are dangerous in production, unless they are silenced."""
    assert Done("redlock_check").code == 0
    done = Done("redlock_check", "--deploy", format="json")
    assert done.code == 1
    added = {alias: rows[-1] for alias, rows in done.json.items()}
    assert {row["node"] for row in added.values()} == {"settings"}
    assert "no persistence" in added["default"]["warnings"][0]
    assert "(redlock.W002)" in added["memory"]["warnings"][0]
    printed = Done("redlock_check", "--deploy").out
    assert "other processes don't see them" in printed
    assert "warning  memory  settings" in printed
    settings.SILENCED_SYSTEM_CHECKS = ["redlock.W002", "redlock.W009"]
    assert Done("redlock_check", "--deploy").code == 0


def test_check_without_a_default_store(stores, settings):
    """Without the alias "default", which `lock()` needs, the check says what to write, unless E001 is silenced."""
    settings.REDLOCK = {"payments": settings.REDLOCK["default"]}
    done = Done("redlock_check")
    assert done.code == 2
    assert "PROBLEM  default" in done.out
    assert "Add to your settings" in done.out
    assert Done("redlock_check", "--using", "payments").code == 0
    settings.SILENCED_SYSTEM_CHECKS = ["redlock.E001"]
    assert Done("redlock_check").code == 0
