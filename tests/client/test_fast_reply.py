"""The usual replies are read without the parser. Any other reply is left to the parser unchanged."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from django_redlock.client.fast_reply import read_numbers, read_usual, wait_readable
from django_redlock.client.request import CONFIRMED_BYTES

WOKEN = b"*2\r\n$1\r\nw\r\n$1\r\n1\r\n"
QUEUED, TIME = b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n", b"*2\r\n$10\r\n1700000000\r\n$2\r\n17\r\n"


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    with near, far:
        yield near, far


@pytest.mark.parametrize(
    ("text", "count", "prelude", "expected"),
    [
        (b":17\r\n", 1, b"", [17]),
        (b":-1\r\n:0\r\n:3\r\n", 3, b"", [-1, 0, 3]),
        (WOKEN + b":9\r\n", 1, WOKEN, [9]),
    ],
)
def test_integer_reply_is_read(ends, text, count, prelude, expected):
    """An expected integer reply is read and removed from the socket."""
    near, far = ends
    far.sendall(text)
    assert read_numbers(near, count, prelude) == expected
    assert not wait_readable(near, 0)


@pytest.mark.parametrize(
    ("text", "count", "prelude"),
    [
        (b":17", 1, b""),
        (b":17\r", 1, b""),
        (b":17\r\n", 2, b""),
        (b":17\r\n:18\r\n", 1, b""),
        (b":x\r\n", 1, b""),
        (b"-ERR no\r\n", 1, b""),
        (b"$2\r\n:1\r\n", 1, b""),
        (b"*-1\r\n:9\r\n", 1, WOKEN),
        (WOKEN, 1, WOKEN),
        (WOKEN + b"*2\r\n:0\r\n:1\r\n", 1, WOKEN),
    ],
)
def test_other_replies_are_left_to_the_parser(ends, text, count, prelude):
    """An unexpected, incomplete or longer reply stays in the socket for the parser."""
    near, far = ends
    far.sendall(text)
    assert read_numbers(near, count, prelude) is None
    assert near.recv(100) == text


@pytest.mark.parametrize(("text", "expected"), [(b"+OK", b"OK"), (b"$-1", None), (b"_", None)])
def test_reply_to_set(ends, text, expected):
    """The reply to SET NX is read and removed from the socket."""
    near, far = ends
    far.sendall(text + b"\r\n")
    assert read_usual(near, 1) == [expected]
    assert not wait_readable(near, 0)


@pytest.mark.parametrize(("text", "count"), [(b"+OK\r\n", 2), (b"+OK\r", 1), (b"-OOM\r\n", 1), (b"+OK\r\n:1\r\n", 1)])
def test_other_replies_to_set_are_left_to_the_parser(ends, text, count):
    """An unexpected or incomplete reply stays in the socket for the parser."""
    near, far = ends
    far.sendall(text)
    assert read_usual(near, count) is None
    assert near.recv(200) == text


def test_closed_connection_is_left_to_the_parser(ends):
    """A closed connection is left to the parser."""
    near, far = ends
    far.close()
    assert read_numbers(near, 1) is None
    assert read_usual(near, 1) is None


def test_socket_timeout_applies(ends):
    """The socket's timeout ends the wait for a reply."""
    near, _ = ends
    near.settimeout(0.01)
    with pytest.raises(TimeoutError):
        read_numbers(near, 1)


def test_wait_readable_with_a_socket_timeout(ends):
    """wait_readable() returns False for a socket with a timeout, for which a poll could not be trusted."""
    near, far = ends
    far.sendall(b":1\r\n")
    assert wait_readable(near, 5)
    near.settimeout(5)
    assert not wait_readable(near, 5)


def test_both_parts_of_a_reply_are_waited_for():
    """With a given length, both parts of a reply are waited for."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        with near, far:
            far.sendall(b":1700000000000000\r\n")
            later = threading.Timer(0.1, far.sendall, [b":1\r\n"])
            later.start()
            assert read_numbers(near, 2, least=CONFIRMED_BYTES) == [1700000000000000, 1]
            later.join()
