"""A real Redis whose wall clock can be set, while it runs or is down, without touching the machine's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from testproject.redis_server import RedisServer


def find_libfaketime() -> Path:
    """The library's path; `FileNotFoundError` says which Debian package has it."""
    if found := sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")):
        return found[0]
    raise FileNotFoundError("libfaketime not found (Debian and Ubuntu: apt install faketime)")


class ClockedRedis(RedisServer):
    """A Redis with a clock of its own: true at first. Its monotonic clock, by which its timers go, is never touched."""

    @property
    def _clock(self) -> Path:
        return self.dir / "clock"

    def set_clock(self, ahead: float) -> None:
        """From now on its clock is so many seconds ahead of the true time, or behind it."""
        new = self.dir / "clock.new"
        new.write_text(f"{ahead:+f}\n")
        new.replace(self._clock)  # it is read at any moment

    def environment(self) -> Mapping[str, str]:
        """libfaketime, and what it is to do."""
        return {
            # libc's malloc in front of jemalloc's, which asks for the time before libfaketime can tell it.
            "LD_PRELOAD": f"{find_libfaketime()} libc.so.6",
            "FAKETIME_TIMESTAMP_FILE": str(self._clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def start(self) -> Self:
        """Start it with the clock as it was set."""
        if not self._clock.exists():
            self.set_clock(0)
        super().start()
        for file in ("faketime_shm", "sem.faketime_sem"):  # which would outlive it
            Path("/", "dev", "shm", f"{file}_{self.pid}").unlink(missing_ok=True)
        return self
