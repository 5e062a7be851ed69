"""A real Redis with an adjustable wall clock. The clock of the machine is not changed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from testproject.redis_server import RedisServer
from tests.support.service import find

LIBRARY = "libfaketimeMT.so.1"


class ClockedRedis(RedisServer):
    """A Redis with a wall clock of its own, which starts at the true time. Its monotonic clock stays true."""

    @property
    def _clock(self) -> Path:
        return self.dir / "clock"

    def set_clock(self, ahead: float) -> None:
        """Set the server's clock ``ahead`` seconds ahead of the true time; a negative number sets it behind."""
        new = self.dir / "clock.new"
        new.write_text(f"{ahead:+f}\n")
        new.replace(self._clock)  # atomic, because the server may read the file at any moment

    def environment(self) -> Mapping[str, str]:
        library = find(LIBRARY, package="faketime", place=f"/usr/lib/*/faketime/{LIBRARY}")
        return {
            # libc's malloc precedes jemalloc's, which asks for the time before libfaketime is ready.
            "LD_PRELOAD": f"{library} libc.so.6",
            "FAKETIME_TIMESTAMP_FILE": str(self._clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def start(self) -> Self:
        if not self._clock.exists():
            self.set_clock(0)
        super().start()
        for file in ("faketime_shm", "sem.faketime_sem"):  # these files would outlive the server
            Path("/", "dev", "shm", f"{file}_{self.pid}").unlink(missing_ok=True)
        return self
