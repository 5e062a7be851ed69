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
        if self.bar is None:
            return None
        return self.value >= self.bar if self.least else self.value <= self.bar


class Results(dict[str, list[Any]]):
    """The measurements of each side, one for each round: named tuples of numbers, times in seconds."""

    def median(self, side: str, field: str) -> float:
        return statistics.median(getattr(each, field) for each in self[side])

    def ratio(self, side: str, base: str, field: str) -> float:
        pairs = zip(self[side], self[base], strict=True)
        return statistics.median(getattr(one, field) / getattr(other, field) for one, other in pairs)

    def row(self, what: str, side: str, base: str, field: str, bar: float | None = None, unit: str = "µs") -> Row:
        """Return a row with the ratio of ``side`` to ``base``. ``unit``: of the note, which has both medians."""
        scale = 1e6 if unit == "µs" else 1
        note = ", ".join(f"{self.median(each, field) * scale:.1f} {unit}" for each in (side, base))
        return Row(f"{what}{side} / {base}", self.ratio(side, base, field), bar, note=note)


def turns(sides: Mapping[str, Any], rounds: int) -> Iterator[tuple[int, str]]:
    """Yield the sides in turn, each round beginning with another, with the round's number: 0 is for warming up."""
    names = list(sides)
    for number in range(rounds + 1):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            yield number, name


def contest(sides: Mapping[str, Side], rounds: int, measured: Callable[[Side], Any]) -> Results:
    """Measure the sides in turn, after a round without a result: connections, scripts, caches."""
    results = Results({name: [] for name in sides})
    for number, name in turns(sides, rounds):
        outcome = measured(sides[name])
        if number:
            results[name].append(outcome)
    return results


class Timed(NamedTuple):
    p50: float


def timed(call: Side, times: int) -> Timed:
    clock, marks = time.perf_counter, []
    for _ in range(times):
        start = clock()
        call()
        marks.append(clock() - start)
    return Timed(statistics.median(marks))


class Spent(NamedTuple):
    """Seconds for each call: by the clock, of the client's CPU, and of the servers' CPU."""

    clock: float
    client: float
    server: float


@contextmanager
def spending(admins: Sequence[Any], calls: int | Callable[[], int]) -> Iterator[list[Spent]]:
    """A block of so many calls, whose cost is appended to the list at the end. ``admins``: a client of each server."""
    found: list[Spent] = []
    server, clock, client = sum(map(server_cpu, admins)), time.perf_counter(), time.process_time()
    yield found
    clock, client = time.perf_counter() - clock, time.process_time() - client
    server = sum(map(server_cpu, admins)) - server
    number = calls if isinstance(calls, int) else calls()
    found.append(Spent(clock / number, client / number, server / number))


def spent(call: Side, times: int, admins: Sequence[Any]) -> Spent:
    with spending(admins, times) as found:
        for _ in range(times):
            call()
    return found[0]


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
    info = admin.info("cpu")
    return float(info["used_cpu_user"] + info["used_cpu_sys"])


def jain(shares: Iterable[float]) -> float:
    """Return Jain's fairness index: 1 when all shares are equal, 1/n when one of n has everything."""
    values = list(shares)
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))
