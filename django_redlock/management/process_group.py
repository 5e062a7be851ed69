"""A command as a process group of its own: signals reach all its processes, and none of them outlives it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

FORWARDED = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTSTP", "SIGCONT")
ASKS_FOR_TERMINAL = {signal.SIGTTIN, signal.SIGTTOU}  # what stops a group that uses a terminal which isn't its own
PR_SET_PDEATHSIG = 1  # linux/prctl.h
POLL = 0.02  # seconds between two looks whether the group is empty


class ProcessGroup:
    """A command and the processes that it starts, unless they leave its process group, as daemons do.

    ``grace``: seconds from SIGTERM to SIGKILL.
    """

    def __init__(self, command: Sequence[str], grace: float) -> None:
        self._command = command
        self._grace = grace
        self._terminal = Terminal()
        self._group = 0
        self._early: list[int] = []
        self._terminated = False
        self._lost = threading.Event()
        self._ended = threading.Event()

    def run(self, environment: Mapping[str, str]) -> int:
        """Run to the end and pass on signals; the exit code as a shell says it. Raises ``OSError``."""
        signals = [getattr(signal, each) for each in FORWARDED]
        taken = [each for each in signals if signal.getsignal(each) is not signal.SIG_IGN]  # ignored: as by nohup
        before = {each: signal.signal(each, self._forward) for each in taken}
        try:
            process = subprocess.Popen(
                self._command,
                env={**os.environ, **environment},
                process_group=0,
                preexec_fn=_die_with_parent(),  # noqa: PLW1509  (it takes no lock)
            )
            self._group = process.pid
            for number in self._early:
                self._send(number)
            if self._lost.is_set():  # before there was a process to stop
                threading.Thread(target=self.stop, daemon=True).start()
            code = process.returncode = self._wait()
            self._end_rest()
        finally:
            self._ended.set()
            self._terminal.close()
            for each, handler in before.items():
                signal.signal(each, handler)
        return code if code >= 0 else 128 - code

    def stop(self, held: Any = None) -> None:
        """The lock is lost: SIGTERM, and SIGKILL if that is not enough. Runs on a thread of its own."""
        self._lost.set()
        if self._group:
            self._terminate()
            if not self._ended.wait(self._grace):
                self._send(signal.SIGKILL)

    def _forward(self, number: int, frame: Any) -> None:
        if self._group:
            self._send(number)
        else:
            self._early.append(number)

    def _send(self, number: int) -> bool:
        """Send a signal to the whole group; whether there is one."""
        self._terminated = self._terminated or number == signal.SIGTERM
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS refuses where only zombies are left
            os.killpg(self._group, number)
            return True
        return False

    def _terminate(self) -> None:
        self._send(signal.SIGTERM)
        self._send(signal.SIGCONT)  # one that is stopped would not see it

    def _wait(self) -> int:
        """The command's exit code, negative for a signal."""
        while True:
            _, status = os.waitpid(self._group, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                return os.waitstatus_to_exitcode(status)
            self._stopped(os.WSTOPSIG(status))

    def _stopped(self, number: int) -> None:
        """The command has been stopped: for the terminal, which it gets if that is ours, or by Ctrl-Z, as we are then.

        The terminal stays with our own group until then, so that other commands of a pipeline can use it too.
        """
        if not self._terminal or number not in {signal.SIGTSTP, *ASKS_FOR_TERMINAL}:
            return  # somebody has paused it on purpose: the lock is renewed meanwhile
        own = os.getpgrp()
        if number == signal.SIGTSTP or self._terminal.group != own:
            if self._terminal.group == self._group:
                self._terminal.group = own
            os.kill(os.getpid(), signal.SIGSTOP)  # until the shell's `fg` or `bg`
        if self._terminal.group == own:
            self._terminal.group = self._group
        self._send(signal.SIGCONT)

    def _end_rest(self) -> None:
        """End the processes that the command has left behind: they would go on without the lock."""
        if self._terminal.group == self._group:
            self._terminal.group = os.getpgrp()
        if not self._terminated:
            self._terminate()
        deadline = time.monotonic() + self._grace
        while self._send(0) and time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):  # they are ours where we are process 1 of a container
                os.waitpid(-self._group, os.WNOHANG)
            time.sleep(POLL)
        self._send(signal.SIGKILL)


class Terminal:
    """The controlling terminal, false without one. Its keyboard belongs to one process group at a time."""

    def __init__(self) -> None:
        try:
            self._file = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
        except OSError:
            self._file = -1

    def __bool__(self) -> bool:
        return self._file >= 0

    @property
    def group(self) -> int:
        """The process group in the foreground; 0 where there is none."""
        try:
            return os.tcgetpgrp(self._file)
        except OSError:
            return 0

    @group.setter
    def group(self, group: int) -> None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})  # it stops those who are in the background
        try:
            with contextlib.suppress(OSError):
                os.tcsetpgrp(self._file, group)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def close(self) -> None:
        if self:
            os.close(self._file)
            self._file = -1


def _die_with_parent() -> Callable[[], None] | None:
    """For a child process before it runs its command: SIGKILL when we end, however that comes. On Linux only."""
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def before_exec() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it has ended already
            os._exit(1)

    return before_exec
