"""A TCP proxy that does to connections, on command, what networks do to them."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from enum import StrEnum
from typing import Self

from testproject.redis_server import free_port

TIMEOUT = 5  # seconds for any command: each does next to nothing


class Way(StrEnum):
    """The two directions; commands take these or their plain names."""

    REQUESTS = "requests"
    REPLIES = "replies"


class _Link:
    """One client's connection, and ours to the server on its behalf."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.server: socket.socket | None = None
        self.lossy: set[Way] = set()  # bytes are missing there, so no others may follow: in TCP they never would
        self.doomed: threading.Event | None = None  # its next reply is swallowed, and this set
        self.over = False

    def hang_up(self) -> None:
        """Wake whoever reads; the sockets themselves are closed by their thread."""
        self.over = True
        for end in filter(None, (self.client, self.server)):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Proxy:
    """Stands before the server of a URL (anything with `127.0.0.1:<port>` in it); `.url` leads to it through the proxy.

    Commands can be given from any thread, and hold from the next bytes on, until `restore()`.
    """

    def __init__(self, url: str) -> None:
        self.port = free_port(self)
        self.url = re.sub(r"(?<=127\.0\.0\.1:)\d+", str(self.port), url)
        self.target = _port(url)
        self.accepted = 0  # connections so far
        self.bytes = dict.fromkeys(Way, 0)  # what came in, whatever became of it
        self._dropped: set[Way] = set()
        self._held: set[Way] = set()
        self._delay = 0.0
        self._drip = 0.0
        self._to_lose: list[tuple[bytes, threading.Event]] = []
        self._listener: socket.socket | None = None
        self._links: set[_Link] = set()
        self._changed = threading.Condition()  # guards all of the above

    @property
    def connections(self) -> int:
        """How many are open now."""
        return len(self._links)

    def drop(self, *ways: str) -> None:
        """Swallow `"requests"`, `"replies"` or (by default) both, and all of new connections; nobody is told."""
        with self._changed:
            self._dropped = set(map(Way, ways or Way))

    def hold(self, *ways: str) -> None:
        """Keep requests, replies or both back, until `restore()` delivers them, however late."""
        with self._changed:
            self._held = set(map(Way, ways or Way))

    def delay(self, seconds: float) -> None:
        """Let everything come that much later, in each direction."""
        with self._changed:
            self._delay = seconds

    def drip(self, seconds: float) -> None:
        """Let replies come byte by byte, each that much later than the one before."""
        with self._changed:
            self._drip = seconds

    def refuse(self) -> None:
        """Refuse new connections (ECONNREFUSED); those that are open stay."""
        with self._changed:
            listener, self._listener = self._listener, None
        if listener:
            listener.shutdown(socket.SHUT_RDWR)  # wakes accept(), which close() alone does not
            listener.close()

    def cut(self) -> None:
        """Close all connections, on both sides."""
        with self._changed:
            self._hang_up(set(self._links))

    def lose_next_reply(self, matching: bytes = b"") -> threading.Event:
        """Forward the next request that contains these bytes, swallow its reply, close that connection.

        A second call is about the one after that. The event is set once the server has replied and nobody heard.
        Requests that share a connection with others under way would lose theirs as well.
        """
        lost = threading.Event()
        with self._changed:
            self._to_lose.append((matching, lost))
        return lost

    def retarget(self, url: str) -> None:
        """Lead to another server from now on; open connections are closed."""
        self.target = _port(url)
        self.cut()

    def restore(self) -> None:
        """Back to normal: what was held is delivered, connections that lost bytes are closed, new ones are welcome."""
        with self._changed:
            self._dropped, self._held, self._to_lose = set(), set(), []
            self._delay = self._drip = 0.0
            if self._listener is None:
                self._listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
                threading.Thread(target=self._accept, args=[self._listener], daemon=True).start()
            self._hang_up({link for link in self._links if link.lossy})

    def close(self) -> None:
        """Refuse and cut: no socket and no thread is left."""
        self.refuse()
        self.cut()

    def __enter__(self) -> Self:
        self.restore()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _hang_up(self, links: set[_Link]) -> None:
        for link in links:
            link.hang_up()
        self._changed.notify_all()
        if not self._changed.wait_for(lambda: links.isdisjoint(self._links), TIMEOUT):
            raise TimeoutError("connections of the proxy do not end")

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # refuse() ends it
            while True:
                link = _Link(listener.accept()[0])
                with self._changed:
                    self.accepted += 1
                    self._links.add(link)
                    if self._dropped:  # the server must not hear of it, now or later
                        link.lossy = set(Way)
                    if self._listener is not listener:
                        link.hang_up()
                threading.Thread(target=self._serve, args=[link], daemon=True).start()

    def _serve(self, link: _Link) -> None:
        """One connection, from its beginning to its end."""
        with link.client, contextlib.suppress(OSError):
            if link.lossy:
                self._carry(link, Way.REQUESTS, link.client, link.client)
            else:
                with socket.create_connection(("127.0.0.1", self.target), TIMEOUT) as server:
                    self._connect(link, server)
        with self._changed:
            self._links.discard(link)
            self._changed.notify_all()

    def _connect(self, link: _Link, server: socket.socket) -> None:
        server.settimeout(None)
        for end in (link.client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._changed:
            link.server = server
            if link.over:
                return
        replies = threading.Thread(target=self._carry, args=[link, Way.REPLIES, server, link.client], daemon=True)
        replies.start()
        self._carry(link, Way.REQUESTS, link.client, server)
        replies.join()

    def _carry(self, link: _Link, way: Way, source: socket.socket, sink: socket.socket) -> None:
        """Everything that comes from one side; its end is passed on as well, when it is not dropped."""
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                pieces = [data[place : place + 1] for place in range(len(data))] if self._drips(way) else [data]
                for piece in pieces:
                    if self._may_pass(link, way, piece):
                        sink.sendall(piece)
        self._may_pass(link, way, b"")
        with self._changed:
            self._changed.wait_for(lambda: link.over or way not in link.lossy)
            link.hang_up()
            self._changed.notify_all()

    def _drips(self, way: Way) -> bool:
        return bool(self._drip) and way is Way.REPLIES

    def _may_pass(self, link: _Link, way: Way, data: bytes) -> bool:
        """Waits as long as it must; then whether these bytes (none: the end) go on."""
        with self._changed:
            self.bytes[way] += len(data)
            if pause := self._delay + (self._drip if self._drips(way) else 0):
                self._changed.wait_for(lambda: link.over or not (self._delay or self._drip), pause)
            self._changed.wait_for(lambda: link.over or way not in self._held)
            if way in self._dropped:
                link.lossy.add(way)
            if way in link.lossy or not data:
                return False
            if way is Way.REQUESTS and self._to_lose and self._to_lose[0][0] in data:
                link.doomed = self._to_lose.pop(0)[1]
            elif way is Way.REPLIES and link.doomed:
                link.doomed.set()
                link.hang_up()
                return False
            return True


def _port(url: str) -> int:
    if found := re.search(r"127\.0\.0\.1:(\d+)", url):
        return int(found[1])
    raise ValueError(f"no 127.0.0.1:<port> in {url!r}")
