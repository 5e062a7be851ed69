"""The peers of the comparison: other libraries as their users call them, and code written by hand."""

import os
import select
import socket
from collections.abc import Callable, Sequence

import redis

from django_redlock.client.resp import encode_command

FREE = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"


def hand_written(client: redis.Redis) -> Callable[[], None]:
    """SET NX PX and EVALSHA through redis-py."""
    sha = client.script_load(FREE)

    def pair() -> None:
        token = os.urandom(16).hex()
        if not client.set("bench:hand", token, nx=True, px=30000):
            raise RuntimeError("taken")
        client.evalsha(sha, 1, "bench:hand", token)

    return pair


def redis_py(client: redis.Redis) -> Callable[[], None]:
    def pair() -> None:
        with client.lock("bench:redis-py", timeout=30):
            pass

    return pair


def python_redis_lock(client: redis.Redis) -> Callable[[], None]:
    import redis_lock

    def pair() -> None:
        with redis_lock.Lock(client, "bench:prl", expire=30):
            pass

    return pair


class Wire:
    """A bare socket to a Redis, for commands whose replies are one short line (or, for BLPOP, come at once)."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, *parts: bytes) -> bytes:
        self.sock.sendall(encode_command(*parts))
        return self.sock.recv(4096)


def bare_socket(port: int) -> Callable[[], None]:
    """The hand-written pair without a client library."""
    wire = Wire(port)
    sha = _loaded(wire)

    def pair() -> None:
        token = os.urandom(16).hex().encode()
        if wire.ask(b"SET", b"bench:bare", token, b"NX", b"PX", b"30000") != b"+OK\r\n":
            raise RuntimeError("taken")
        wire.ask(b"EVALSHA", sha, b"1", b"bench:bare", token)

    return pair


def _loaded(wire: Wire) -> bytes:
    return wire.ask(b"SCRIPT", b"LOAD", FREE.encode()).split(b"\r\n")[1]


def polled(ports: Sequence[int]) -> Callable[[], None]:
    """Hand-written Redlock: write to all sockets, poll until all have replied, and the same for the release."""
    wires = {wire.sock.fileno(): wire for wire in map(Wire, ports)}
    sha, *_ = [_loaded(wire) for wire in wires.values()]
    poll = select.poll()
    for number in wires:
        poll.register(number, select.POLLIN)

    def asked(command: bytes, wanted: bytes) -> int:
        for wire in wires.values():
            wire.sock.sendall(command)
        replies: list[bytes] = []
        while len(replies) < len(wires):
            replies += [wires[number].sock.recv(4096) for number, _ in poll.poll(1000)]
        return replies.count(wanted)

    def pair() -> None:
        token = os.urandom(16).hex().encode()
        if asked(encode_command(b"SET", b"bench:poll", token, b"NX", b"PX", b"30000"), b"+OK\r\n") <= len(wires) // 2:
            raise RuntimeError("no majority")
        asked(encode_command(b"EVALSHA", sha, b"1", b"bench:poll", token), b":1\r\n")

    return pair
