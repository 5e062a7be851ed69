"""A Redis with TLS, and a new self-signed certificate."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Self

from testproject.redis_server import RedisServer, free_port
from tests.support.service import find


class TlsRedis(RedisServer):
    """A Redis whose TCP port accepts TLS only. `url` is a `rediss://` URL with the certificate to trust."""

    def __init__(self, *extra_args: str) -> None:
        super().__init__(*extra_args, port=0)
        self.tls_port = free_port(self)
        self.certificate = self.dir / "certificate.pem"

    @property
    def url(self) -> str:
        """The URL for clients: `rediss://127.0.0.1:<port>/0?ssl_ca_certs=<file>`."""
        return f"rediss://127.0.0.1:{self.tls_port}/0?ssl_ca_certs={self.certificate}"

    def start(self) -> Self:
        """Start the server. Raises `FileNotFoundError` if redis-server has no TLS or openssl is not installed."""
        key = self.dir / "key.pem"
        if not key.exists():
            make_certificate(self.certificate, key)
            files = ["--tls-cert-file", str(self.certificate), "--tls-key-file", str(key)]
            trust = ["--tls-ca-cert-file", str(self.certificate), "--tls-auth-clients", "no"]
            self.extra_args = ("--tls-port", str(self.tls_port), *files, *trust, *self.extra_args)
        try:
            return super().start()
        except RuntimeError as error:
            if "Bad directive" in str(error) and "tls-" in str(error):
                raise FileNotFoundError("redis-server has no TLS (Debian's has: apt install redis-server)") from error
            raise


def make_certificate(certificate: Path, key: Path) -> None:
    """Write a self-signed certificate for localhost and 127.0.0.1, and its key."""
    command = [find("openssl", package="openssl"), "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", str(key)]
    command += ["-out", str(certificate)]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
