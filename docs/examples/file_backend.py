"""Locks in a file, for the processes of one machine: an example of a backend of one's own."""

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django_redlock.backends.storage import StorageBackend
from django_redlock.core.values import Claim, Lease, Refusal, valid_until
from django_redlock.errors import LockUnavailable

Entries = dict[str, tuple[str, float, str]]  # key -> token, Unix time of its end, owner


class FileBackend(StorageBackend):
    """``location`` is the path of a file that all processes can write. It has the options of `Backend`."""

    def acquire_once(self, claim: Claim) -> Lease | Refusal:
        start = self.clock()
        with self._entries() as entries:
            now = time.time()
            token, end, owner = entries.get(claim.keys.lock.decode(), ("", now, ""))
            if token not in ("", claim.token.decode()):
                return Refusal(end - now, owner)
            self._write(entries, claim, claim.ttl)
            fencing_token = time.time_ns() // 1000
        return Lease.granted(claim, start, fencing_token)

    def extend(self, lease: Lease, ttl: float) -> Lease | None:
        start = self.clock()
        with self._entries() as entries:
            if start >= lease.valid_until or not self._is_held(entries, lease.claim):
                return None
            self._write(entries, lease.claim, ttl)
        return lease._replace(ttl=ttl, valid_until=valid_until(start, ttl))

    def release(self, claim: Claim, keep: float = 0.0) -> bool:
        with self._entries() as entries:
            if not self._is_held(entries, claim):
                return False
            if keep > 0:
                self._write(entries, claim, keep)
            else:
                del entries[claim.keys.lock.decode()]
        return True

    @contextmanager
    def _entries(self) -> Iterator[Entries]:
        """The locks in the file. Within the block, no other process reads or writes it."""
        try:
            with Path(self.location).open("a+") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                try:
                    file.seek(0)
                    now, found = time.time(), json.loads(file.read() or "{}")
                    before = {key: entry for key, entry in found.items() if entry[1] > now}
                    entries = dict(before)
                    yield entries
                    if entries != before:
                        file.truncate(0)
                        file.write(json.dumps(entries))
                        file.flush()
                finally:
                    fcntl.flock(file, fcntl.LOCK_UN)  # close() would not unlock it while a forked child has it open
        except OSError as error:
            raise LockUnavailable("", f"the store is unavailable: {error}") from error

    def _is_held(self, entries: Entries, claim: Claim) -> bool:
        return entries.get(claim.keys.lock.decode(), ("",))[0] == claim.token.decode()

    def _write(self, entries: Entries, claim: Claim, ttl: float) -> None:
        owner = claim.owner.decode(errors="replace")
        entries[claim.keys.lock.decode()] = claim.token.decode(), time.time() + ttl, owner
