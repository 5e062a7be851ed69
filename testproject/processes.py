"""Child processes that never outlive their parent.

Each child has its own session, so that Ctrl-C reaches only the parent, which then stops the children in order. Each
child has a watchdog, so that even `kill -9` of the parent leaves nothing running.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


class Child:
    """A child process with its own process group. `output` is the file for its stdout and stderr.

    `start` starts the process, with the arguments and the result of `subprocess.Popen`.
    """

    # The shell reads from a pipe whose other end only the parent has, so it sees end-of-file when the parent is gone.
    # PR_SET_PDEATHSIG would be shorter, but it also fires when the *thread* that started the child ends.
    WATCHDOG = 'read _; kill -KILL "-$0" 2>/dev/null'

    def __init__(
        self,
        command: Sequence[str],
        *,
        output: Path,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        start: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen,
    ) -> None:
        self.output = output
        with output.open("ab") as sink:
            self.process = start(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                start_new_session=True,
                pass_fds=pass_fds,
            )
        self.pid = self.process.pid
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", self.WATCHDOG, str(self.pid)], stdin=subprocess.PIPE, start_new_session=True
        )

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self.process.poll() is None

    def signal(self, number: int) -> None:
        """Send a signal to the process, not to its group."""
        self.process.send_signal(number)

    def stop(self, timeout: float = 10) -> None:
        """Send SIGTERM and wait up to `timeout` seconds, then kill the rest of the process group."""
        if self.alive:
            self.signal(signal.SIGCONT)  # a paused process would not receive the SIGTERM
            self.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout)
        self.kill()

    def kill(self) -> None:
        """Kill the whole process group (SIGKILL). All its processes have ended when this returns."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, 0)  # raises if the process was alone
            wait_for_end(running_processes(group=self.pid))
        self._watchdog.kill()
        self._watchdog.communicate()

    def log(self, characters: int = 2000) -> str:
        """Returns the last `characters` characters of the child's output."""
        return self.output.read_text(errors="replace")[-characters:]


def running_processes(*, parent: int | None = None, group: int | None = None) -> list[int]:
    """Returns the ids of the running processes with this parent or process group; none without /proc."""
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            state, its_parent, its_group, *_ = each.read_text(errors="replace").rpartition(")")[2].split()
            if state not in "ZX" and (int(its_parent) == parent or int(its_group) == group):
                found.append(int(each.parent.name))
    return found


def wait_for_end(processes: Sequence[int], timeout: float = 20) -> None:
    """Wait until these processes, which have been killed, have ended."""
    deadline = time.monotonic() + timeout
    while left := [each for each in processes if _runs(each)]:
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes {left} do not end")
        time.sleep(0.01)


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(ready: Callable[[], bool], *, child: Child, timeout: float, what: str) -> None:
    """Poll `ready` until it returns true.

    Raises `RuntimeError` with the child's log when the child ended or is late. Kills the child after any error.
    """
    try:
        _wait_until(ready, child, timeout, what)
    except BaseException:
        child.kill()
        raise


def _wait_until(ready: Callable[[], bool], child: Child, timeout: float, what: str) -> None:
    deadline = time.monotonic() + timeout
    while not ready():
        if not child.alive or time.monotonic() > deadline:
            code = child.process.poll()
            ended = f"is not up after {timeout:g} s" if code is None else f"ended with code {code}"
            raise RuntimeError(f"{what} {ended}:\n{child.log()}")
        time.sleep(0.01)
