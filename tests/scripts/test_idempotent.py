"""The scripts of requests with an idempotency key: idempotent_begin, idempotent_finish."""

import pytest

from tests.scripts.conftest import OTHER, OWNER, RESERVED, TOKEN, VALUE

KNOWN = 9


@pytest.fixture
def record(keys):
    return keys.lock + b":answer"


@pytest.fixture
def begin(call, keys, record):
    """`begin()`: run idempotent_begin with TOKEN."""

    def run(token=TOKEN, fingerprint=b"f", keep=b"60000", in_doubt=b"refuse"):
        return call("idempotent_begin", (keys.lock, record), token, OWNER, b"10000", fingerprint, keep, in_doubt)

    return run


@pytest.fixture
def finish(call, keys, record):
    """`finish()`: run idempotent_finish with TOKEN."""

    def run(answer=b"done", token=TOKEN):
        return call("idempotent_finish", (keys.lock, record), token, b"120000", answer, b"f")

    return run


def test_begins(begin, redis, keys, record):
    """The lock is a mutex with a lease, the record outlives it, and the reply is the server's time."""
    seconds, micros = redis.time()
    assert begin() >= seconds * 10**6 + micros
    assert redis.get(keys.lock) == VALUE
    assert 3000 < redis.pttl(keys.lock) <= 10000
    assert redis.hgetall(record) == {b"fingerprint": b"f", b"token": TOKEN}
    assert 50000 < redis.pttl(record) <= 60000


def test_reserved(begin, finish, redis, keys):
    """A lock that is reserved for a waiter is free."""
    redis.set(keys.lock, RESERVED)
    assert begin() > 1
    redis.set(keys.lock, RESERVED)
    assert finish() == 1


def test_begins_again(begin, dump):
    """The same request is granted again."""
    assert begin() > 1
    state = dump()
    assert begin() > 1
    assert dump() == state


def test_another_runs(begin, dump):
    """While another request runs, the reply has its remaining lease and owner."""
    begin(OTHER)
    state = dump()
    refused, left, _, owner = begin()
    assert (refused, owner) == (0, OWNER)
    assert 3000 < left <= 10000
    assert dump() == state


def test_another_fingerprint(begin, finish):
    """Another fingerprint under the key is a mismatch, both during the first request and afterwards."""
    begin()
    assert begin(OTHER, b"g") == [KNOWN, b"mismatch", b""]
    finish()
    assert begin(OTHER, b"g") == [KNOWN, b"mismatch", b""]


def test_answered(begin, finish, redis, keys, record):
    """The answer is stored with its ttl, and the lock is free."""
    begin()
    assert finish(b"\x00 answer") == 1
    assert redis.get(keys.lock) is None
    assert 100000 < redis.pttl(record) <= 120000
    assert begin(OTHER) == [KNOWN, b"answer", b"\x00 answer"]


def test_forgotten(begin, finish, dump):
    """Without an answer nothing is left."""
    begin()
    assert finish(b"") == 1
    assert dump() == {}


@pytest.mark.parametrize("prefix", [TOKEN, TOKEN[:16]], ids=["token", "all attempts"])
def test_forgetting_keeps_an_answer(begin, finish, prefix):
    """A late cancellation does not remove an answer."""
    begin()
    finish()
    assert finish(b"", prefix) == 1
    assert begin(OTHER) == [KNOWN, b"answer", b"done"]


def test_in_doubt(begin, redis, keys):
    """A record without a lock and an answer is in doubt: another request is refused or runs, as the option says."""
    begin()
    redis.delete(keys.lock)
    assert begin(OTHER) == [KNOWN, b"in_doubt", b""]
    assert begin(OTHER, in_doubt=b"run") > 1
    assert begin()[0] == 0


def test_finish_without_the_lock(begin, finish, redis, keys):
    """The answer is stored even if the lease has ended."""
    begin()
    redis.delete(keys.lock)
    assert finish() == 1
    assert begin(OTHER) == [KNOWN, b"answer", b"done"]


@pytest.mark.parametrize("with_lock", [True, False])
def test_finish_without_the_record(begin, finish, redis, keys, record, with_lock):
    """The answer is stored even if the record has expired."""
    begin()
    redis.delete(record, *([] if with_lock else [keys.lock]))
    assert finish() == 1
    assert begin(OTHER, fingerprint=b"g") == [KNOWN, b"mismatch", b""]
    assert begin(OTHER) == [KNOWN, b"answer", b"done"]


def test_finish_after_another_has_begun(begin, finish, redis, keys, dump):
    """The answer of a replaced request is not stored, and the lock of the other one stays."""
    begin()
    redis.delete(keys.lock)
    begin(OTHER, in_doubt=b"run")
    state = dump()
    assert finish() == 0
    assert finish(b"") == 0
    assert dump() == state


def test_finish_twice(begin, finish, dump):
    """The same request leaves the same state."""
    begin()
    finish()
    state = dump()
    assert finish() == 1
    assert dump() == state


def test_finish_out_of_memory(begin, finish, full):
    """An answer is stored on a server that is out of memory."""
    begin()
    with full():
        assert finish() == 1
    assert begin(OTHER) == [KNOWN, b"answer", b"done"]
