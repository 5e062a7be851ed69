"""A server whose replies don't fit the scripts: no lock, and a clear error."""

import contextlib
import re
import socket
import threading

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.backends.replica import ReplicaBackend
from django_redlock.errors import LockError, LockUnavailable
from django_redlock.history import last_hour
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT

# To every request the same, as many times as there are commands in it.
ANSWERS = [
    b"+PONG\r\n",
    b":1\r\n",
    b":0\r\n",
    b":-7\r\n",
    b":x\r\n",
    b"$-1\r\n",
    b"$5\r\nhello\r\n",
    b"$1\r\n\x01\r\n",
    b"*0\r\n",
    b"*-1\r\n",
    b"*x\r\n",
    b"*1\r\n:1\r\n",
    b"*3\r\n:1\r\n$1\r\nx\r\n:5\r\n",
    b"*4\r\n:0\r\n$1\r\n5\r\n:5\r\n$2\r\n{}\r\n",
    b"*4\r\n:0\r\n:5\r\n:5\r\n:5\r\n",
    b"*1\r\n:2\r\n",
    b"*3\r\n:9\r\n:9\r\n:9\r\n",
    b"*1\r\n*0\r\n",
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
]


def talk(connection, text):
    with connection, contextlib.suppress(OSError):
        while request := connection.recv(65536):
            connection.sendall(text * len(re.findall(rb"\*\d+\r\n\$", request)))


@pytest.fixture(params=ANSWERS, ids=repr)
def url(request):
    """The URL of a server that sends this reply to every request."""

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=talk, args=[connection, request.param], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(TEST_TIMEOUT)


BACKENDS = {
    "one": RedisBackend,
    "guarded": lambda url: RedisBackend(url, quarantine=True),
    "quorum": lambda url: RedlockBackend([url, f"{url}/", f"{url}/0"], quarantine=False),
    "replicas": ReplicaBackend,
}


@pytest.mark.parametrize("make", BACKENDS.values(), ids=BACKENDS)
def test_an_unreadable_reply_grants_nothing(url, make, client_of):
    """A nonsensical reply grants nothing and raises LockUnavailable with its cause."""
    client = client_of(make(url))
    locks = [client.lock("x"), client.lock("x", fencing=True), client.semaphore("x", limit=2)]
    for lock in (*locks, client.multilock(["x", "y"]), client.striped("x", 2)):
        for how in ((False,), (True, 0.2)):
            with pytest.raises(LockUnavailable) as caught:
                lock.acquire(*how)
            assert caught.value.__cause__ is not None
            assert lock.token is None
    for ask in (
        client.held,
        lambda: client.describe("x"),
        lambda: client.force_release("x"),
        lambda: last_hour(client.backend),
    ):
        with contextlib.suppress(LockError):  # and nothing else
            ask()
    assert not any(row["ok"] for row in client.health())
