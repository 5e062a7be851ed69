"""A TCP proxy that imitates network faults on command."""

import contextlib
import re
import socket
import threading
from enum import StrEnum
from typing import Self

from testproject.redis_server import free_port

TIMEOUT = 30  # seconds for any command, all of which are short unless the machine is busy


class Way(StrEnum):
    """The directions of the traffic. Commands accept the members or their plain values."""

    REQUESTS = "requests"
    REPLIES = "replies"


class _Link:
    """A client's connection to the proxy and the proxy's connection to the server."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.server: socket.socket | None = None
        self.lossy: set[Way] = set()  # directions in which bytes are missing: no later bytes may follow, as in TCP
        self.doomed: threading.Event | None = None  # set when the next reply has been swallowed
        self.over = False

    def hang_up(self) -> None:
        self.over = True
        for end in filter(None, (self.client, self.server)):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Proxy:
    """A proxy in front of the server of a URL, which must contain `127.0.0.1:<port>`. `url` leads through the proxy.
    Commands can be given from any thread. They apply to the following bytes, until `restore()`.
    """

    def __init__(self, url: str) -> None:
        self.port = free_port(self)
        self.url = re.sub(r"(?<=127\.0\.0\.1:)\d+", str(self.port), url)
        self.target = _port(url)
        self.accepted = 0  # number of connections accepted
        self.bytes = dict.fromkeys(Way, 0)  # bytes received, whether or not they were forwarded
        self._dropped: set[Way] = set()
        self._held: set[Way] = set()
        self._delay = 0.0
        self._drip = 0.0
        self._to_lose: list[tuple[bytes, threading.Event]] = []
        self._listener: socket.socket | None = None
        self._links: set[_Link] = set()
        self._changed = threading.Condition()  # guards all attributes above

    @property
    def connections(self) -> int:
        return len(self._links)

    def drop(self, *ways: str) -> None:
        """Swallow `"requests"`, `"replies"` or (by default) both, also on new connections. Connections stay open."""
        with self._changed:
            self._dropped = set(map(Way, ways or Way))

    def forget(self) -> None:
        """Swallow what the open connections carry, as a firewall that has forgotten them. New ones are served."""
        with self._changed:
            for link in self._links:
                link.lossy = set(Way)

    def hold(self, *ways: str) -> None:
        """Hold `"requests"`, `"replies"` or (by default) both back until `restore()` delivers them."""
        with self._changed:
            self._held = set(map(Way, ways or Way))

    def delay(self, seconds: float) -> None:
        with self._changed:
            self._delay = seconds

    def drip(self, seconds: float) -> None:
        """Forward replies byte by byte, with a pause of `seconds` before each byte."""
        with self._changed:
            self._drip = seconds

    def refuse(self) -> None:
        """Refuse new connections (ECONNREFUSED). Open connections stay open."""
        with self._changed:
            listener, self._listener = self._listener, None
        if listener:
            listener.shutdown(socket.SHUT_RDWR)  # wakes accept(), whose thread closes it

    def cut(self) -> None:
        with self._changed:
            self._hang_up(set(self._links))

    def lose_next_reply(self, matching: bytes = b"") -> threading.Event:
        """Forward the next request that contains `matching`, swallow its reply, and close the connection. Each further
        call affects one further request. Returns an event that is set when the server's reply was swallowed. Other
        requests in flight on the same connection lose their replies too.
        """
        lost = threading.Event()
        with self._changed:
            self._to_lose.append((matching, lost))
        return lost

    def retarget(self, url: str) -> None:
        """Forward to another server from now on. Open connections are closed."""
        self.target = _port(url)
        self.cut()

    def restore(self) -> None:
        """End all faults: deliver held bytes, close connections that lost bytes, accept new connections."""
        with self._changed:
            self._dropped, self._held, self._to_lose = set(), set(), []
            self._delay = self._drip = 0.0
            if self._listener is None:
                self._listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
                threading.Thread(target=self._accept, args=[self._listener], daemon=True).start()
            self._hang_up({link for link in self._links if link.lossy})

    def close(self) -> None:
        """Close all connections and the listener. No socket and no thread is left."""
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
        with listener, contextlib.suppress(OSError):  # refuse() ends the loop
            while True:
                link = _Link(listener.accept()[0])
                with self._changed:
                    self.accepted += 1
                    self._links.add(link)
                    if self._dropped:  # the server must never receive these bytes, even later
                        link.lossy = set(Way)
                    if self._listener is not listener:
                        link.hang_up()
                threading.Thread(target=self._serve, args=[link], daemon=True).start()

    def _serve(self, link: _Link) -> None:
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
        """Forward the bytes of one direction. The end of the stream is forwarded too, unless it is dropped."""
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
        """Wait for the delays. Returns whether the bytes may be forwarded; no bytes stand for the end of the stream."""
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
