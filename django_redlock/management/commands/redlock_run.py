"""``manage.py redlock_run NAME -- COMMAND``: run a command under a lock, as flock(1) does.

With ``--leader``, the command runs while this process is the elected leader.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from django.core.management.base import CommandParser

from ...backend_registry import locks
from ...core.election.leader import Leader
from ...core.owner import Owner
from ...errors import LockError, LockLost, LockNotAcquired, LockUnavailable
from ...formatting import printable, state_of
from ..base import MISUSED, LockCommand, add_duration, misused
from ..process_group import ProcessGroup
from ..single import STORE_DOWN, already_running, ended_in_order

NOT_GOT, LOST, NOT_EXECUTABLE, NOT_FOUND = 75, 70, 126, 127  # 70 and 75: as in sysexits.h
GRACE = 10.0  # seconds


class CommandLine(CommandParser):
    """A parser that passes everything behind the first ``--`` to COMMAND.

    argparse alone would also drop a second ``--``, inside COMMAND.
    """

    def parse_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        given = list(args or ())
        end = given.index("--") if "--" in given else len(given)
        parsed: Any = super().parse_args(given[:end], namespace)
        parsed.command += given[end + 1 :]
        return parsed


class Command(LockCommand):
    help = "Runs a command while holding a lock: redlock_run NAME -- COMMAND [ARGUMENT …]"
    epilog = f"""The command finds the lock's name in REDLOCK_NAME and its fencing token in REDLOCK_FENCING_TOKEN.
Signals are forwarded to the command and to the processes that it has started. Processes that the
command leaves behind are ended.
With --leader the command is started when this process is elected, stopped when the lead is lost, and started again.

Exit code: the command's; 128 + n when signal n ended it; {NOT_GOT} the lock has another holder (0 with
--skip-if-locked); {STORE_DOWN} the store is unavailable; {LOST} the lock was lost while the command ran;
{NOT_EXECUTABLE}, {NOT_FOUND} the command can't be executed, is not found; {MISUSED} a wrong option or name, or wrong
settings: it was not run."""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.__class__ = CommandLine  # Django always creates a `CommandParser`
        parser.add_argument("name", metavar="NAME")
        parser.add_argument("command", nargs="*", metavar="COMMAND", help="after --, with its arguments")
        parser.add_argument("--using", default="default", metavar="ALIAS", help="store (default: 'default')")
        add_duration(parser, "--timeout", "longest wait for the lock, such as 90s or 15m (default: no limit)")
        parser.add_argument(
            "--skip-if-locked", action="store_true", help="don't wait, and exit with 0 if the lock is held"
        )
        parser.add_argument(
            "--leader", action="store_true", help="stand for election: run COMMAND while leading, as often as elected"
        )
        add_duration(parser, "--every", "start at most once in this time, such as 23h; doesn't wait without --timeout")
        add_duration(parser, "--ttl", "the lease, which is renewed while the command runs")
        parser.add_argument(
            "--on-lost", choices=("kill", "warn"), default="kill", help="if the lock is lost (default: kill)"
        )
        add_duration(parser, "--grace", f"pause from SIGTERM to SIGKILL (default: {GRACE:g} s)")

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["command"]:
            raise misused("no command: redlock_run NAME -- COMMAND")
        if options["skip_if_locked"] and options["timeout"]:
            raise misused("--skip-if-locked does not wait: it can't be combined with --timeout")
        every = options["every"] is not None
        if options["leader"] and (every or options["skip_if_locked"] or options["on_lost"] == "warn"):
            raise misused("--leader can't be combined with --every, --skip-if-locked and --on-lost warn")
        with ended_in_order():
            raise SystemExit((self._lead if options["leader"] else self._run)(**options))

    def _run(self, *, name: str, command: list[str], skip_if_locked: bool, **options: Any) -> int:
        child = ProcessGroup(command, GRACE if options["grace"] is None else options["grace"])
        go_on = f"lock {name!r} was lost; {command[0]} continues"
        try:
            store = locks[options["using"]]
            held = store.lock(
                name,
                ttl=options["ttl"],
                auto_renew=True,
                blocking_timeout=_longest_wait(skip_if_locked, options["timeout"], options["every"]),
                every=options["every"],
                fencing=store.has_fencing,
                owner={"command": " ".join(command)[:200]},
                on_lost=("raise", child.stop) if options["on_lost"] == "kill" else lambda _: self._complain(go_on),
            )
        except (ValueError, LockError) as error:
            raise misused(error) from error
        try:
            with held:
                return self._run_child(child, name, held.fencing_token)
        except LockNotAcquired as error:
            return 0 if skip_if_locked else self._complain(_refusal(error), NOT_GOT)
        except LockLost:
            return self._complain(f"lock {name!r} was lost while {command[0]} ran", LOST)
        except LockError as error:
            return self._complain(str(error), STORE_DOWN if isinstance(error, LockUnavailable) else NOT_GOT)

    def _lead(self, *, name: str, command: list[str], using: str, timeout: float | None, **options: Any) -> int:
        running: list[ProcessGroup] = []  # the command of this term

        def stop(candidate: Leader) -> None:
            # If the lease has ended already, an early SIGKILL protects nothing. The command gets the whole grace.
            left = candidate.remaining
            for child in running:
                child.stop(within=max(0.0, left - margin) if left else None)

        try:
            store = locks[using]
            ttl = store.ttl if options["ttl"] is None else store.check_ttl(options["ttl"])
            margin = min(1.0, ttl / 10)  # seconds between SIGKILL and the end of the lease
            grace = min(GRACE, ttl / 2 - margin) if options["grace"] is None else options["grace"]
            if grace > ttl / 2 - margin:
                raise misused(f"--grace is at most {ttl / 2 - margin:g} s with --leader and a ttl of {ttl:g} s")
            owner = {"command": " ".join(command)[:200]}
            candidate = store.leader(name, on_lost=stop, ttl=ttl, stop_before=grace + margin, owner=owner)
        except (ValueError, LockError) as error:
            raise misused(error) from error
        with candidate:
            while candidate.wait(timeout):
                timeout = None
                token, child = candidate.fencing_token, ProcessGroup(command, grace)
                running[:] = [child]  # from here on, `stop` stops this command or keeps it from starting
                if candidate.leading and candidate.fencing_token == token:
                    code = self._run_child(child, name, token)
                    if not child.ended_by_loss:
                        running.clear()
                        return code
        try:
            holder = store.describe(name)
        except LockUnavailable as error:
            return self._complain(str(error), STORE_DOWN)
        return self._complain(f"{name!r} is led by {holder.owner if holder else 'another'}", NOT_GOT)

    def _run_child(self, child: ProcessGroup, name: str, fencing_token: int | None) -> int:
        try:
            return child.run({"REDLOCK_NAME": name, "REDLOCK_FENCING_TOKEN": str(fencing_token)})
        except OSError as error:
            code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
            return self._complain(f"{child.command[0]}: {error.strerror}", code)

    def _complain(self, text: str, code: int = 0) -> int:
        self.stderr.write(self.style.ERROR(printable(text)))  # the text may have the holder's label
        return code


def _longest_wait(skip_if_locked: bool, timeout: float | None, every: float | None) -> float:
    """Return the seconds to wait for the lock. With ``--every``, the default is 0: don't wait for the next period."""
    if skip_if_locked or (every and timeout is None):
        return 0.0
    return threading.TIMEOUT_MAX if timeout is None else timeout


def _refusal(error: LockNotAcquired) -> str:
    """Return a text with the holder of the lock or, with ``--every``, the time until the command may start again."""
    owner = error.holder or Owner()
    done = state_of(owner) == "done"
    return f"lock {error.name!r}: {already_running(owner, error.retry_after)}" if done else str(error)
