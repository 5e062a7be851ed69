"""`SingleInstanceCommand`, on a real Redis."""

import contextlib
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


@pytest.fixture(autouse=True)
def free_at_the_end(stores):
    yield
    assert stores["default"].describe("nightly") is None


@pytest.fixture
def handled():
    """`handled(number, handler)`: the handler of a signal in this test. Shells let background processes ignore some."""
    with contextlib.ExitStack() as ends:
        yield lambda number, handler: ends.callback(signal.signal, number, signal.signal(number, handler))


def test_runs_under_the_lock():
    call_command(Nightly(lambda command: command.lock.check()))


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


def test_nested_call_is_a_second_one():
    """A command that starts itself is refused."""
    with pytest.raises(CommandError, match="already running"):
        call_command(Nightly(lambda _: call_command(Nightly())))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_ended_by_a_signal(handled, number):
    """A signal that ends the process releases the lock first, and a second signal changes nothing."""

    def body(command):
        try:
            os.kill(os.getpid(), number)
        finally:
            os.kill(os.getpid(), number)
            command.lock.check()

    handled(number, signal.SIG_DFL)
    with pytest.raises(SystemExit) as ended:
        call_command(Nightly(body))
    assert signal.getsignal(number) is signal.SIG_DFL
    assert ended.value.code == 128 + number


def test_interrupted(handled):
    """Ctrl-C raises KeyboardInterrupt, and the lock is free."""
    handled(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        call_command(Nightly(lambda _: signal.raise_signal(signal.SIGINT)))


def test_signals_that_others_handle(handled):
    """An existing signal handler stays in place."""
    signals = []
    handled(signal.SIGTERM, lambda *_: signals.append("theirs"))
    call_command(Nightly(lambda _: os.kill(os.getpid(), signal.SIGTERM)))
    assert signals == ["theirs"]


def test_lock_lost(stores):
    """A command whose lock was released by force ends with LockLost."""
    with pytest.raises(LockLost):
        call_command(Nightly(lambda _: str(stores["default"].force_release("nightly"))))


@pytest.mark.parametrize(
    ("using", "message", "code"),
    [("broken", "is unavailable", 69), ("nowhere", "there is no lock backend 'nowhere'", 1)],
)
def test_without_a_store(one_down, using, message, code):
    """The command ends with one sentence and its own code, and nothing runs."""
    ran = []
    command = Nightly(ran.append)
    command.lock_using = using
    with pytest.raises(CommandError, match=message) as refused:
        call_command(command)
    assert (refused.value.returncode, ran) == (code, [])
