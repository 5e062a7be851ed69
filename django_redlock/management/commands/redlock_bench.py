"""``manage.py redlock_bench``: measure the configured stores from this machine."""

from __future__ import annotations

import secrets
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandParser

from ...backend_registry import locks
from ...backends.base import Backend
from ...errors import LockError
from ...inspection import explain
from ..base import StoreCommand, at_least

Measure = Callable[[Backend, int], Iterator[float]]
MAX_HAND_OVER_SECONDS = 10.0  # seconds, the longest wait for a hand-over, which should take milliseconds


def pairs(backend: Backend, rounds: int) -> Iterator[float]:
    """Acquire and release a lock ``rounds`` times without contention. Yield the seconds that each pair takes."""
    lock = backend.lock(f"redlock-bench:{secrets.token_hex(8)}", ttl=min(10.0, backend.max_ttl))
    for _ in range(rounds):
        start = time.perf_counter()
        with lock:
            pass
        yield time.perf_counter() - start


def hand_overs(backend: Backend, rounds: int) -> Iterator[float]:
    """Release a lock ``rounds`` times while a thread of this process waits for it.

    Yield the seconds from each release until the waiter has acquired the lock. Yield nothing for a store that grants
    every acquire.
    """
    name = f"redlock-bench:{secrets.token_hex(8)}"
    mine, other = backend.lock(name), backend.lock(name)
    for _ in range(rounds):
        got: list[float] = []

        def wait(got: list[float] = got) -> None:
            if other.acquire(timeout=MAX_HAND_OVER_SECONDS):
                got.append(time.perf_counter())
                other.release()

        with mine:
            if other.acquire(blocking=False):
                other.release()
                return  # a store that grants every acquire has no hand-over: the dummy backend
            waiter = threading.Thread(target=wait)
            waiter.start()
            deadline = time.monotonic() + MAX_HAND_OVER_SECONDS
            while not getattr(backend.describe(name), "waiters", 0) and time.monotonic() < deadline:
                time.sleep(0.001)
            released = time.perf_counter()
        waiter.join()
        if got:
            yield got[0] - released


MEASURES: dict[str, Measure] = {"acquire + release": pairs, "hand-over": hand_overs}


class Command(StoreCommand):
    help = "Measures the configured stores from this machine, with locks that no other program uses."
    epilog = "Exit code: 0, or 1 when a store could not be measured."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--rounds",
            type=at_least(1, int),
            default=500,
            metavar="N",
            help="acquires and releases (default: 500), and a fifth as many hand-overs",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        rows, failed = [], False
        for alias in self.aliases(options["using"]):
            for what, measure in MEASURES.items():
                rounds = max(2, options["rounds"] // (1 if measure is pairs else 5))
                try:
                    durations = list(self._with_progress(f"{alias} {what}", measure(locks[alias], rounds), rounds))
                except (LockError, ImproperlyConfigured) as error:
                    failed = True
                    self.stderr.write(self.style.ERROR(f"{alias}: {explain(error)}"))
                    break
                if len(durations) > 1:
                    rows.append(_row(alias, what, durations))
        if options["format"] == "json":
            self.print_json(rows)
        elif rows:
            cells = (
                (r["alias"], r["what"], r["rounds"], *(f"{r[p] * 1000:.3f} ms" for p in ("p50", "p99"))) for r in rows
            )
            self.print_table(("STORE", "WHAT", "ROUNDS", "P50", "P99"), cells)
        if failed:
            raise SystemExit(1)

    def _with_progress(self, label: str, durations: Iterator[float], rounds: int) -> Iterator[float]:
        """Yield each of ``durations``. If stderr is a terminal, also show a progress bar.

        ``rounds``: the number of durations at which the bar is full.
        """
        if not self.stderr.isatty():
            yield from durations
            return
        try:
            for number, seconds in enumerate(durations, 1):
                if number % max(1, rounds // 40) == 0:
                    done = 40 * number // rounds
                    self.stderr.write(f"{'█' * done}{'░' * (40 - done)} {label}", str, ending="\x1b[K\r")
                    self.stderr.flush()
                yield seconds
        finally:
            self.stderr.write("\x1b[K", str, ending="")
            self.stderr.flush()


def _row(alias: str, what: str, durations: list[float]) -> dict[str, Any]:
    percentiles = statistics.quantiles(durations, n=100, method="inclusive")
    return {"alias": alias, "what": what, "rounds": len(durations), "p50": percentiles[49], "p99": percentiles[98]}
