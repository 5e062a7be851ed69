"""Real proxies in front of a Redis: twemproxy, which closes the connection at BLPOP, and haproxy."""

import socket
from collections.abc import Sequence

from testproject.redis_server import RedisServer, free_port
from tests.support.service import Service, find

TWEMPROXY = """\
locks:
  listen: 127.0.0.1:{port}
  hash: fnv1a_64
  hash_tag: "{{}}"
  redis: true
  servers:
   - 127.0.0.1:{target}:1 one
"""
HAPROXY = """\
defaults
  mode tcp
  timeout connect 5s
  timeout client {idle}ms
  timeout server {idle}ms
listen locks
  bind 127.0.0.1:{port}
  server one 127.0.0.1:{target}
"""


class RealProxy(Service):
    """A proxy in front of ``server``. ``url`` leads through it."""

    def __init__(self, server: RedisServer) -> None:
        super().__init__()
        self.port = free_port(self)
        self.target = server.port
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def ready(self) -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0


class Twemproxy(RealProxy):
    """twemproxy (nutcracker)."""

    def command(self) -> Sequence[str]:
        config = self.dir / "nutcracker.yml"
        config.write_text(TWEMPROXY.format(port=self.port, target=self.target))
        stats = free_port(self)
        return [find("nutcracker", package="nutcracker"), "-c", str(config), "-s", str(stats), "-a", "127.0.0.1"]


class HAProxy(RealProxy):
    """haproxy, which closes connections that are idle for ``idle`` ms."""

    idle = 1000

    def command(self) -> Sequence[str]:
        config = self.dir / "haproxy.cfg"
        config.write_text(HAPROXY.format(port=self.port, target=self.target, idle=self.idle))
        return [find("haproxy", package="haproxy"), "-f", str(config), "-db"]
