"""The scripts of requests with an idempotency key: idempotent_begin, idempotent_finish."""

from unittest.mock import ANY

import pytest

from tests.scripts.conftest import OTHER, OWNER, RESERVED, TOKEN

ANSWERED = [0, 0, ANY, b"answer", 0, b"done"]


@pytest.fixture
def begin(call, keys):
    """`begin()`: run idempotent_begin with TOKEN."""
    where = keys.lock, keys.lock + b":answer"
    return lambda token=TOKEN: call("idempotent_begin", where, token, OWNER, b"10000", b"f", b"60000", b"refuse")


@pytest.fixture
def finish(call, keys):
    """`finish()`: run idempotent_finish with TOKEN."""
    where = keys.lock, keys.lock + b":answer"
    return lambda answer=b"done", token=TOKEN: call("idempotent_finish", where, token, b"120000", answer, b"f")


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
    assert begin(OTHER) == ANSWERED


def test_finish_out_of_memory(begin, finish, full):
    """An answer is stored on a server that is out of memory."""
    begin()
    with full():
        assert finish() == 1
    assert begin(OTHER) == ANSWERED
