"""Waiters in a fair queue, in processes that live, die or are stopped."""

import pytest

from tests.locks.workers import backend_on, hold
from tests.support.processes import ForkedWorker
from tests.support.service import poll

PATIENCE = 60
SOON = 15  # seconds: less than any lease, and more than any wait for a silent waiter


@pytest.fixture
def one(redis_server):
    return [redis_server.url]


@pytest.fixture
def holds(start, unique):
    """`holds(places, side, **options)`: a process that acquires the lock and holds it until told."""
    return lambda places, side, **options: start(ForkedWorker(hold, places, unique, side, options))


@pytest.fixture
def waits(holds, unique):
    """`waits(places, side, waiters, **options)`: such a process, once it is the last of so many waiters."""

    def begin(places, side, waiters, **options):
        process, store = holds(places, side, **options), backend_on(places)
        process.expect("asks", PATIENCE)
        poll(lambda: store.describe(unique).waiters == waiters, timeout=PATIENCE, what=f"{waiters} in line")
        return process

    return begin


def test_dead_waiters_in_the_queue(one, holds, waits):
    """When several waiters in a fair queue have died, the next live one gets the lock soon."""
    first = holds(one, "fair")
    first.expect("holds", PATIENCE)
    dead = [waits(one, "fair", number) for number in (1, 2, 3)]
    living = waits(one, "fair", 4)
    for process in dead:
        process.kill()
    first.tell("release")
    living.expect("holds", SOON)


def test_stopped_waiter_in_the_queue(one, holds, waits, unique):
    """A stopped waiter in a fair queue is passed over, and keeps its place before later waiters when it continues."""
    first = holds(one, "fair")
    first.expect("holds", PATIENCE)
    stopped, second, third = (waits(one, "fair", number, block=4) for number in (1, 2, 3))
    stopped.pause()
    first.tell("release")
    second.expect("holds", SOON)
    stopped.resume()
    store = backend_on(one)
    poll(lambda: store.describe(unique).waiters == 2, timeout=PATIENCE, what="its return")
    second.tell("release")
    stopped.expect("holds", SOON)
    stopped.tell("release")
    third.expect("holds", SOON)


@pytest.mark.parametrize("end", ["kill", "pause"])
def test_dead_writer_in_the_queue(places, holds, waits, end):
    """A queued writer that has died or is stopped does not block readers."""
    reader = holds(places, "read")
    reader.expect("holds", PATIENCE)
    writer = waits(places, "write", 1)
    getattr(writer, end)()
    late = holds(places, "read")
    late.expect("asks", PATIENCE)
    late.expect("holds", SOON)


def test_dead_reader(places, holds, waits):
    """A writer gets the lock when the lease of a dead reader has ended."""
    dead = holds(places, "read", ttl=1)
    dead.expect("holds", PATIENCE)
    living = holds(places, "read")
    living.expect("holds", PATIENCE)
    writer = waits(places, "write", 1)
    dead.kill()
    living.tell("release")
    writer.expect("holds", PATIENCE)
