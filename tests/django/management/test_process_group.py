"""The process group of the command that `redlock_run` runs: its processes, its signals and its terminal."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from django_redlock.management.process_group import ProcessGroup
from tests.django.management.programs import PATIENT, SLOW_TO_END, STUBBORN, UNTIL_SIGCONT, UNTIL_SIGUSR1

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


def test_ends_with_the_command(run):
    """Processes that the command leaves behind in its group are ended."""
    command = ["sh", "-c", '"$0" -c "$1" & read _ < "$2"; exit 3', sys.executable, PATIENT, "/dev/null"]
    code, out, _ = run("job", "--", *command)
    assert code == 3
    assert out in ("", "ready\n", "ready\ngot SIGTERM\n")


# A process that adopts orphans and never reaps them, as process 1 of many containers.
NO_REAPER = "import ctypes, subprocess, sys; ctypes.CDLL(None).prctl(36, 1); sys.exit(subprocess.call(sys.argv[1:]))"
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
@pytest.mark.parametrize(("command", "code"), [(ORPHAN, 3), (ZOMBIES, 0)], ids=["ended", "reaped"])
def test_process_1_that_reaps_nothing(run, command, code):
    """Orphans are reaped, and the lock isn't held for the grace after they have ended."""
    reaped_by_none = [sys.executable, "-c", NO_REAPER]
    assert run("--grace", "3000", "job", "--", "bash", "-c", command, before=reaped_by_none)[0] == code


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has ended")
def test_killed_with_9(begin):
    """After `kill -9` of redlock_run the command ends, because its lock is no longer renewed."""
    process = begin(code=PATIENT)
    process.kill()
    assert process.stdout.read() == ""  # to the end


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


RUN = """
import signal, sys, threading
from django_redlock.management.process_group import ProcessGroup
threading.Thread(target=threading.Event().wait, args=[60], daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # in this thread only: the other one gets the signal
sys.exit(ProcessGroup([sys.executable, "-c", sys.argv[1]], 5).run({}))
"""


def test_signal_that_does_not_interrupt_the_wait():
    """A signal that does not interrupt the wait for the command, as one just before the wait, is forwarded at once."""
    with subprocess.Popen([sys.executable, "-c", RUN, PATIENT], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGUSR1)
            assert process.wait(30) == 7
        finally:
            process.kill()


class TestOnATerminal:
    @pytest.fixture
    def keyboard(self, start_run):
        """`keyboard(code)`: a `redlock_run` on a terminal, started `by` a shell, and a function that types there."""
        ours, theirs = os.openpty()

        def begin(code, stdin="/dev/tty", by=("-c", 'exec "$@" < "$0"')):
            command = "job", "--", sys.executable, "-c", code
            process = start_run(*command, before=["setsid", "--ctty", "sh", *by, stdin], stdin=theirs)
            assert process.stdout.readline() == "ready\n"
            return process, lambda typed: os.write(ours, typed)

        yield begin
        os.close(ours)
        os.close(theirs)

    @pytest.mark.parametrize("stdin", ["/dev/tty", "/dev/null"])
    def test_ctrl_c(self, keyboard, stdin):
        """Ctrl-C reaches the command once, whatever its stdin is."""
        process, typing = keyboard(UNTIL_SIGUSR1, stdin)
        typing(b"\x03")
        assert process.stdout.readline() == "got SIGINT\n"
        process.send_signal(signal.SIGUSR1)
        assert (process.stdout.read(), process.wait(30)) == ("got SIGUSR1\n", 0)

    def test_ctrl_z(self, keyboard):
        """Ctrl-Z stops redlock_run and the command until the shell continues them."""
        process, typing = keyboard(UNTIL_SIGCONT, by=("-mc", '"$@"; echo "stopped $?"; fg'))
        typing(b"\x1a")
        assert f"stopped {128 + signal.SIGTSTP}\n" in process.communicate(timeout=60)[0]
        assert process.returncode == 0

    def test_ctrl_z_without_job_control(self, keyboard):
        """After Ctrl-Z where no shell could continue them, as in ``kubectl exec``, both go on."""
        process, typing = keyboard(UNTIL_SIGCONT)
        typing(b"\x1a")
        assert process.communicate(timeout=30)[0] == ""
        assert process.returncode == 0

    @pytest.mark.parametrize("stdin", ["/dev/tty", "/dev/null"])
    def test_kill_int(self, keyboard, stdin):
        """SIGINT to redlock_run alone reaches the command, too."""
        process, _ = keyboard(PATIENT, stdin)
        process.send_signal(signal.SIGINT)
        assert (process.stdout.read(), process.wait(30)) == ("got SIGINT\n", 7)

    @pytest.mark.parametrize("stdin", ["/dev/tty", "/dev/null"])
    def test_command_that_uses_the_terminal(self, keyboard, stdin):
        """A command can read from the terminal, even if its stdin is something else."""
        process, typing = keyboard("print('ready', flush=True); print(open('/dev/tty').readline())", stdin)
        typing(b"secret\n")
        assert (process.stdout.read(), process.wait(30)) == ("secret\n\n", 0)
