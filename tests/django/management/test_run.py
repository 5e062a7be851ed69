"""`manage.py redlock_run`, as real processes on a real Redis."""

import os
import signal
import socket
import sys

import pytest

from django_redlock.management.process_group import ProcessGroup
from tests.django.management.command_result import Done
from tests.django.management.programs import PATIENT, UNTIL_SIGUSR1
from tests.support.locks import wait_until_renewed
from tests.support.service import poll


def test_runs_under_the_lock(run, backend):
    look = "import os; print(os.environ['REDLOCK_NAME'], int(os.environ['REDLOCK_FENCING_TOKEN']) > 0)"
    assert run("job", "--", sys.executable, "-c", look)[:2] == (0, "job True\n")
    assert backend.describe("job") is None


def test_lock_that_older_code_knows(run):
    """A lock of TimestampBackend, which has no fencing tokens, works."""
    assert run("--using", "timestamp", "job", "--", "echo", "ran")[:2] == (0, "ran\n")


IGNORE = "import os, sys; from signal import *; signal(SIGCHLD, SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"


@pytest.mark.parametrize(
    ("command", "code", "before"),
    [
        ("exit 3", 3, ()),
        ("kill -9 $$", 137, ()),
        ("kill -TERM $$", 143, ()),
        ("exit 3", 3, (sys.executable, "-c", IGNORE)),
    ],
    ids=["exit", "killed", "signal", "SIGCHLD ignored by the parent"],
)
def test_exit_code(run, command, code, before):
    """The exit code is the command's, or 128 + n if a signal ended it."""
    assert run("job", "--", "sh", "-c", command, before=before)[0] == code


def test_arguments_are_the_commands(run):
    """Everything behind -- is passed to the command, also options and another --."""
    assert run("job", "--", "printf", "%s|", "--timeout", "--", "-x")[1] == "--timeout|--|-x|"


def test_called_by_a_program(stores):
    """`call_command` passes everything behind -- to the command, too."""
    assert Done("redlock_run", "job", "--timeout", "5", "--", "sh", "-c", 'exit "$#"', "sh", "--", "-x").code == 2


def test_not_found(run, backend):
    """A missing command gives 127, one that can't be executed 126, and the lock is free."""
    assert run("job", "--", "no-such-command-anywhere")[0] == 127
    assert run("job", "--", "/")[0] == 126
    assert backend.describe("job") is None


def test_held_by_another(run, backend):
    """With a held lock nothing runs: --timeout gives 75, and --skip-if-locked 0."""
    with backend.lock("job"):
        code, out, err = run("--timeout", "0.3", "job", "--", "echo", "ran")
        assert (code, out) == (75, "")
        assert f"lock 'job': is held by {socket.gethostname()}:{os.getpid()} " in err
        assert run("--skip-if-locked", "job", "--", "echo", "ran") == (0, "", "")


@pytest.mark.parametrize(
    ("number", "code"), [(None, 0), (signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_waits(start_run, backend, number, code):
    """Without --timeout it waits until the lock is free. A signal ends it without a traceback, and nothing runs."""
    with backend.lock("job"):
        process = start_run("job", "--", "echo", "ran")
        poll(lambda: backend.describe("job").waiters == 1, timeout=120, what="a waiter")
        if number:
            process.send_signal(number)
            process.wait(60)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (code, "" if number else "ran\n", "")


def test_signal_before_the_command(stores, monkeypatch):
    """A signal between the grant and the start of the command releases the lock."""

    def run(*_):
        assert stores["default"].describe("job") is not None
        raise SystemExit(143)  # as the handler of SIGTERM does

    monkeypatch.setattr(ProcessGroup, "run", run)
    assert Done("redlock_run", "job", "true").code == 143
    assert stores["default"].describe("job") is None


def test_store_down(run, redis_server):
    """Without a store the exit code is 69, and nothing runs."""
    redis_server.stop()
    code, out, err = run("job", "--", "echo", "ran")
    assert (code, out) == (69, "")
    assert "is unavailable" in err


@pytest.mark.parametrize("closed", ["2>&-", "2> >(exec true)"], ids=["closed", "no reader"])
def test_without_standard_error(run, backend, closed):
    """Without a reader of its messages, exit codes are the same, and the lock is free."""
    code = f"""trap '' PIPE; exec "$@" {closed}"""
    shell = ["bash", "-c", code, "bash"]
    assert run("job", "--", "no-such-command-anywhere", before=shell)[0] == 127
    assert backend.describe("job") is None
    assert run("--timeout", "nonsense", "job", "--", "true", before=shell)[0] == 2
    with backend.lock("job"):
        assert run("--timeout", "0", "job", "--", "true", before=shell)[0] == 75


class TestBesideTheCommand:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP])
    def test_passes_signals(self, begin, backend, number):
        """A signal is passed to the command, and the exit code is the command's."""
        process = begin(code=PATIENT)
        process.send_signal(number)
        assert process.stdout.readline() == f"got {number.name}\n"
        assert process.wait(30) == 7
        assert backend.describe("job") is None

    def test_nohup(self, begin):
        """A signal that redlock_run ignores from the start is neither handled nor passed on."""
        process = begin(code=UNTIL_SIGUSR1, before=["nohup"])
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGUSR1)
        assert (process.stdout.read(), process.wait(30)) == ("got SIGUSR1\n", 0)

    def test_renews(self, begin, backend):
        process = begin("--ttl", "6", code=PATIENT)
        wait_until_renewed(backend, "job")
        process.terminate()
        other = backend.lock("job")
        assert other.acquire(timeout=20)
        other.release()

    def test_kills_when_lost(self, begin, backend):
        """When the lock is released by force the command gets SIGTERM, and the exit code is 70."""
        process = begin("--ttl", "5", code=PATIENT)
        backend.force_release("job")
        assert process.stdout.readline() == "got SIGTERM\n"
        assert process.wait(30) == 70
        assert "was lost" in process.stderr.read()

    def test_warns_when_lost(self, begin, backend):
        """With --on-lost warn the command runs on, and its exit code counts."""
        process = begin("--ttl", "5", "--on-lost", "warn", code=PATIENT)
        backend.force_release("job")
        assert "was lost" in process.stderr.readline()
        process.terminate()
        assert process.wait(30) == 7
