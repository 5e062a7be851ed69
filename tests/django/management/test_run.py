"""`manage.py redlock_run`, as real processes on a real Redis."""

import os
import signal
import socket
import sys
import threading

import pytest

from django_redlock.management.process_group import ProcessGroup
from tests.django.management.command_result import Done
from tests.support.locks import wait_until_renewed
from tests.support.service import poll


@pytest.fixture
def run(start_run):
    """`run(*args)`: exit code, stdout and stderr of a `redlock_run` that has ended."""

    def to_the_end(*args, **options):
        process = start_run(*args, **options)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    return to_the_end


@pytest.fixture
def begin(start_run):
    """`begin(*options, code)`: a `redlock_run` of a Python program that has said that it is ready."""

    def start(*options, code, command=(sys.executable, "-c"), **more):
        process = start_run(*options, "job", "--", *command, code, **more)
        assert process.stdout.readline() == "ready\n"
        return process

    return start


# A child that says when it is ready for signals, and which one came. A signal before the wait is kept.
CHILD = """
import os, signal, sys, time
awaited = {signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP}
signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
signal.alarm(60)
print("ready", flush=True)
while True:
    number = signal.sigwait(awaited)
    os.write(1, b"got %s\\n" % signal.Signals(number).name.encode())
    """
PATIENT = CHILD + "sys.exit(7)"
STUBBORN = CHILD + "pass"
SLOW_TO_END = CHILD + "signal.sigwait(awaited); os.write(1, b'done\\n'); os._exit(0)"
UNTIL_SIGUSR1 = CHILD + "number == signal.SIGUSR1 and sys.exit(0)"
UNTIL_SIGCONT = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
signal.alarm(60)
print("ready", flush=True)
signal.sigwait({signal.SIGCONT})
"""


def test_runs_under_the_lock(run, backend):
    look = "import os; print(os.environ['REDLOCK_NAME'], int(os.environ['REDLOCK_FENCING_TOKEN']) > 0)"
    assert run("job", "--", sys.executable, "-c", look)[:2] == (0, "job True\n")
    assert backend.describe("job") is None


def test_lock_that_older_code_knows(run):
    """A lock of TimestampBackend, which has no fencing tokens, works."""
    assert run("--using", "timestamp", "job", "--", "echo", "ran")[:2] == (0, "ran\n")


@pytest.mark.parametrize(("command", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("kill -TERM $$", 143)])
def test_exit_code(run, command, code):
    """The exit code is the command's, or 128 + n if a signal ended it."""
    assert run("job", "--", "sh", "-c", command)[0] == code


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
        assert run("--timeout", "0", "job", "--", "echo", "ran")[:2] == (75, "")
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP])
def test_passes_signals(begin, backend, number):
    """A signal is passed to the command, and the exit code is the command's."""
    process = begin(code=PATIENT)
    process.send_signal(number)
    assert process.stdout.readline() == f"got {number.name}\n"
    assert process.wait(30) == 7
    assert backend.describe("job") is None


def test_renews(begin, backend):
    process = begin("--ttl", "6", code=PATIENT)
    wait_until_renewed(backend, "job")
    process.terminate()
    other = backend.lock("job")
    assert other.acquire(timeout=20)
    other.release()


def test_kills_when_lost(begin, backend):
    """When the lock is released by force the command gets SIGTERM, and the exit code is 70."""
    process = begin("--ttl", "5", code=PATIENT)
    backend.force_release("job")
    assert process.stdout.readline() == "got SIGTERM\n"
    assert process.wait(30) == 70
    assert "was lost" in process.stderr.read()


def test_warns_when_lost(begin, backend):
    """With --on-lost warn the command runs on, and its exit code counts."""
    process = begin("--ttl", "5", "--on-lost", "warn", code=PATIENT)
    backend.force_release("job")
    assert "was lost" in process.stderr.readline()
    process.terminate()
    assert process.wait(30) == 7


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


# ── the command's process group ──────────────────────────────────────────────────────────────

FAMILY = ["sh", "-c", '"$0" -c "$1" & wait', sys.executable]  # a command, and a process that it has started


def test_kills_what_the_command_has_started(begin, backend):
    """When the lock is lost, a command that ignores SIGTERM is killed after the grace, with what it has started."""
    process = begin("--ttl", "5", "--grace", "1", code=STUBBORN, command=FAMILY)
    backend.force_release("job")
    assert process.stdout.read() == "got SIGTERM\n"  # up to the end of file: no process is left that could write
    assert process.wait(9) == 70  # by itself it would take the default grace of ten seconds


def test_ends_what_the_command_has_started(begin, backend):
    """SIGTERM ends the command and the processes that it has started, under the lock."""
    process = begin("--grace", "60", code=SLOW_TO_END, command=FAMILY)
    process.terminate()
    assert process.stdout.readline() == "got SIGTERM\n"
    assert backend.describe("job") is not None
    process.send_signal(signal.SIGUSR1)  # lets it end
    assert (process.stdout.read(), process.wait(30)) == ("done\n", 143)
    assert backend.describe("job") is None


def test_ends_with_the_command(start_run):
    """Processes that the command leaves behind in its group are ended."""
    process = start_run(
        "job", "--", "sh", "-c", '"$0" -c "$1" & read _ < "$2"; exit 3', sys.executable, PATIENT, "/dev/null"
    )
    assert process.stdout.read() in ("", "ready\n", "ready\ngot SIGTERM\n")  # to the end
    assert process.wait(30) == 3


# A process that adopts orphans and never reaps them, as process 1 of many containers.
NO_REAPER = [
    sys.executable,
    "-c",
    "import ctypes, subprocess, sys; ctypes.CDLL(None).prctl(36, 1); sys.exit(subprocess.run(sys.argv[1:]).returncode)",
]
ORPHAN = "(trap 'exit 0' TERM; while :; do sleep 0.1; done) & read _ < /dev/null; exit 3"  # ends at SIGTERM
# Leaves three processes behind, which end, and waits until none of its process group is a zombie.
ZOMBIES = """
for i in 1 2 3; do (sleep 0 &); done
for i in $(seq 200); do
    cat /proc/[0-9]*/stat 2>/dev/null | awk -v group=$$ '$5 == group && /sleep/ { exit 1 }' && exit 0
    sleep 0.05
done
exit 1
"""


@pytest.mark.skipif(sys.platform != "linux", reason="zombies of a container")
def test_process_1_that_reaps_nothing(start_run):
    """Where process 1 doesn't reap orphans, the lock isn't held for the grace after they have ended."""
    process = start_run("--grace", "3000", "job", "--", "bash", "-c", ORPHAN, before=NO_REAPER)
    assert process.wait(60) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="zombies of a container")
def test_orphans_are_reaped(run):
    assert run("job", "--", "bash", "-c", ZOMBIES, before=NO_REAPER)[0] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has ended")
def test_killed_with_9(begin):
    """After `kill -9` of redlock_run the command ends, because its lock is no longer renewed."""
    process = begin(code=PATIENT)
    process.kill()
    assert process.stdout.read() == ""  # to the end


def test_nohup(begin):
    """A signal that redlock_run ignores from the start is neither handled nor passed on."""
    process = begin(code=UNTIL_SIGUSR1, before=["nohup"])
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGUSR1)
    assert (process.stdout.read(), process.wait(30)) == ("got SIGUSR1\n", 0)


def test_ignored_sigchld(run):
    """The end of the command is noticed, although the parent of redlock_run has made it ignore SIGCHLD."""
    ignore = "import os, sys; from signal import *; signal(SIGCHLD, SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    assert run("job", "--", "sh", "-c", "exit 3", before=[sys.executable, "-c", ignore])[0] == 3


def test_signal_at_the_end_of_the_command(monkeypatch):
    """SIGTERM ends a candidate, although the loss of the lead has just ended its command."""
    child = ProcessGroup(["sleep", "60"], 30.0)
    wait, end_rest = child._wait, child._end_rest
    losing = threading.Thread(target=child.stop)

    def lose_and_wait(signals):
        losing.start()
        return wait(signals)

    def end_and_signal(signals):
        end_rest(signals)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(child, "_wait", lose_and_wait)
    monkeypatch.setattr(child, "_end_rest", end_and_signal)
    assert child.run({}) == 128 + signal.SIGTERM
    losing.join()
    assert not child.ended_by_loss


@pytest.fixture
def keyboard(start_run):
    """`keyboard(*args)`: a `redlock_run` on a terminal, started by `shell`, and a function that types there."""
    ours, theirs = os.openpty()

    def begin(*args, stdin="/dev/tty", shell=("-c", 'exec "$@" < "$0"')):
        process = start_run(*args, before=["setsid", "--ctty", "sh", *shell, stdin], stdin=theirs)
        assert process.stdout.readline() == "ready\n"
        return process, lambda typed: os.write(ours, typed)

    yield begin
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize("stdin", ["/dev/tty", "/dev/null"])
def test_ctrl_c(keyboard, stdin):
    """Ctrl-C reaches the command once, whatever its stdin is."""
    process, typing = keyboard("job", "--", sys.executable, "-c", UNTIL_SIGUSR1, stdin=stdin)
    typing(b"\x03")
    assert process.stdout.readline() == "got SIGINT\n"
    process.send_signal(signal.SIGUSR1)
    assert (process.stdout.read(), process.wait(30)) == ("got SIGUSR1\n", 0)


def test_ctrl_z(keyboard):
    """Ctrl-Z stops redlock_run and the command until the shell continues them."""
    job_control = "-mc", '"$@"; echo "stopped $?"; fg'
    process, typing = keyboard("job", "--", sys.executable, "-c", UNTIL_SIGCONT, shell=job_control)
    typing(b"\x1a")
    assert f"stopped {128 + signal.SIGTSTP}\n" in process.communicate(timeout=60)[0]
    assert process.returncode == 0


def test_ctrl_z_without_job_control(keyboard):
    """After Ctrl-Z where no shell could continue them, as in ``kubectl exec``, both go on."""
    process, typing = keyboard("job", "--", sys.executable, "-c", UNTIL_SIGCONT)
    typing(b"\x1a")
    assert process.communicate(timeout=30)[0] == ""
    assert process.returncode == 0


@pytest.mark.parametrize("stdin", ["/dev/tty", "/dev/null"])
def test_kill_int_on_a_terminal(keyboard, stdin):
    """SIGINT to redlock_run alone reaches the command, too."""
    process, _ = keyboard("job", "--", sys.executable, "-c", PATIENT, stdin=stdin)
    process.send_signal(signal.SIGINT)
    assert (process.stdout.read(), process.wait(30)) == ("got SIGINT\n", 7)


@pytest.mark.parametrize("stdin", ["/dev/tty", "/dev/null"])
def test_command_that_uses_the_terminal(keyboard, stdin):
    """A command can read from the terminal, even if its stdin is something else."""
    ask = "print('ready', flush=True); print(open('/dev/tty').readline())"
    process, typing = keyboard("job", "--", sys.executable, "-c", ask, stdin=stdin)
    typing(b"secret\n")
    assert (process.stdout.read(), process.wait(30)) == ("secret\n\n", 0)
