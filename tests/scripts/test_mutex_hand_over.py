"""mutex_hand_over.lua"""

import pytest

from tests.scripts.conftest import OTHER, RESERVED, TOKEN, VALUE

NEXT = b'{"host":"here","thread":"next"}'
FOREIGN = b"c" * 16 + b"00000000"


@pytest.fixture
def hand_over(call, keys):
    """`hand_over()`: run mutex_hand_over from TOKEN to OTHER."""

    def run(ttl=b"10000", fencing=b"0", token=OTHER, holder=TOKEN):
        return call("mutex_hand_over", (keys.lock, keys.fence), token, NEXT, ttl, fencing, holder)

    return run


def test_hands_over(hand_over, redis, keys):
    """The next holder has the lock for its own ttl, and the reply is the server's time."""
    redis.set(keys.lock, VALUE, px=5_000)
    before = redis.time()
    answer = hand_over()
    assert redis.get(keys.lock) == OTHER + b" " + NEXT
    assert 5000 < redis.pttl(keys.lock) <= 10000
    assert before[0] * 10**6 + before[1] <= answer


def test_repeated(hand_over, redis, keys, dump):
    """The same request is granted again."""
    redis.set(keys.lock, VALUE, px=5_000)
    assert hand_over() > 1
    state = dump()
    assert hand_over() > 1
    assert dump() == state


def test_late_repetition(hand_over, redis, keys):
    """A repeated request that arrives after an extension does not shorten the lease. The first request may."""
    redis.set(keys.lock, VALUE, px=60_000)
    assert hand_over() > 1
    assert redis.pttl(keys.lock) <= 10_000
    redis.pexpire(keys.lock, 60_000)
    assert hand_over() > 1
    assert redis.pttl(keys.lock) > 30_000


@pytest.mark.parametrize(
    ("value", "answer"), [(None, 0), (RESERVED, 0), (FOREIGN + b" x", -1)], ids=["free", "reserved", "another's"]
)
def test_not_held(hand_over, redis, keys, dump, value, answer):
    """A lock of another holder, and a free lock, stay as they are."""
    if value:
        redis.set(keys.lock, value)
    state = dump()
    assert hand_over() == answer
    assert dump() == state


def test_fencing(hand_over, redis, keys):
    """With fencing the token is larger than the last one, and is stored."""
    redis.set(keys.lock, VALUE, px=5_000)
    redis.set(keys.fence, b"9000000000000000")
    granted, fence, _ = hand_over(fencing=b"1")
    assert (granted, fence) == (1, 9000000000000001)
    assert redis.get(keys.fence) == b"9000000000000001"
