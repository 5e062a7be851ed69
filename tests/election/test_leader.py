"""Candidates of one process, blocking and on event loops: who leads, and when the lead ends."""

import asyncio
import threading
import time

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.backends.redis import RedisBackend
from django_redlock.errors import LockLost, LockNotHeld
from django_redlock.testing.conformance.harness.fixtures import in_child
from tests.support.service import poll


def test_another_follows(candidate, backend, unique):
    """When the leader ends, its ``on_lost`` is called and the other candidate leads with a larger fencing token."""
    first = candidate(backend, unique)
    first.expect("elected")
    second = candidate(backend, unique)
    poll(lambda: backend.describe(unique).waiters, timeout=30, what="the second candidate")
    token = first.leader.fencing_token
    assert (first.leader.leading, second.leader.leading) == (True, False)
    first.leader.check()
    with pytest.raises(LockNotHeld):
        second.leader.check()
    first.end()
    first.expect("lost")
    second.expect("elected")
    assert second.leader.fencing_token > token
    assert (first.leader.leading, first.leader.fencing_token, first.leader.remaining) == (False, None, 0)


def test_end_while_standing(candidate, backend, unique):
    leading, standing = candidate(backend, unique), candidate(backend, unique)
    poll(lambda: leading.leader.leading or standing.leader.leading, timeout=30, what="a leader")
    if standing.leader.leading:
        leading, standing = standing, leading
    poll(lambda: backend.describe(unique).waiters, timeout=30, what="the other candidate")
    standing.end()
    assert standing.quiet()
    assert not backend.describe(unique).waiters
    assert leading.leader.leading


def test_released_by_force(candidate, backend, unique):
    """A leader whose lock was released by force calls ``on_lost`` at its next renewal, and stands again."""
    one = candidate(backend, unique, ttl=6)
    one.expect("elected")
    backend.force_release(unique)
    one.expect("lost")
    one.expect("elected")
    one.leader.check()


def test_on_lost_before_the_lease_ends(candidate, own_redis, unique):
    """If the store no longer replies, ``on_lost`` is called before the lease ends; later the candidate leads again."""
    server = own_redis()
    one = candidate(RedisBackend(server.url, node_timeout=0.5), unique, ttl=10, stop_before=5)
    one.expect("elected")
    server.pause()
    one.expect("lost")
    assert 0 < one.remaining[0] <= 5
    with pytest.raises(LockLost):
        one.leader.check()
    server.resume()
    one.expect("elected")


def test_server_that_restarts(candidate, own_redis, unique):
    """After a restart of the server without data two candidates agree on one leader again."""
    server = own_redis()
    backend = RedisBackend(server.url, node_timeout=1)
    both = [candidate(backend, unique, ttl=3, stop_before=1) for _ in range(2)]
    poll(lambda: any(each.leader.leading for each in both), timeout=30, what="a leader")
    server.kill()
    poll(lambda: not any(each.leader.leading for each in both), timeout=30, what="the end of the term")
    server.start()
    poll(lambda: any(each.leader.leading for each in both), timeout=30, what="a leader")
    assert not all(each.leader.leading for each in both)


def test_late_renewal(candidate, unique):
    """A term that has ended stays ended, even if the lease is extended afterwards."""
    ahead, checked = 0.0, threading.Event()
    one = candidate(LocMemBackend(unique, clock=lambda: time.monotonic() + ahead), unique)
    one.on_lost = lambda _: checked.wait(30)
    one.expect("elected")
    ahead = 21.0  # the lease has 9 of 30 s left, and stop_before is 10
    assert not one.leader.leading
    ahead = 0.0
    assert not one.leader.leading
    checked.set()
    one.expect("lost")
    one.expect("elected")
    assert one.leader.leading


def test_on_elected_that_raises(candidate, backend, unique):
    """An exception in ``on_elected`` ends the lead, and another candidate leads."""
    first = candidate(backend, unique, on_elected=int)  # raises TypeError for a leader
    second = candidate(backend, unique, on_elected=int)
    for each in (first, second):
        each.expect("elected")
        each.expect("lost")


def test_on_lost_that_raises(candidate, backend, unique, caplog):
    first = candidate(backend, unique)
    first.expect("elected")
    first.on_lost = int
    first.end()
    assert f"on_lost of leader {unique!r} failed" in caplog.text
    assert backend.describe(unique) is None


def test_on_elected_that_does_the_work(backend, unique):
    """``on_elected`` may run as long as it leads. The lock is released after it has returned."""
    seen, begun = [], threading.Event()

    def work(leader):
        begun.set()
        while leader.leading:
            time.sleep(0.01)
        seen.append(backend.describe(unique) is not None)

    with backend.leader(unique, work):
        assert begun.wait(30)
    assert seen == [True]
    assert backend.describe(unique) is None


async def test_coroutine_is_cancelled(backend, unique):
    seen, begun = [], asyncio.Event()

    async def work(_leader):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append((await backend.adescribe(unique)) is not None)

    async with backend.leader(unique, work):
        async with asyncio.timeout(30):
            await begun.wait()
    assert seen == [True]
    assert await backend.adescribe(unique) is None
    await backend.aclose()


async def test_loop_that_ends(backend, unique):
    told = []
    leader = backend.leader(unique, on_lost=lambda _: told.append("lost"))
    async with leader:
        assert await leader.await_(30)
        (task,) = [each for each in asyncio.all_tasks() if each.get_name().startswith("redlock-leader")]
        task.cancel()
        await asyncio.wait({task})
        assert told == ["lost"]
        assert await backend.adescribe(unique) is None
    await backend.aclose()


def test_wait(backend, unique):
    """``wait()`` returns whether the candidate leads, after the timeout at the latest."""
    first, second = backend.leader(unique), backend.leader(unique)
    with first:
        assert first.wait()
        with second:
            assert not second.wait(0.01)
            assert repr(second) == f"<standing Leader name={unique!r}>"
    with pytest.raises(RuntimeError, match="within its `with` block"):
        first.wait()


def test_wait_ends_with_the_block(backend, unique):
    with backend.lock(unique):
        candidate, results = backend.leader(unique), []
        with candidate:
            waiting = threading.Thread(target=lambda: results.append(candidate.wait()))
            waiting.start()
            poll(lambda: candidate._events, timeout=30, what="the waiting thread")
        waiting.join(30)
    assert results == [False]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork(backend, unique):
    """A forked child of the leader does not lead, and calls nothing when it leaves the block."""
    told = []
    with backend.leader(unique, on_lost=lambda _: told.append("lost")) as leader:
        assert leader.wait(30)

        def child():
            leader.__exit__(None, None, None)
            with pytest.raises(LockNotHeld):
                leader.check()
            return leader.leading, leader.fencing_token, told

        assert in_child(child) == (False, None, [])
        assert leader.leading


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"on_elected": "work"}, TypeError, "on_elected must be a callable"),
        ({"on_lost": 1}, TypeError, "on_lost must be a callable"),
        ({"ttl": 10, "stop_before": 6}, ValueError, r"at most half of the ttl \(5 s\), not 6"),
        ({"stop_before": 0}, ValueError, "stop_before"),
        ({"stop_before": -1}, ValueError, "stop_before"),
        ({"ttl": 0}, ValueError, "ttl"),
        ({"tll": 10}, TypeError, "tll"),
    ],
)
def test_bad_input(options, error, text):
    with pytest.raises(error, match=text):
        LocMemBackend().leader("x", **options)


def test_bad_places(unique):
    """`with` on an event loop, a coroutine function in a thread, and a second `with` of a candidate are refused."""

    async def work(leader):
        with pytest.raises(RuntimeError, match="async with"), leader:
            pass

    asyncio.run(work(LocMemBackend().leader("x")))
    with pytest.raises(TypeError, match="async with"), LocMemBackend().leader("x", work):
        pass
    with LocMemBackend(unique).leader("x") as leader, pytest.raises(RuntimeError, match="stands already"):
        leader.__enter__()
