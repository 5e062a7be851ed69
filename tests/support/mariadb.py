"""A real MariaDB server that shares nothing: it has its data in its own directory and a free port."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Self

from testproject.redis_server import free_port
from tests.support.postgres import USER, account
from tests.support.service import Service, find


class MariaDB(Service):
    """One server, with the user `postgres`, as the databases of PostgreSQL have it, and no password."""

    def __init__(self) -> None:
        super().__init__()
        self.port = free_port(self)
        self.data, self.socket = self.dir / "data", self.dir / "socket"

    def command(self) -> Sequence[str]:
        server = find("mariadbd", package="mariadb-server", place="/usr/sbin/mariadbd")
        files = f"--datadir={self.data}", f"--socket={self.socket}", f"--pid-file={self.dir / 'pid'}"
        limits = "--innodb-lock-wait-timeout=1", "--innodb-buffer-pool-size=8M", "--innodb-flush-log-at-trx-commit=0"
        network = "--bind-address=127.0.0.1", f"--port={self.port}"
        return [
            *account(),
            server,
            "--no-defaults",
            *files,
            *network,
            *limits,
            "--skip-grant-tables",
            "--skip-networking=0",
        ]

    def ready(self) -> bool:
        import pymysql

        try:
            self.query("SELECT 1")
        except pymysql.OperationalError:
            return False
        return True

    def start(self) -> Self:
        if not self.data.exists():
            program = find("mariadb-install-db", package="mariadb-server")
            if os.getuid() == 0:
                shutil.chown(self.dir, USER)
            words = [*account(), program, "--no-defaults", f"--datadir={self.data}", "--skip-test-db"]
            subprocess.run(words, check=True, capture_output=True, timeout=120, cwd="/")
        return super().start()

    def query(self, statement: str) -> None:
        import pymysql

        with pymysql.connect(host="127.0.0.1", port=self.port, user=USER) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
