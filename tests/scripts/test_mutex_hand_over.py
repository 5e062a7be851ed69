"""mutex_hand_over.lua and mutex_set_owner.lua"""

import pytest

from tests.scripts.conftest import OTHER, OWNER, TOKEN, VALUE

NEXT = b'{"host":"here","thread":"next"}'
FOREIGN = b"c" * 24 + b"00000000"


@pytest.fixture
def hand_over(call, keys):
    """`hand_over()`: from TOKEN to OTHER."""

    def run(ttl=b"10000", fencing=b"0", token=OTHER, holder=TOKEN):
        return call("mutex_hand_over", (keys.lock, keys.fence), token, NEXT, ttl, fencing, holder)

    return run


def test_hands_over(hand_over, redis, keys):
    """The next holds it, for the time that it asked for; the answer is the server's time."""
    redis.set(keys.lock, VALUE, px=500)
    before = redis.time()
    answer = hand_over()
    assert redis.get(keys.lock) == OTHER + b" " + NEXT
    assert 9000 < redis.pttl(keys.lock) <= 10000
    assert before[0] * 10**6 + before[1] <= answer


def test_again(hand_over, redis, keys, dump):
    """The same request sent twice is granted twice."""
    redis.set(keys.lock, VALUE, px=500)
    assert hand_over() > 1
    state = dump()
    assert hand_over() > 1
    assert dump() == state


@pytest.mark.parametrize(("value", "answer"), [(None, 0), (FOREIGN + b" x", -1)], ids=["free", "another's"])
def test_not_held(hand_over, redis, keys, dump, value, answer):
    """What isn't held by the one who hands it over stays as it is."""
    if value:
        redis.set(keys.lock, value)
    state = dump()
    assert hand_over() == answer
    assert dump() == state


def test_fencing(hand_over, redis, keys):
    """With fencing the number is larger than the last, whatever the clock says, and remembered."""
    redis.set(keys.lock, VALUE, px=500)
    redis.set(keys.fence, b"9000000000000000")
    granted, fence, _ = hand_over(fencing=b"1")
    assert (granted, fence) == (1, 9000000000000001)
    assert redis.get(keys.fence) == b"9000000000000001"


def test_tells(call, redis, keys):
    """The owner is replaced and the lease renewed; the token stays."""
    redis.set(keys.lock, VALUE, px=500)
    assert call("mutex_set_owner", (keys.lock,), TOKEN, b"10000", NEXT) == 1
    assert redis.get(keys.lock) == TOKEN + b" " + NEXT
    assert 9000 < redis.pttl(keys.lock) <= 10000


def test_tells_out_of_memory(call, redis, keys, full):
    """It is told, and the lease renewed, on a server that is full, too."""
    redis.set(keys.lock, VALUE, px=500)
    with full():
        assert call("mutex_set_owner", (keys.lock,), TOKEN, b"10000", NEXT) == 1
    assert 9000 < redis.pttl(keys.lock) <= 10000


@pytest.mark.parametrize(("value", "answer"), [(None, 0), (OTHER + b" " + OWNER, -1)], ids=["free", "another's"])
def test_tells_nobody(call, redis, keys, dump, value, answer):
    """Of what another holds nothing is said."""
    if value:
        redis.set(keys.lock, value)
    state = dump()
    assert call("mutex_set_owner", (keys.lock,), TOKEN, b"10000", NEXT) == answer
    assert dump() == state
