"""The scripts of requests with an idempotency key: idempotent_begin, idempotent_finish."""

from unittest.mock import ANY

import pytest

from tests.scripts.conftest import OTHER, OWNER, RESERVED, TOKEN


def known(reason, answer=b""):
    return [0, 0, ANY, reason, 0, answer]


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


def test_reserved(begin, finish, redis, keys):
    """A lock that is reserved for a waiter is free."""
    redis.set(keys.lock, RESERVED)
    assert begin() > 1
    redis.set(keys.lock, RESERVED)
    assert finish() == 1


def test_repeated_requests(begin, finish, dump):
    """The same request is granted again, and leaves the same state."""
    for ask in begin, finish:
        assert ask() >= 1
        state = dump()
        assert ask() >= 1
        assert dump() == state


@pytest.mark.parametrize("prefix", [TOKEN, TOKEN[:16]], ids=["token", "all attempts"])
def test_forgetting_keeps_an_answer(begin, finish, prefix):
    """A late cancellation does not remove an answer."""
    begin()
    finish()
    assert finish(b"", prefix) == 1
    assert begin(OTHER) == known(b"answer", b"done")


def test_finish_out_of_memory(begin, finish, full):
    """An answer is stored on a server that is out of memory."""
    begin()
    with full():
        assert finish() == 1
    assert begin(OTHER) == known(b"answer", b"done")
