"""Servers with TLS and a new self-signed certificate: one Redis, a Cluster, and a master behind a Sentinel."""

import contextlib
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import redis

from testproject.redis_server import RedisServer, find_redis_server, free_port
from tests.support.cluster import OPTIONS, Cluster
from tests.support.service import Service, find


class TlsRedis(RedisServer):
    """A Redis whose TCP port accepts TLS only. `url` is a `rediss://` URL with the certificate to trust."""

    def __init__(self, *extra_args: str, clients: str = "no", binary: str | None = None) -> None:
        """``clients``: "yes" if clients must have a certificate. ``binary``: as for `RedisServer`."""
        super().__init__(*extra_args, port=0, binary=binary)
        self.tls_port = free_port(self)
        self.certificate = self.dir / "certificate.pem"
        self.clients = clients

    @property
    def url(self) -> str:
        return f"rediss://127.0.0.1:{self.tls_port}/0?ssl_ca_certs={self.certificate}"

    def start(self) -> Self:
        """Start the server. Raises `FileNotFoundError` if redis-server has no TLS or openssl is not installed."""
        key = self.certificate.with_name("key.pem")
        if not key.exists():
            make_certificate(self.certificate, key)
        if "--tls-port" not in self.extra_args:
            files = ["--tls-cert-file", str(self.certificate), "--tls-key-file", str(key)]
            trust = ["--tls-ca-cert-file", str(self.certificate), "--tls-auth-clients", self.clients]
            self.extra_args = ("--tls-port", str(self.tls_port), *files, *trust, *self.extra_args)
        try:
            return super().start()
        except RuntimeError as error:
            if re.search("Bad directive|Failed finding TLS support", str(error)):  # Redis 6 and 7; Redis 8
                raise FileNotFoundError("redis-server has no TLS (Debian's has: apt install redis-server)") from error
            raise


def make_certificate(certificate: Path, key: Path) -> None:
    command = [find("openssl", package="openssl"), "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", str(key)]
    command += ["-out", str(certificate)]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True, timeout=30)


def make_client_certificate(certificate: Path, key: Path) -> tuple[Path, Path]:
    """Write a certificate for a client, signed with ``key`` of the CA ``certificate``. Returns both paths."""
    folder, openssl = certificate.parent, find("openssl", package="openssl")
    request, client, client_key = folder / "client.csr", folder / "client.pem", folder / "client-key.pem"
    new = ["req", "-new", "-nodes", "-subj", "/CN=client", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    sign = ["x509", "-req", "-days", "2", "-CA", str(certificate), "-CAkey", str(key), "-CAcreateserial"]
    for command in (
        [*new, "-keyout", str(client_key), "-out", str(request)],
        [*sign, "-in", str(request), "-out", str(client)],
    ):
        subprocess.run([openssl, *command], check=True, capture_output=True, timeout=30)
    return client, client_key


class TlsCluster(Cluster):
    """A Redis Cluster of two masters, which speak TLS only, also to each other, with one `certificate`."""

    def __init__(self, *extra_args: str) -> None:
        nodes = [TlsRedis(*OPTIONS, "--tls-cluster", "yes", *extra_args) for _ in range(2)]
        self.certificate, self.tls_port = nodes[0].certificate, nodes[0].tls_port
        for node in nodes:
            node.certificate = self.certificate
        super().__init__(nodes)


SENTINEL_CONFIG = """\
port {port}
{tls}
bind 127.0.0.1
requirepass {self.password}
sentinel monitor locks 127.0.0.1 {master} 1
sentinel auth-pass locks {self.master.password}
"""
TLS_CONFIG = """\
tls-port {port}
tls-cert-file {certificate}
tls-key-file {key}
tls-ca-cert-file {certificate}
tls-auth-clients no
tls-replication yes
"""


class TlsSentinel(Service):
    """One Sentinel with a `password`, if told so with TLS, and its `master` with TLS and another password."""

    password = "of-the-sentinels"

    def __init__(self, tls: bool = True) -> None:
        super().__init__()
        self.master = TlsRedis("--requirepass", "of-the-master")
        self.master.password = "of-the-master"  # type: ignore[attr-defined]
        self.port, self._tls = free_port(self), tls

    def command(self) -> Sequence[str]:
        certificate, config = self.master.certificate, self.dir / "sentinel.conf"
        port, tls_port = (0, self.port) if self._tls else (self.port, free_port(self))
        tls = TLS_CONFIG.format(port=tls_port, certificate=certificate, key=certificate.with_name("key.pem"))
        config.write_text(SENTINEL_CONFIG.format(self=self, port=port, tls=tls, master=self.master.tls_port))
        return [find_redis_server(), str(config), "--sentinel", "--dir", str(self.dir)]

    def start(self) -> Self:
        self.master.start()
        return super().start()

    def ready(self) -> bool:
        tls = {"ssl": True, "ssl_ca_certs": str(self.master.certificate)} if self._tls else {}
        client = redis.Redis("127.0.0.1", self.port, password=self.password, retry=None, **tls)
        with contextlib.suppress(redis.ConnectionError, redis.TimeoutError), client:
            return "master" in client.sentinel_master("locks")["flags"]
        return False

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self.master.__exit__(*exc)
