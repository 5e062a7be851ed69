"""The reader of replies agrees with redis-py's own parser, wherever the bytes are split."""

import socket
from types import SimpleNamespace

import pytest
import redis.cluster
from hypothesis import given, settings
from hypothesis import strategies as st
from redis._parsers import _RESP2Parser
from redis._parsers.base import BaseParser
from redis.exceptions import InvalidResponse, RedisError

from django_redlock.client.resp import INCOMPLETE, Reader, error_reply

# ── replies as bytes ─────────────────────────────────────────────────────────────────────────


def line(kind, text):
    return b"%b%b\r\n" % (kind, text)


def bulk(kind, text):
    return b"%b%d\r\n%b\r\n" % (kind, len(text), text)


def array(items):
    return b"*%d\r\n%b" % (len(items), b"".join(items))


WORD = st.binary(max_size=12).filter(lambda text: b"\r" not in text and b"\n" not in text)
CODES = b"ERR", b"NOSCRIPT", b"WRONGTYPE", b"READONLY", b"MOVED 3999 127.0.0.1:6381", b"ASK 1 [::1]:7000"
LEAVES = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(lambda number: line(b":", b"%d" % number)),
    WORD.map(lambda text: line(b"+", text)),
    st.sampled_from(CODES).map(lambda code: line(b"-", code if b":" in code else code + b" no \xff")),
    st.binary(max_size=40).map(lambda text: bulk(b"$", text)),
    st.integers(60_000, 140_000).map(lambda length: bulk(b"$", b"\r\n" * (length // 2))),
    st.sampled_from([b"$-1\r\n", b"*-1\r\n", b"*0\r\n", b"$0\r\n\r\n"]),
)
REPLIES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=5).map(array), max_leaves=8)


# ── both parsers ─────────────────────────────────────────────────────────────────────────────


def comparable(value):
    """Return ``value`` with each exception as its class and text, since two exceptions are never equal."""
    if isinstance(value, list):
        return [comparable(each) for each in value]
    return (type(value), str(value)) if isinstance(value, Exception) else value


class Parser(_RESP2Parser):
    # Before redis-py 7, only the parser of its cluster client knew the errors of a cluster.
    EXCEPTION_CLASSES = getattr(redis.cluster, "ClusterParser", BaseParser).EXCEPTION_CLASSES


def read_by_redis_py(data, count):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        theirs.settimeout(5)
        parser = Parser(65536)
        parser.on_connect(SimpleNamespace(_sock=theirs, socket_timeout=5, encoder=None))
        ours.settimeout(5)
        replies = []
        sent = 0
        while len(replies) < count:
            sent += ours.send(data[sent:])
            replies.append(comparable(parser.read_response(disable_decoding=True)))
        return replies


def read_by_us(pieces):
    reader, replies = Reader(), []
    for piece in pieces:
        reader.feed(piece)
        while (reply := reader.reply()) is not INCOMPLETE:
            replies.append(comparable(reply))
    return replies, reader


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_same_replies(data):
    """A stream in one piece, byte by byte, and in random pieces gives redis-py's replies."""
    encoded = data.draw(st.lists(REPLIES, min_size=1, max_size=4))
    stream = b"".join(encoded)
    expected = read_by_redis_py(stream, len(encoded))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    random_pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    small = len(stream) < 5_000
    for pieces in (
        [stream],
        random_pieces,
        [stream[index : index + 1] for index in range(len(stream))] if small else [stream[:1], stream[1:]],
    ):
        replies, reader = read_by_us(pieces)
        assert replies == expected
        assert not reader.unread


def test_error_that_cannot_be_parsed():
    """A redirection without an address is an error reply like any other."""
    assert isinstance(error_reply(b"MOVED nowhere"), RedisError)


@pytest.mark.parametrize(
    "stream",
    [b"HTTP/1.1 400 Bad Request\r\n", b"$x\r\n", b":one\r\n", b"*1\r\n?\r\n", b"%1\r\n+a\r\n:1\r\n"],
)
def test_no_reply(stream):
    """Bytes that are no reply raise redis-py's error, which shows them."""
    reader = Reader()
    reader.feed(stream)
    with pytest.raises(InvalidResponse, match="unexpected data"):
        reader.reply()
