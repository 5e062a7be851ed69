"""Fixtures for tests of the queues: scripts whose wake-ups do not expire, and the queue in order."""

import pytest

from django_redlock.core.flow.scripts import script
from tests.scripts.conftest import OWNER, TOKEN, now

ANOTHER = b"c" * 16 + b"00000000"
# A wake-up expires after a second, within which a busy machine may not look at it.
KEEP = """
local ends = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  ends[#ends + 1] = {key, redis.call('PTTL', key)}
  redis.call('PERSIST', key)
end
return ends
"""


@pytest.fixture
def call(redis, keys):
    """`call(name, keys, *args)`: run that script. Its wake-ups do not expire."""
    kept = set()

    def run(name, where, *args):
        body = script(name)
        assert (len(where), len(args)) == (body.keys, body.args)
        both = redis.pipeline(transaction=False).eval(body.source, len(where), *where, *args)
        reply, ends = both.eval(KEEP, 0, keys.wake + b":*").execute()
        assert all(key in kept or 0 < left <= 1_000 for key, left in ends)
        kept.update(key for key, _ in ends)
        return reply

    return run


@pytest.fixture
def fair(call, keys):
    """`fair(token, wait, …)`: run fair_acquire."""

    def run(token=TOKEN, wait=0, ttl=10_000, fencing=0, order=2):
        return call("fair_acquire", (keys.lock, keys.waiters, keys.fence), token, OWNER, ttl, fencing, wait, order)

    return run


@pytest.fixture
def rw(call, keys):
    """`rw(mode, token, wait, …)`: run rw_acquire. Each token belongs to another holder."""

    def run(mode, token=TOKEN, wait=0, ttl=10_000, fencing=0, order=2, holder=None):
        args = token, OWNER, ttl, fencing, wait, order, mode, holder or token[:1]
        return call("rw_acquire", (keys.lock, keys.waiters, keys.fence), *args)

    return run


@pytest.fixture
def release(call, keys):
    """`release(script, token, keep)`: run a release script."""
    return lambda name, token=TOKEN, keep=0: call(name, (keys.lock,), token, keep)


@pytest.fixture
def woken(redis, keys):
    """`woken()`: the first letters of the tokens that have been woken since the last call."""

    def look():
        lists = sorted(redis.scan_iter(match=keys.wake + b":*"))
        redis.delete(*lists or ["-"])
        return b"".join(each.removeprefix(keys.wake + b":")[:1] for each in lists).decode()

    return look


@pytest.fixture
def line(redis, keys):
    """`line()`: the queue in order, each waiter as mode and first letter."""
    return lambda: [each[:1].decode() + each[2:3].decode() for each in redis.zrange(keys.lock + b":line", 0, -1)]


def lapse(redis, keys, token):
    """Let the waiter's entry expire."""
    redis.zadd(keys.waiters, {token[:16] + b" " + OWNER: now(redis) - 1})
