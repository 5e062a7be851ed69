"""ZooKeeper's lock recipe: a queue of ephemeral sequential znodes, in which each waiter watches the znode in front."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import quote, unquote

from ...core.lock_info import LockInfo, claim_digest
from ...core.owner import MAX_OWNER_BYTES, Owner
from ...core.values import Claim, Lease, Refusal, valid_until
from .contenders import Contender, Contenders
from .session import Declined, NoZnode, Session, Unanswered

TRUSTED_SHARE = 0.5  # share of the session timeout for which a confirmed write proves that the session lives
FINAL_REQUEST_SECONDS = 0.25  # time for the last requests of a claim after its deadline

# The name that ZooKeeper gives to a sequential znode, and its data as `encode_data` writes it.
_CHILD = re.compile(r".*-\d{1,19}", re.DOTALL)
_DATA = re.compile(rb"(\d{1,12}\.\d{3})/(-?\d{1,12}\.\d{3}) (.*)", re.DOTALL)


class Recipe:
    """Acquires, releases and describes the locks under the znode ``root``.

    ``connect`` returns the session. Methods with ``until`` raise ``LockUnavailable`` if they get no reply by that
    time. All times are seconds of ``clock``.
    """

    def __init__(
        self, root: str, connect: Callable[[], Session], contenders: Contenders, clock: Callable[[], float]
    ) -> None:
        self.root = root
        self.connect = connect
        self._contenders = contenders
        self._clock = clock

    def path(self, name: str) -> str:
        """Return the path of the znode whose children are the queue of the lock ``name``."""
        return f"{self.root}/{escaped(name)}"

    def ask(self, method: str, *args: Any, until: float, **options: Any) -> Any:
        """Send a request with kazoo's client, and return the reply, as `Session.ask` does."""
        return self.connect().ask(method, *args, until=until, **options)

    def children(self, name: str, until: float) -> list[str]:
        """Return the names of the znodes in the queue of the lock ``name``, the holder's znode first."""
        try:
            children = self.ask("get_children", self.path(name), until=until)
        except NoZnode:
            return []
        return sorted(filter(_CHILD.fullmatch, children), key=_number)

    def try_acquire(self, claim: Claim, wait: float, until: float, wake: Callable[[], Any]) -> Lease | Refusal:
        """Queue ``claim`` unless it is queued. Returns its lease if it is first in the queue, otherwise a refusal.

        A refused claim stays queued, and ``wake`` is called when the queue changes. ``wait``: the seconds that the
        claim can wait. With 0 or less, the claim joins an empty queue only. ``until``: the time at which the requests
        give up if ZooKeeper does not answer.
        """
        contender = self._contenders.get(claim.token)
        if contender is None:
            if wait <= 0 and (line := self.children(claim.name, until)):
                return self._refusal(claim.name, line[0], until)
            contender = self._join(claim, until)
        while True:
            contender.wake = wake
            try:
                line = self.children(claim.name, until)
                mine = (contender.path or "").rpartition("/")[2]
                if mine not in line:  # the session has ended, or a force release has removed the znode
                    contender = self._join(claim, until)
                elif mine == line[0]:
                    return self._granted(contender, until)
                elif wait <= 0:
                    return self._refusal(claim.name, line[0], until)
                elif self._is_in_front(contender, line[line.index(mine) - 1], until):
                    return Refusal(math.inf)
            except Unanswered:
                if self._clock() >= until:
                    raise

    def _join(self, claim: Claim, until: float) -> Contender:
        """Create the znode of ``claim``, and return its contender.

        After a lost reply, finds the znode by its unique prefix, or creates the znode again. Raises `Declined` if the
        claim was released or the session has ended meanwhile; the caller must then schedule the removal of the znode.
        """
        contender = Contender(claim, claim_digest(claim) + "-")
        self._contenders.add(contender)
        path, asked = f"{self.path(claim.name)}/{contender.prefix}", False
        try:
            while contender.path is None:
                start = self._clock()
                try:
                    if not (asked and self.find(contender, until)):
                        asked, data = True, encode_data(claim, claim.ttl)
                        contender.path, stat = self.ask(
                            "create", path, data, ephemeral=True, sequence=True, include_data=True, until=until
                        )
                        contender.fencing_token, contender.written = stat.czxid, start
                except NoZnode:
                    self.connect().make_parents(self.path(claim.name), until)
                except Unanswered:
                    if self._clock() >= until:
                        raise
        finally:
            if gone := self._contenders.get(claim.token) is not contender:
                self._contenders.add(contender)  # the end of a session has removed it, perhaps not its znode
        if gone:
            raise self.connect().failure(Declined, "the session has ended, or the claim was released meanwhile")
        return contender

    def find(self, contender: Contender, until: float) -> bool:
        """Look for the znode of ``contender`` by its prefix. Returns whether the znode exists.

        If so, sets the path and the fencing token of ``contender``. Sends ``sync`` first: after its reply, no earlier
        request of this session is pending on the servers.
        """
        parent = self.path(contender.claim.name)
        with suppress(NoZnode):
            self.ask("sync", parent, until=until)
        for child in self.children(contender.claim.name, until):
            if child.startswith(contender.prefix) and (stat := self.ask("exists", f"{parent}/{child}", until=until)):
                contender.path, contender.fencing_token = f"{parent}/{child}", stat.czxid
                return True
        return False

    def _is_in_front(self, contender: Contender, child: str, until: float) -> bool:
        """Watch the znode ``child`` for ``contender``, and return whether the znode still exists.

        Uses ``get``, because ``exists`` would set a watch on an absent znode. If the waiter gives up, kazoo keeps the
        watch until the holder's next renewal.
        """
        try:
            self.ask("get", f"{self.path(contender.claim.name)}/{child}", watch=contender.change, until=until)
        except NoZnode:
            return False
        return True

    def _granted(self, contender: Contender, until: float) -> Lease:
        """Return the lease of ``contender``, which is at the head of the queue.

        First a write to the contender's znode checks that the session is alive, unless a write was confirmed within the
        last `FINAL_REQUEST_SECONDS`.
        """
        claim = contender.claim
        if contender.written is None or self._clock() - contender.written > FINAL_REQUEST_SECONDS:
            start = self._clock()
            try:
                self.ask("set", contender.path, encode_data(claim, claim.ttl), until=until)
            except NoZnode:
                raise self.connect().failure(Unanswered, "the session has ended") from None
            contender.written = start
        return self.lease(contender, contender.written, claim.ttl, contender.written)

    def lease(self, contender: Contender, start: float, ttl: float, since: float) -> Lease:
        """Return the lease of ``contender`` after a confirmed write of its znode that was sent at ``start``.

        The lease lasts from ``start`` for ``ttl`` seconds, but at most for `TRUSTED_SHARE` of the session timeout.
        ``since``: when the lock was granted.
        """
        ttl = min(ttl, self.connect().timeout * TRUSTED_SHARE)
        end = valid_until(start, ttl)
        token = contender.fencing_token if contender.claim.fencing else None
        return Lease(contender.claim, ttl, end, token, since)

    def _refusal(self, name: str, holder: str, until: float) -> Refusal:
        try:
            data, stat = self.ask("get", f"{self.path(name)}/{holder}", until=until)
        except NoZnode:
            return Refusal(0.0)
        left, owner, _ = read_data(data, stat)
        return Refusal(math.inf if left is None else left, owner[:MAX_OWNER_BYTES].decode(errors="replace"))

    def remove(self, contender: Contender, until: float) -> bool:
        """Remove the znode of ``contender``, even if the creation of the znode was not confirmed.

        Returns whether the znode existed.
        """
        existed = contender.path is not None or self.find(contender, until)
        try:
            if existed:
                self.ask("delete", contender.path, until=until)
        except NoZnode:
            existed = False
        self._contenders.forget(contender)
        return existed

    # ── inspection ──────────────────────────────────────────────────────────────────────────

    def describe(self, name: str, until: float) -> LockInfo | None:
        """Return the holder and the waiters of the lock ``name``; ``None`` if its queue is empty."""
        standing = []
        line, session = self.children(name, until), self.connect()
        pending = [session.send("get", f"{self.path(name)}/{child}") for child in line]
        for child, each in zip(line, pending, strict=True):
            with suppress(NoZnode):
                standing.append((child, *read_data(*session.answer(each, until))))
        if not standing:
            return None
        (holder, left, text, since), *waiting = standing
        owner = Owner.parse(text)
        owner = replace(owner, since=since) if owner.since else owner
        return LockInfo(
            name,
            "mutex",
            owner,
            left,
            len(waiting),
            digest=_digest(holder),
            queue=tuple(Owner.parse(text) for _, _, text, _ in waiting),
            holders=(owner,),
        )

    def lock_names(self, until: float) -> Iterable[str]:
        """Return the names of all locks that have a znode. A lock that was just released may still have a znode."""
        try:
            return map(unquote, self.ask("get_children", self.root, until=until))
        except NoZnode:
            return []

    def force_release(self, name: str, digest: str, until: float) -> bool:
        """Remove the znode of the holder of the lock ``name``. Returns whether the znode was removed.

        ``digest``: as in `Backend.force_release`: if not empty, remove the znode only if the lock still has the same
        holder.
        """
        line = self.children(name, until)
        if not line or digest not in ("", _digest(line[0])):
            return False
        try:
            self.ask("delete", f"{self.path(name)}/{line[0]}", until=until)
        except NoZnode:
            return False
        return True


def escaped(text: str) -> str:
    """Return ``text`` with slashes, control characters and dots escaped, as the name of a znode."""
    return quote(text, safe="").replace(".", "%2E")


def _number(child: str) -> int:
    return int(child.rpartition("-")[2])


def _digest(child: str) -> str:
    return child.rpartition("-")[0]


def encode_data(claim: Claim, ttl: float, held: float = 0.0) -> bytes:
    """Return the data to write into the znode of ``claim``: ``ttl``, ``held`` and the owner as JSON.

    ``ttl``: the seconds for which the lease lasts after the write. ``held``: the seconds for which the lock has been
    held before the write.
    """
    return b"%.3f/%.3f %b" % (ttl, held, claim.owner)


def read_data(data: bytes, stat: Any) -> tuple[float | None, bytes, float]:
    """Return three values from the data of a znode: seconds left of the lease, owner as JSON, start of the hold.

    The seconds left are wrong by the difference between the clocks of this machine and the server; ``None`` means
    unknown. The start is a Unix time by the server's clock; 0 means unknown. ``stat``: kazoo's ``ZnodeStat`` of the
    znode.
    """
    found = _DATA.fullmatch(data)
    if not found:
        return None, data, 0.0
    lease, written = float(found[1]), stat.mtime / 1000
    return min(lease, max(0.0, written + lease - time.time())), found[3], written - float(found[2])
