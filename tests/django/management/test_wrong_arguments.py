"""Commands with wrong arguments or settings: one sentence and exit code 2, no traceback."""

import logging
import re
import threading

import pytest
from django.core.management import CommandError, call_command

from tests.django.conftest import REDIS
from tests.django.management.command_result import Done

LOCMEM = "django_redlock.backends.locmem.LocMemBackend"
COMMANDS = {"redlock_list": [], "redlock_check": [], "redlock_release": ["x"], "redlock_run": ["x", "true"]}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("setting", "sentence"), [({}, "Add to your settings"), ([], "REDLOCK must be a dict")])
def test_no_stores(settings, command, setting, sentence):
    """Without configured backends a command says what to write into the settings."""
    settings.REDLOCK = setting
    with pytest.raises(CommandError, match=sentence) as refused:
        call_command(command, *COMMANDS[command])
    assert refused.value.returncode == 2


@pytest.mark.parametrize("command", ["redlock_list", "redlock_check", "redlock_release"])
def test_a_store_with_wrong_settings(settings, caplog, command):
    """A backend with wrong settings is reported in one line, without a traceback."""
    settings.REDLOCK = {"default": {"BACKEND": REDIS, "LOCATION": "redi://somewhere"}, "memory": {"BACKEND": LOCMEM}}
    with caplog.at_level(logging.WARNING):
        done = Done(command, *COMMANDS[command])
    assert done.code == (2 if command == "redlock_check" else 1)
    output = done.out + done.err
    assert "LOCATION must begin with one of redis://" in output
    assert "ImproperlyConfigured" not in output
    assert "Nothing to release" not in output
    assert [record for record in caplog.records if record.thread == threading.get_ident()] == []


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["redlock_list", "--using", "nowhere"], "no such store: nowhere"),
        (["redlock_list", "--limit", "-5"], "--limit is at least 1"),
        (["redlock_list", "--limit", "many"], "invalid int value: 'many'"),
        (["redlock_list", "--watch", "nan"], "nan is not a duration"),
        (["redlock_list", "--watch", "0"], "--watch is at least 0.1 s"),
        (["redlock_list", "--kind", "lock"], "invalid choice: 'lock'"),
        (["redlock_list", "--state", "waiting"], "invalid choice: 'waiting'"),
        (["redlock_release", "x", "--kind", "lock"], "invalid choice: 'lock'"),
        (["redlock_release", "x", "--state", "waiting"], "invalid choice: 'waiting'"),
        (["redlock_run", "--skip-if-locked", "--timeout", "5", "x", "true"], "can't be combined with --timeout"),
        (["redlock_check", "--arm", "--format", "json"], "--arm needs --yes"),
        (["redlock_release", "x", "--older-than", "-1"], "-1 is not a duration"),
        (["redlock_release", ""], "a lock's name must have 1 to 512 bytes"),
        (["redlock_release"], "which locks"),
        (["redlock_run", "--using", "nowhere", "x", "true"], "there is no lock backend 'nowhere'"),
        (["redlock_run", "--ttl", "0", "x", "true"], "ttl must be a positive number of seconds"),
        (["redlock_run", "--ttl", "1h", "x", "true"], "ttl must be at most 300 s"),
        (["redlock_run", "--grace", "5 parsecs", "x", "true"], "5 parsecs is not a duration"),
        (["redlock_run", "--timeout", "9" * 30, "x", "true"], f"9 is more than {threading.TIMEOUT_MAX:.0f}"),
        (["redlock_run", "x" * 600, "true"], "a lock's name must have 1 to 512 bytes"),
        (["redlock_run", "x"], "no command"),
        (["redlock_run", "--leader", "--skip-if-locked", "x", "true"], "--leader can't be combined"),
        (["redlock_run", "--leader", "--on-lost", "warn", "x", "true"], "--leader can't be combined"),
        (["redlock_run", "--leader", "--every", "23h", "x", "true"], "--leader can't be combined"),
        (["redlock_run", "--leader", "--ttl", "4", "--grace", "3", "x", "true"], "--grace is at most 1.6 s"),
        (["redlock_run", "--leader", "--ttl", "-1", "x", "true"], "ttl"),
    ],
    ids=lambda value: " ".join(value)[:40] if type(value) is list else "",
)
def test_invalid_value(settings, args, sentence):
    settings.REDLOCK = {"default": {"BACKEND": LOCMEM}}
    with pytest.raises(CommandError, match=re.escape(sentence)) as refused:
        call_command(*args)
    assert refused.value.returncode in (1, 2)  # 1: argparse, which ends a real command with 2
