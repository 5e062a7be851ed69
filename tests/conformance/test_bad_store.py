"""A Redis that does not serve, or has a foreign value: a clear error in bounded time, never "taken"."""

import contextlib
import socket
import threading
import time

import pytest
from redis.exceptions import ResponseError

from django_redlock.errors import LockError, LockUnavailable
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from django_redlock.testing.conformance.harness.fixtures import eventually, until_someone_waits
from tests.conformance.broken_servers import OwnRedis

SOON = 8  # seconds, where the node timeout is a quarter of one: not a hang


@contextlib.contextmanager
def unavailable(match=None):
    """LockUnavailable, soon, with its cause."""
    start = time.monotonic()
    with pytest.raises(LockUnavailable, match=match) as caught:
        yield caught
    assert time.monotonic() - start < SOON
    assert caught.value.__cause__ is not None
    assert caught.value.__cause__ in caught.value.errors.values()
    assert isinstance(caught.value, ConnectionError)


class TestDown(OwnRedis):
    """Nobody answers."""

    def test_from_the_beginning(self, server, client, name):
        """A Redis that is not there: whatever is asked of it, also by one who would wait for ever."""
        server.stop()
        lock = client.lock(name)
        for ask in (
            lock.acquire,
            lambda: lock.acquire(False),
            lambda: lock.acquire(timeout=60),
            lock.locked,
            lock.owned,
        ):
            with unavailable("Error 111"):
                ask()
        with unavailable("Error 111"), lock:
            raise AssertionError("the block was entered")
        for ask in (client.held, lambda: client.describe(name), lambda: client.force_release(name)):
            with unavailable():
                ask()
        assert [row["ok"] for row in client.health()] == [False]
        assert lock.token is None

    def test_list(self, server, client):
        """What can't be listed is said by the pattern that was asked for, not by that of the keys."""
        server.kill()
        with pytest.raises(LockUnavailable) as caught:
            client.held("stock:*")
        assert caught.value.name == "stock:*"

    def test_comes_back(self, server, client, name):
        """Once it is there again the same handle works, with no further ado."""
        server.stop()
        lock = client.lock(name)
        with unavailable():
            lock.acquire()
        server.start()
        with lock:
            lock.check()

    def test_while_held(self, server, client, name):
        """extend() says that nobody answers, and the lease is good for as long as it was; so says release()."""
        lock = client.lock(name)
        lock.acquire()
        server.kill()
        with unavailable():
            lock.extend()
        lock.check()
        assert lock.remaining > 20
        with unavailable():
            lock.release()
        assert lock.token is None

    def test_at_the_end_of_a_block(self, server, client, name, caplog):
        """A block that ended well under a valid lease ends well: that the lock lives on for its ttl is in the log."""
        with client.lock(name):
            server.kill()
        assert name in caplog.text

    def test_body_fails_as_well(self, server, client, name):
        """The body's own error is not hidden."""
        with pytest.raises(ZeroDivisionError), client.lock(name):  # noqa: PT012
            server.kill()
            1 / 0  # noqa: B018


class TestCutOff(OwnRedis):
    """It runs, and can't be reached for a while."""

    @pytest.fixture
    def url(self, proxy):
        return proxy.url

    def test_freed_when_it_is_back(self, proxy, client, other, name):
        """What could not be released is released in the background, as soon as that can be."""
        lock = client.lock(name)
        lock.acquire()
        proxy.refuse()
        proxy.cut()
        with unavailable():
            lock.release()
        proxy.restore()
        assert other.lock(name).acquire(timeout=SOON)

    @pytest.mark.parametrize("connected", [False, True], ids=["new-connection", "old-connection"])
    def test_grant_that_nobody_heard_of(self, proxy, client, other, name, connected):
        """When the reply comes too late, or never, the grant is undone."""
        if connected:
            client.lock(name).locked()
        proxy.hold("replies")
        with unavailable():
            client.lock(name).acquire()
        proxy.restore()
        assert other.lock(name).acquire(timeout=SOON), "a lock that nobody owns"

    @pytest.mark.parametrize("connected", [False, True], ids=["new-connection", "old-connection"])
    def test_answers_byte_by_byte(self, proxy, client, other, name, connected):
        """An answer of which a little comes now and then is none when the time is up."""
        if connected:
            client.lock(name).locked()
        proxy.drip(0.1)  # 2 s for a grant
        lock = client.lock(name)
        for ask in (lock.acquire, lock.locked, client.held):
            with unavailable("no answer in time"):
                ask()
        assert [row["ok"] for row in client.health()] == [False]
        proxy.restore()
        assert other.lock(name).acquire(timeout=SOON), "a lock that nobody owns"

    def test_far_away(self, proxy, new_client, name):
        """What a new connection is asked first has the node timeout for each answer, not for all of them."""
        client = new_client(node_timeout=1)
        proxy.delay(0.3)
        with client.lock(name, ttl=20) as lock:
            assert lock.remaining > 10

    def test_lost_reply_on_a_new_connection(self, proxy, client, other, name):
        """When a connection breaks before the reply, the lock is had, or it is free: never in between."""
        lost = proxy.lose_next_reply(name.encode())
        lock = client.lock(name)
        with contextlib.suppress(LockUnavailable):
            lock.acquire()
        assert lost.wait(SOON)
        if lock.token is None:
            assert other.lock(name).acquire(timeout=SOON), "a lock that nobody owns"
        else:
            assert lock.owned()


class TestHung(OwnRedis):
    """The connection stands, and nobody answers."""

    @pytest.fixture(autouse=True)
    def runs_on(self, server):
        yield
        server.resume()

    @pytest.mark.parametrize("connected", [False, True], ids=["new-connection", "old-connection"])
    def test_acquire(self, server, client, other, name, connected):
        """LockUnavailable after the node timeout; what the server grants when it wakes up is not left behind."""
        if connected:
            client.lock(name).locked()
        server.pause()
        with unavailable():
            client.lock(name).acquire()
        server.resume()
        assert other.lock(name).acquire(timeout=SOON), "a lock that nobody owns"

    def test_while_waiting(self, server, client, other, name, spawn):
        """One who waits is told when the lease that was in the way has ended, and the server has not said so."""
        client.lock(name, ttl=1, auto_renew=False).acquire()
        waiting = spawn(other.lock(name).acquire)
        until_someone_waits(client, name)
        server.pause()
        with unavailable():
            waiting.result(TEST_TIMEOUT)
        server.resume()
        assert client.lock(name).acquire(timeout=SOON), "a lock that nobody owns"

    def test_while_held(self, server, new_client, name):
        """A lease that can't be renewed is lost when it ends, and its holder is told."""
        told = threading.Event()
        lock = new_client().lock(name, ttl=0.6, on_lost=lambda _: told.set())
        lock.acquire()
        server.pause()
        assert told.wait(SOON)
        assert lock.lost

    def test_for_a_moment(self, server, new_client, other, name):
        """A server that hangs for less than the lease is a server that answered late: the lock is kept."""
        lock = new_client().lock(name, ttl=4.5)
        lock.acquire()
        start = time.monotonic()
        server.pause()
        while time.monotonic() < start + 1.7:  # the first renewal, after 1.5 s, is in vain
            with unavailable():
                other.lock(name).acquire()
        server.resume()
        assert eventually(lambda: time.monotonic() > start + 4.5 or lock.lost)
        assert lock.lost is False
        assert not other.lock(name).acquire(False)


class TestUnwilling(OwnRedis):
    """It answers, and takes no locks."""

    def test_read_only(self, server, client, name):
        """A replica takes none, and says so; when it is promoted it does."""
        with server.client() as admin:
            admin.replicaof("127.0.0.1", 1)
            with unavailable("read.?only"):
                client.lock(name).acquire()
            admin.replicaof("NO", "ONE")
        assert client.lock(name).acquire()

    def test_out_of_memory(self, server, client, other, name):
        """A full server grants nothing, and says why; what is held can be extended and released."""
        held = client.lock(name)
        held.acquire()
        with server.client() as admin:
            admin.config_set("maxmemory", 1)
        with unavailable("memory"):
            other.lock(name + "another").acquire()
        held.extend()
        held.release()
        assert not held.locked()

    def test_busy(self, server, client, name):
        """A server that runs a long script for somebody else is one that does not answer."""
        client.lock(name).locked()
        busy = socket.create_connection(("127.0.0.1", server.port))
        with busy, server.client() as admin:
            admin.config_set(
                "busy-reply-threshold" if "7" in admin.info()["redis_version"][:1] else "lua-time-limit", 1
            )
            loop = b"while true do end"
            busy.sendall(b"*3\r\n$4\r\nEVAL\r\n$%d\r\n%b\r\n$1\r\n0\r\n" % (len(loop), loop))
            with unavailable():
                client.lock(name).acquire()
            assert eventually(lambda: kill_script(admin) or answers(admin))
            assert eventually(lambda: answers(admin))
        assert client.lock(name).acquire(timeout=SOON)

    @pytest.mark.parametrize("command", ["rpush", "sadd"])
    def test_wrong_type(self, server, client, name, command):
        """A key that holds something else is a LockError that says so, not one of the store; the key stays as it is."""
        with server.client() as admin:
            key = f"redlock:{{{name}}}"
            admin.execute_command(command, key, "theirs")
            before = admin.dump(key)
            with pytest.raises(LockError, match="WRONGTYPE") as caught:
                client.lock(name).acquire()
            assert not isinstance(caught.value, LockUnavailable)
            assert caught.value.__cause__ is not None
            assert admin.dump(key) == before


def kill_script(admin):
    with contextlib.suppress(ResponseError):
        return admin.script_kill()
    return False


def answers(admin):
    with contextlib.suppress(ResponseError):
        return admin.ping()
    return False


class WithPassword(OwnRedis):
    """A server that requires a password."""

    login = ""

    @pytest.fixture
    def server(self, own_redis):
        return own_redis("--requirepass", "open sesame")

    @pytest.fixture
    def url(self, server):
        return server.url.replace("://", f"://{self.login}")


class TestWithoutPassword(WithPassword):
    def test_acquire(self, client, name):
        """No password: LockUnavailable, with what Redis says."""
        with unavailable("password"):
            client.lock(name).acquire()


class TestWrongPassword(WithPassword):
    login = "somebody:mellon@"

    def test_acquire(self, client, name):
        """A wrong one: the same, and what was tried is not told."""
        with unavailable("invalid username-password") as caught:
            client.lock(name).acquire()
        assert "mellon" not in str(caught.value)


class TestRightPassword(WithPassword):
    login = ":open%20sesame@"

    def test_acquire(self, client, name):
        """The right one, in the URL."""
        with client.lock(name) as lock:
            lock.check()


def answering(text):
    """A server that is not Redis: it sends a text to each client, and closes the connection."""

    def serve(listener):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.sendall(text)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(4096):
                        pass

    @contextlib.contextmanager
    def running():
        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=serve, args=[listener])
            thread.start()
            yield listener.getsockname()[1]
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(TEST_TIMEOUT)

    return running()


class TestNoRedis(OwnRedis):
    """Something else listens there."""

    @pytest.fixture(params=[b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\0\1\2\3", b"+OK"], ids=repr)
    def url(self, request):
        with answering(request.param) as port:
            yield f"redis://127.0.0.1:{port}/0"

    def test_acquire(self, client, name):
        """Whatever it says, it is no lock."""
        with unavailable():
            client.lock(name).acquire()


class TestNobodyKnows(OwnRedis):
    """Nobody who could say which server it is can be asked."""

    @pytest.fixture(params=["redis+cluster://127.0.0.1:1,127.0.0.1:2", "redis+sentinel://127.0.0.1:1/locks/0"])
    def url(self, request):
        return request.param

    def test_whatever_is_asked(self, client, name):
        """That is a store which can't be asked, too."""
        lock = client.lock(name)
        for ask in (lambda: lock.acquire(False), lock.locked, client.held, lambda: client.force_release(name)):
            with unavailable():
                ask()
        assert [row["ok"] for row in client.health()] == [False]
