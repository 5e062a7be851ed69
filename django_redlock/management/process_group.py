"""Runs a command in its own process group, so that signals reach all its processes and no process outlives it."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

if os.name != "posix":
    raise ImportError("redlock_run works on POSIX systems only: it needs process groups and their signals")

ASKS_FOR_TERMINAL = {signal.SIGTTIN, signal.SIGTTOU}  # stop a background process group that uses the terminal
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
ENDING = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT}  # ask a command to end; SIGHUP often means "reload"
FORWARDED = {*ENDING, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT}
POLL = 0.02  # seconds between two checks whether the group is empty
REAP_SECONDS = 1.0  # longest wait for the end of a command after SIGKILL
_libc = ctypes.CDLL(None)  # loaded here, because little is safe between fork and exec


class ProcessGroup:
    """A command in a process group of its own, with the processes that it starts.

    Processes that leave the group, such as daemons, are not included. ``grace``: seconds from SIGTERM to SIGKILL.
    ``ended_by_loss``: whether the loss of the lock has ended the command; false after a signal in `ENDING`.

    On Linux this process reaps the command's orphans, in any process group, because process 1 of a container may not
    reap orphans, or may be this process.
    """

    def __init__(self, command: Sequence[str], grace: float) -> None:
        self.command = command
        self._grace = grace
        self._terminal = Terminal()
        self._group = 0
        self._terminated = False
        self._asked_to_end = False
        self._begun = False
        self.ended_by_loss = False
        self._lost = threading.Event()
        self._ended = threading.Event()

    def run(self, environment: Mapping[str, str]) -> int:
        """Run the command until it ends. Signals to this process are forwarded to the command's process group.

        ``environment``: variables added to those of this process. Returns the exit code as a shell reports it, 128 + n
        after signal n. After `stop`, returns 143 (SIGTERM) without starting the command. Raises ``OSError`` when the
        command can't be started.
        """
        self._begun = True
        if self._lost.is_set():
            self.ended_by_loss = True
            self._ended.set()
            return 128 + signal.SIGTERM
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        try:
            with _arriving() as signals:
                with _taken(FORWARDED):
                    process = subprocess.Popen(
                        self.command,
                        env={**os.environ, **environment},
                        process_group=0,
                        preexec_fn=functools.partial(_die_with, os.getpid()),  # noqa: PLW1509  (it takes no mutex)
                    )
                    self._group = process.pid
                    if self._lost.is_set():  # the lock was lost before the process had started
                        threading.Thread(target=self.stop, daemon=True).start()
                    code = process.returncode = self._wait(signals)
                    lost = self._lost.is_set()
                    self._end_rest(signals)
                while select.select([signals], [], [], 0)[0]:  # a signal that came with the command's end
                    self._forward(signals)
                self.ended_by_loss = lost and not self._asked_to_end
        finally:
            self._ended.set()
            self._terminal.close()
        return code if code >= 0 else 128 - code

    def stop(self, held: Any = None, within: float | None = None) -> None:
        """Stop the command after the loss of the lock. Send SIGTERM and, after ``grace`` seconds, SIGKILL.

        Blocks until the command has ended or was killed, so it must run in another thread than `run`. ``held``: the
        lock, which ``on_lost`` passes; it is not used. ``within``: seconds after which SIGKILL is sent at the latest,
        whatever ``grace`` is.
        """
        self._lost.set()
        if not self._begun:
            return
        if within is not None:
            self._grace = min(self._grace, within)
        if self._group and not self._ended.is_set():
            self._terminate()
        if not self._ended.wait(self._grace):
            if self._group:
                self._send(signal.SIGKILL)
            self._ended.wait(REAP_SECONDS)

    def _forward(self, signals: int) -> None:
        """Wait until a signal has arrived, and forward it to the command's process group."""
        for number in os.read(signals, 4096):
            if number in FORWARDED:
                self._asked_to_end = self._asked_to_end or number in ENDING
                self._send(number)

    def _send(self, number: int) -> bool:
        """Send the signal ``number`` to the whole group; 0 sends none. Returns whether the group has a process."""
        self._terminated = self._terminated or number == signal.SIGTERM
        with contextlib.suppress(ProcessLookupError, PermissionError):  # PermissionError: zombies on macOS
            os.killpg(self._group, number)
            return True
        return False

    def _terminate(self) -> None:
        self._send(signal.SIGTERM)
        self._send(signal.SIGCONT)  # a stopped process handles SIGTERM only after SIGCONT

    def _wait(self, signals: int) -> int:
        """Wait until the command ends, and forward signals to its group. ``signals``: the result of `_arriving`.

        Returns the command's exit code, or minus the number of the signal that ended it.
        """
        while True:
            changed, status = os.waitpid(-1, os.WUNTRACED | os.WNOHANG)
            if not changed:
                self._forward(signals)
            elif changed != self._group:
                continue  # an orphan of the command
            elif not os.WIFSTOPPED(status):
                return os.waitstatus_to_exitcode(status)
            else:
                self._stopped(os.WSTOPSIG(status))

    def _stopped(self, number: int) -> None:
        """React when the signal ``number`` has stopped the command. SIGCONT to this process continues the command.

        - SIGTTIN, SIGTTOU: the command uses the terminal. It gets the terminal from this process, and continues. If a
          third process group has the terminal, this process stops, too.
        - SIGTSTP (Ctrl-Z): this process stops, too. Without a job-control shell, the command continues at once.
        - Any other signal, or no terminal: the command stays stopped, and the lock is renewed.
        """
        if not self._terminal or number not in {signal.SIGTSTP, *ASKS_FOR_TERMINAL}:
            return
        own = os.getpgrp()
        if number == signal.SIGTSTP or self._terminal.group != own:
            if self._terminal.group == self._group:
                self._terminal.group = own
            if number == signal.SIGTSTP:
                # The kernel drops an unhandled SIGTSTP where no shell could continue this process (`kubectl exec -it`).
                before = signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)  # stops this process until the shell's `fg` or `bg`
                signal.signal(number, before)
            else:
                os.kill(os.getpid(), signal.SIGSTOP)  # never dropped: the command would only ask for the terminal again
        if self._terminal.group == own:
            self._terminal.group = self._group
        self._send(signal.SIGCONT)

    def _end_rest(self, signals: int) -> None:
        """End the processes that the command has left running, because they would continue without the lock.

        Sends SIGTERM and, after ``grace`` seconds, SIGKILL.
        """
        if self._terminal.group == self._group:
            self._terminal.group = os.getpgrp()
        if not self._terminated:
            self._terminate()
        deadline = time.monotonic() + self._grace
        while self._send(0) and time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:  # a zombie counts as a process of the group
                    pass
            if select.select([signals], [], [], POLL)[0]:
                self._forward(signals)
        self._send(signal.SIGKILL)


@contextlib.contextmanager
def _arriving() -> Iterator[int]:
    """Context manager with a pipe from which the numbers of arriving signals are read (the self-pipe trick).

    Without it, a signal that arrives just before a blocking ``waitpid()`` would be noticed only at the command's end.
    """
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    before = signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    try:
        yield readable
    finally:
        signal.set_wakeup_fd(before)
        os.close(readable)
        os.close(writable)


@contextlib.contextmanager
def _taken(signals: Collection[int]) -> Iterator[None]:
    """Context manager in which ``signals`` and SIGCHLD only write to the pipe of `_arriving`.

    Ignored ``signals``, as under nohup, stay ignored. An ignored SIGCHLD would hide the end of the command.
    """
    taken = [signal.SIGCHLD, *(each for each in signals if signal.getsignal(each) is not signal.SIG_IGN)]
    before = {each: signal.signal(each, lambda *_: None) for each in taken}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


class Terminal:
    """The controlling terminal of this process; false if the process has no terminal.

    Only one process group at a time, the foreground group, can read from the terminal.
    """

    def __init__(self) -> None:
        try:
            self._file = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
        except OSError:
            self._file = -1

    def __bool__(self) -> bool:
        return self._file >= 0

    @property
    def group(self) -> int:
        """The id of the foreground process group; 0 without a terminal. Setting it gives the terminal to that group."""
        try:
            return os.tcgetpgrp(self._file)
        except OSError:
            return 0

    @group.setter
    def group(self, group: int) -> None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})  # SIGTTOU stops a background group
        try:
            with contextlib.suppress(OSError):
                os.tcsetpgrp(self._file, group)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def close(self) -> None:
        if self:
            os.close(self._file)
            self._file = -1


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        _libc.prctl(option, value, 0, 0, 0)


def _die_with(parent: int) -> None:
    """Make the kernel kill this process, the future command, when the process ``parent`` ends. Linux only."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before prctl()
        os._exit(1)
