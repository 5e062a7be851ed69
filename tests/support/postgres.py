"""A real PostgreSQL server that shares nothing: it has a cluster in its own directory and a free port."""

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Sequence
from typing import Self

from testproject.processes import running_processes, wait_for_end
from testproject.redis_server import free_port
from tests.support.service import Service, find

USER = "postgres"  # of the database cluster, and of the processes if root runs the tests: PostgreSQL refuses root


def program(name: str) -> str:
    return find(name, package="postgresql", place=f"/usr/lib/postgresql/*/bin/{name}")


def account() -> Sequence[str]:
    if os.getuid() != 0:
        return ()
    try:
        pwd.getpwnam(USER)
    except KeyError:
        raise FileNotFoundError(f"no user {USER} for PostgreSQL, which root can't run") from None
    return ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--")


class Postgres(Service):
    """One database cluster, with the user `postgres` and no password. Committed data survives a restart."""

    def __init__(self) -> None:
        super().__init__()
        self.port = free_port(self)
        self.data = self.dir / "data"

    def command(self) -> Sequence[str]:
        options = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.dir,
            "fsync": "off",  # the data need not survive a crash of the machine
        }
        return [
            *account(),
            program("postgres"),
            "-D",
            str(self.data),
            *(word for name, value in options.items() for word in ("-c", f"{name}={value}")),
        ]

    def ready(self) -> bool:
        asked = [program("pg_isready"), "--quiet", "--host=127.0.0.1", f"--port={self.port}"]
        return subprocess.run(asked, check=False, timeout=30).returncode == 0

    def start(self) -> Self:
        if not self.data.exists():
            made = [*account(), program("initdb"), f"--username={USER}", "--auth=trust", "--no-sync", str(self.data)]
            if os.getuid() == 0:
                shutil.chown(self.dir, USER)
            subprocess.run(made, check=True, capture_output=True, timeout=60, cwd="/", env=os.environ | {"LC_ALL": "C"})
        return super().start()

    def stop(self) -> None:
        """Stop the server without waiting for clients, and without leaving shared memory behind."""
        if self._child is not None:
            self.resume()
            self._child.signal(signal.SIGINT)
        super().stop()

    def kill(self) -> None:
        """Kill the main process with `kill -9`. The others end by themselves, and no new one can start before."""
        others = running_processes(parent=self.pid)
        super().kill()
        wait_for_end(others)

    def __exit__(self, *exc: object) -> None:
        self.stop()
        super().__exit__(*exc)
