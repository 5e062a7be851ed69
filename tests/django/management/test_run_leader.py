"""`manage.py redlock_run --leader`, as real processes on a real Redis."""

import functools
import signal
import sys

import pytest

from tests.support.service import poll

# Writes its fencing token and the time of the system's monotonic clock, until SIGTERM.
WORK = """
import os, signal, sys, time
token = os.environ["REDLOCK_FENCING_TOKEN"]
def end(number, frame):
    os.write(1, b"got SIGTERM\\n")
    STUBBORN or os._exit(7)
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGHUP, lambda number, frame: os.write(1, b"reloads\\n"))
os.write(1, f"begins {token} {time.monotonic()}\\n".encode())
while True:
    time.sleep(0.02)
    BEATS and os.write(1, f"works {token} {time.monotonic()}\\n".encode())
"""


def work(*, stubborn=False, beats=False):
    return [sys.executable, "-c", WORK.replace("STUBBORN", str(stubborn)).replace("BEATS", str(beats))]


@pytest.fixture
def launch(start_run):
    """`launch(*args)`: a `redlock_run --leader` that runs beside the test."""
    return functools.partial(start_run, "--leader")


def begins(process):
    """Wait for the start of the command. Returns its fencing token and its start by the monotonic clock."""
    event, token, when = process.stdout.readline().split()
    assert event == "begins"
    return int(token), float(when)


def until_standing(backend, process):
    def stands():
        held = backend.describe("job")
        return (held is not None and held.waiters) or process.poll() is not None

    poll(stands, timeout=120, what="a candidate")
    assert process.poll() is None, process.stderr.read()


def test_another_follows(launch, backend):
    """SIGTERM is passed to the command, its exit code is returned, and the next leader has a larger fencing token."""
    first = launch("job", "--", *work())
    token, _ = begins(first)
    second = launch("job", "--", *work())
    until_standing(backend, second)
    first.terminate()
    assert (first.stdout.read(), first.wait(30)) == ("got SIGTERM\n", 7)
    assert begins(second)[0] > token


def test_lost(launch, backend):
    """A command that survives a SIGHUP is stopped at a forced release, and starts again with the next lead."""
    process = launch("--ttl", "6", "--grace", "2", "job", "--", *work())
    token, _ = begins(process)
    process.send_signal(signal.SIGHUP)
    assert process.stdout.readline() == "reloads\n"
    backend.force_release("job")
    assert process.stdout.readline() == "got SIGTERM\n"
    assert begins(process)[0] > token


def test_lost_after_the_end(launch, backend):
    """A command that has ended by itself is not started again, although the lead is lost before its children end."""
    stubborn = "(trap : USR1; trap 'echo got SIGTERM' TERM; echo ready; while :; do sleep 0.1; done) &"
    command = f"trap 'exit 3' USR1; {stubborn} while :; do sleep 0.1; done"
    process = launch("--ttl", "6", "--grace", "2.4", "job", "--", "sh", "-c", command)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == "got SIGTERM\n"
    backend.force_release("job")  # which the next renewal finds, within 2 s
    assert process.wait(120) == 3


def test_stubborn_command(launch, redis_server):
    """If the store hangs, a command that ignores SIGTERM is killed, and it runs again when the store is back."""
    process = launch("--ttl", "3", "--grace", "1", "job", "--", *work(stubborn=True))
    token, _ = begins(process)
    redis_server.pause()
    assert process.stdout.readline() == "got SIGTERM\n"
    redis_server.resume()
    assert begins(process)[0] > token


def test_stops_before_the_next_leader(launch, backend, proxy):
    """The command of a leader that is cut off from the store ends before the next leader's begins."""
    first = launch("--ttl", "6", "--grace", "2.4", "job", "--", *work(beats=True), TESTPROJECT_REDIS=proxy.url)
    token, last = begins(first)
    second = launch("--ttl", "6", "job", "--", *work())
    until_standing(backend, second)
    proxy.drop()
    while (line := first.stdout.readline().split())[0] == "works":
        last = float(line[2])
    second_token, start = begins(second)
    assert (token < second_token, last < start) == (True, True)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_while_standing(launch, backend, number, code):
    """A signal ends a candidate that does not lead at once, and it leaves no waiter."""
    with backend.lock("job"):
        process = launch("job", "--", *work())
        until_standing(backend, process)
        process.send_signal(number)
        assert (*process.communicate(timeout=120), process.returncode) == ("", "", code)
        assert not backend.describe("job").waiters


@pytest.mark.parametrize(("command", "code"), [(["sh", "-c", "exit 3"], 3), (["no-such-command-anywhere"], 127)])
def test_command_that_ends(launch, backend, command, code):
    """A command that ends by itself ends the candidate with its exit code, and the lock is free."""
    assert launch("job", "--", *command).wait(60) == code
    assert backend.describe("job") is None


def test_timeout(launch, backend, redis_server):
    """Without an election within --timeout the exit code is 75 and the leader is named; without a store it is 69."""
    with backend.lock("job", owner="somebody"):
        process = launch("--timeout", "0.5", "job", "--", *work())
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out) == (75, "")
        assert "somebody" in err
    redis_server.stop()
    process = launch("--timeout", "0.5", "job", "--", *work())
    assert (process.communicate(timeout=120)[0], process.returncode) == ("", 69)
