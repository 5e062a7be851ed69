"""Looks up host names for asyncio in a thread, because the application may have filled the default executor."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any


class Resolving:
    """A mixin for redis-py's asyncio connections that looks up the host in a thread and tries each of its addresses."""

    host: str
    port: int
    _address = ""

    async def _connect(self) -> None:
        addresses = await _addresses(self.host, self.port)
        for self._address in addresses:
            try:
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

    def done(addresses: list[str], error: OSError | None) -> None:
        if not found.done():  # cancelled meanwhile
            found.set_exception(error) if error else found.set_result(addresses)

    def look_up() -> None:
        outcome: tuple[list[str], OSError | None]
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            outcome = [str(entry[4][0]) for entry in entries], None
        except OSError as error:
            outcome = [], error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(done, *outcome)

    threading.Thread(target=look_up, name="redlock-resolve", daemon=True).start()
    return await found
