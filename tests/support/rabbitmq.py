"""A real RabbitMQ that shares nothing: it has its own node name, ports, data, cookie and port mapper (epmd)."""

import contextlib
import socket
from collections.abc import Mapping, Sequence
from typing import Self

from testproject.redis_server import free_port
from tests.support.service import Service, find

# Debian's /usr/sbin/rabbitmq-server changes to another user and the system's directories, then runs this script.
SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"
NAMES_REQUEST = b"\x00\x01n"  # epmd's protocol: length, then request code
HANDSHAKE = b"AMQP\x00\x00\x09\x01"


def _answers(port: int, question: bytes) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(question)
        return bool(connection.recv(1))
    return False


class Epmd(Service):
    """Erlang's port mapper. RabbitMQ uses a running mapper instead of starting a daemon that would outlive the test."""

    def __init__(self) -> None:
        super().__init__()
        self.port = free_port(self)

    def command(self) -> Sequence[str]:
        return [find("epmd", package="rabbitmq-server"), "-port", str(self.port), "-address", "127.0.0.1"]

    def ready(self) -> bool:
        return _answers(self.port, NAMES_REQUEST)


class RabbitMQ(Service):
    """One broker with user and password `guest`. Durable queues survive `stop()`, `kill()` and `start()`."""

    def __init__(self) -> None:
        super().__init__()
        self.port = free_port(self)
        self.epmd = Epmd()

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def command(self) -> Sequence[str]:
        return [find(SERVER, package="rabbitmq-server")]

    def environment(self) -> Mapping[str, str]:
        nothing = str(self.dir / "none")
        return {
            "HOME": str(self.dir),  # directory of the cookie
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.epmd.port),
            "RABBITMQ_NODENAME": f"rabbit-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.port + 10_000),  # free_port() has checked that both are free
            "RABBITMQ_MNESIA_BASE": str(self.dir / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.dir),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(self.dir / "pid"),
            "RABBITMQ_CONF_ENV_FILE": nothing,
            "RABBITMQ_CONFIG_FILE": nothing,
            "RABBITMQ_ADVANCED_CONFIG_FILE": nothing,
            "RABBITMQ_ENABLED_PLUGINS_FILE": nothing,
        }

    def ready(self) -> bool:
        return _answers(self.port, HANDSHAKE)

    def start(self) -> Self:
        self.epmd.__enter__()
        return super().start()

    def __exit__(self, *exc: object) -> None:
        super().__exit__()
        self.epmd.__exit__()
