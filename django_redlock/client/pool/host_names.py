"""Looks up host names for asyncio in a thread, because the application may have filled the default executor."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from ...core.process.fork import on_fork
from ..deadlines import LoopDeadline

SHARED_SECONDS = 1.0  # seconds for which all tasks wait for the same look-up of a host; then the next task starts one

Outcome = list[str] | OSError
_lookups: dict[tuple[str, int], tuple[float, Future[Outcome]]] = {}  # host and port -> shared until, newest look-up
on_fork(_lookups.clear)  # the child has none of the threads


class Resolving:
    """A mixin for redis-py's asyncio connections that looks up the host in a thread and tries each of its addresses.

    ``redlock_timeout`` limits the attempt to connect to one address, in seconds. All addresses share twice that time.
    """

    host: str
    port: int
    redlock_timeout: float
    _address = ""

    async def _connect(self) -> None:
        addresses = await _addresses(self.host, self.port)
        seconds = min(1.0, 2 / len(addresses)) * self.redlock_timeout
        for self._address in addresses:
            try:
                async with LoopDeadline(seconds):
                    await super()._connect()  # type: ignore[misc]
            except OSError:
                if self._address is addresses[-1]:
                    raise
            else:
                return

    def _connection_arguments(self) -> Mapping[str, Any]:
        arguments = {**super()._connection_arguments(), "host": self._address}  # type: ignore[misc]
        if arguments.get("ssl"):
            arguments["server_hostname"] = self.host  # the name in the certificate
        return arguments


async def _addresses(host: str, port: int) -> list[str]:
    """Return the addresses of ``host``. Looks up a name in a thread. Raises ``OSError`` if the look-up fails."""
    for family in socket.AF_INET, socket.AF_INET6:
        with suppress(OSError):
            socket.inet_pton(family, host)
            return [host]
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[str]] = loop.create_future()

    def done(outcome: Outcome) -> None:
        if found.done():  # cancelled meanwhile
            return
        if isinstance(outcome, OSError):  # a copy: the traceback of a shared error would keep all callers' locks alive
            found.set_exception(type(outcome)(*outcome.args))
        else:
            found.set_result(outcome)

    def notify(lookup: Future[Outcome]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(done, lookup.result())

    _lookup(host, port).add_done_callback(notify)
    return await found


def _lookup(host: str, port: int) -> Future[Outcome]:
    """Return the look-up of ``host`` that is under way. Starts one if the last one has ended or has taken too long."""
    now = time.monotonic()
    until, lookup = _lookups.get((host, port), (0.0, None))
    if lookup is None or lookup.done() or now >= until:
        lookup = Future()
        threading.Thread(target=_look_up, args=(host, port, lookup), name="redlock-resolve", daemon=True).start()
        _lookups[host, port] = now + SHARED_SECONDS, lookup
    return lookup


def _look_up(host: str, port: int, lookup: Future[Outcome]) -> None:
    outcome: Outcome
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        outcome = [str(entry[4][0]) for entry in entries]
    except OSError as error:
        outcome = error
    # A future keeps its callbacks, and with them the loops, the errors and so the locks of the callers.
    if _lookups.get((host, port), (0.0, None))[1] is lookup:
        _lookups.pop((host, port), None)
    lookup.set_result(outcome)
