"""Fixtures for tests of the queues: the waiters that scripts name, and the queue in order."""

import pytest

from tests.scripts.conftest import OWNER, TOKEN, now

ANOTHER = b"c" * 16 + b"00000000"


@pytest.fixture
def named():
    """The ids of waiters that scripts have named, whom the caller must wake."""
    return []


@pytest.fixture
def call(call, named):
    """`call(name, keys, *args)`: run that script, which can use its KEYS only."""

    def run(name, keys, *args):
        reply = call(name, keys, *args)
        if name.endswith("release") and isinstance(reply, list):
            assert reply[0] == 1
            named.extend(reply[1:])
            return 1
        return reply

    return run


@pytest.fixture
def fair(call, keys):
    """`fair(token, wait, …)`: run fair_acquire."""

    def run(token=TOKEN, wait=0, ttl=10_000, order=2):
        return call("fair_acquire", keys.of_queue, token, OWNER, ttl, 0, wait, order)

    return run


@pytest.fixture
def rw(call, keys):
    """`rw(mode, token, wait, …)`: run rw_acquire. Each token belongs to another holder."""

    def run(mode, token=TOKEN, wait=0, ttl=10_000, order=2, holder=None):
        return call("rw_acquire", keys.of_queue, token, OWNER, ttl, 0, wait, order, mode, holder or token[:1])

    return run


@pytest.fixture
def release(call, keys):
    """`release(script, token, keep)`: run a release script."""
    return lambda name, token=TOKEN, keep=0: call(name, keys.of_queue, token, keep)


@pytest.fixture
def woken(named):
    """`woken()`: the first letters of the tokens that have been named since the last call."""

    def look():
        ids, named[:] = sorted(named), []
        return b"".join(each[:1] for each in ids).decode()

    return look


@pytest.fixture
def line(redis, keys):
    """`line()`: the queue in order, each waiter as mode and first letter."""
    return lambda: [each[:1].decode() + each[2:3].decode() for each in redis.zrange(keys.line, 0, -1)]


def lapse(redis, keys, token):
    """Let the waiter's entry expire."""
    redis.zadd(keys.waiters, {token[:16] + b" " + OWNER: now(redis) - 1})
