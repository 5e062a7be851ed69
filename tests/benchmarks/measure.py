"""Ratios that are stable on a busy machine: short interleaved rounds, one core, medians."""

import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

Side = Callable[[], Any]


class Row(NamedTuple):
    """A table line. ``bar``: the largest allowed value; with ``least`` the smallest. ``note``: absolute values."""

    what: str
    value: float
    bar: float | None = None
    unit: str = "x"
    least: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Return whether the bar is met; ``None`` without a bar."""
        if self.bar is None:
            return None
        return self.value >= self.bar if self.least else self.value <= self.bar


class Rounds(NamedTuple):
    """The p50 of one call in seconds, by side and round."""

    p50: Mapping[str, Sequence[float]]

    def ratio(self, side: str, base: str) -> float:
        """Return the median over the rounds of ``side / base``."""
        return statistics.median(one / other for one, other in zip(self.p50[side], self.p50[base], strict=True))

    def micros(self, side: str) -> float:
        """Return the median over the rounds, in µs."""
        return statistics.median(self.p50[side]) * 1e6

    def rows(self, base: str, bars: Mapping[str, float | None]) -> Iterator[Row]:
        """Yield a row for each side in ``bars``, as a ratio to ``base``, with its bar if there is one."""
        for side, bar in bars.items():
            note = f"{self.micros(side):.0f} µs, {base}: {self.micros(base):.0f} µs"
            yield Row(f"{side} / {base}", self.ratio(side, base), bar, note=note)


def timed(call: Side, times: int) -> list[float]:
    """Return the duration of each of so many calls in seconds."""
    clock, marks = time.perf_counter, []
    for _ in range(times):
        start = clock()
        call()
        marks.append(clock() - start)
    return marks


def interleaved(sides: Mapping[str, Side], rounds: int = 40, calls: int = 60) -> Rounds:
    """Measure the sides in turn, ``rounds`` times ``calls`` calls, each time beginning with another side."""
    names, p50 = list(sides), {name: list[float]() for name in sides}
    for side in sides.values():
        timed(side, calls)  # connections, scripts, caches
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            p50[name].append(statistics.median(timed(sides[name], calls)))
    return Rounds(p50)


class Spent(NamedTuple):
    """Seconds for each call: by the clock, of the client's CPU, and of the servers' CPU."""

    clock: float
    client: float
    server: float


def spent(call: Side, times: int, admins: Sequence[Any]) -> Spent:
    """Return the cost of one of so many calls. ``admins``: a client of each server that the calls use."""
    server, clock, client = sum(map(server_cpu, admins)), time.perf_counter(), time.process_time()
    for _ in range(times):
        call()
    clock, client = time.perf_counter() - clock, time.process_time() - client
    return Spent(clock / times, client / times, (sum(map(server_cpu, admins)) - server) / times)


def spent_ratio(sides: Mapping[str, Sequence[Spent]], side: str, base: str, field: str) -> tuple[float, str]:
    """Return the median over the rounds of ``side / base``, and both medians in µs as a note."""
    ours, other = ([getattr(each, field) for each in sides[name]] for name in (side, base))
    ratio = statistics.median(one / another for one, another in zip(ours, other, strict=True))
    return ratio, f"{statistics.median(ours) * 1e6:.1f} µs, {statistics.median(other) * 1e6:.1f} µs"


@contextmanager
def one_core(another: bool = False) -> Iterator[None]:
    """Run this thread, and the processes that it starts meanwhile, on one core, or on ``another`` if there is one."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(_cores) if another else max(_cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


_cores = os.sched_getaffinity(0)


def server_cpu(admin: Any) -> float:
    """Return the seconds of CPU that the server has used, by INFO."""
    info = admin.info("cpu")
    return float(info["used_cpu_user"] + info["used_cpu_sys"])


def jain(shares: Iterable[float]) -> float:
    """Return Jain's fairness index: 1 when all shares are equal, 1/n when one of n has everything."""
    values = list(shares)
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))
