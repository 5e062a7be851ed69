"""`SingleInstanceCommand`, on a real Redis."""

import io
import os
import re
import signal
import socket

import pytest
from django.core.management import CommandError, call_command

from django_redlock.errors import LockLost
from django_redlock.management.single import SingleInstanceCommand


class Nightly(SingleInstanceCommand):
    """A command that calls a function of the test."""

    lock_name = "nightly"
    lock_options = {"ttl": 5}

    def __init__(self, body=repr):
        super().__init__(stdout=io.StringIO(), stderr=io.StringIO())
        self.body = body

    def handle(self, *args, **options):
        return self.body(self)


def test_runs_under_the_lock(stores):
    call_command(Nightly(lambda command: command.lock.check()))
    assert stores["default"].describe("nightly") is None


@pytest.mark.parametrize("options", [{"ttl": 5}, {"blocking": False}, {"blocking_timeout": 0.01}])
def test_already_running(stores, options):
    """A second command waits as `lock_options` say, exits with its own code, does nothing, and names the holder."""
    ran = []
    command = Nightly(ran.append)
    command.lock_options = options
    with stores["default"].lock("nightly"), pytest.raises(CommandError) as refused:
        call_command(command)
    assert refused.value.returncode == 75
    running = f"already running on host {re.escape(socket.gethostname())}, pid {os.getpid()}, " + r"for \d+\.\d s"
    assert re.search(running, str(refused.value))
    assert ran == []


def test_nested_call_is_a_second_one(stores):
    """A command that starts itself is refused."""
    with pytest.raises(CommandError, match="already running"):
        call_command(Nightly(lambda _: call_command(Nightly())))
    assert stores["default"].describe("nightly") is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_ended_by_a_signal(stores, number):
    """A signal that ends the process releases the lock first, and a second signal changes nothing."""

    def body(command):
        try:
            os.kill(os.getpid(), number)
        finally:
            os.kill(os.getpid(), number)
            command.lock.check()

    before = signal.signal(number, signal.SIG_DFL)  # nohup ignores a hang-up
    try:
        with pytest.raises(SystemExit) as ended:
            call_command(Nightly(body))
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert ended.value.code == 128 + number
    assert stores["default"].describe("nightly") is None


def test_interrupted(stores):
    """Ctrl-C raises KeyboardInterrupt, and the lock is free."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            call_command(Nightly(lambda _: signal.raise_signal(signal.SIGINT)))
    finally:
        signal.signal(signal.SIGINT, before)
    assert stores["default"].describe("nightly") is None


def test_signals_that_others_handle(stores):
    """An existing signal handler stays in place."""
    signals = []
    before = signal.signal(signal.SIGTERM, lambda *_: signals.append("theirs"))
    try:
        call_command(Nightly(lambda _: os.kill(os.getpid(), signal.SIGTERM)))
        assert signals == ["theirs"]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_lock_lost(stores):
    """A command whose lock was released by force ends with LockLost."""
    with pytest.raises(LockLost):
        call_command(Nightly(lambda _: str(stores["default"].force_release("nightly"))))


def test_store_down(one_down):
    """Without a store the command exits with its own code, and nothing runs."""
    ran = []
    command = Nightly(ran.append)
    command.lock_using = "broken"
    with pytest.raises(CommandError) as refused:
        call_command(command)
    assert refused.value.returncode == 69
    assert ran == []


def test_store_with_wrong_settings(settings):
    """With wrong settings the command gives one sentence without a traceback, and nothing runs."""
    settings.REDLOCK = {}
    ran = []
    with pytest.raises(CommandError, match="there is no lock backend 'default'"):
        call_command(Nightly(ran.append))
    assert ran == []
