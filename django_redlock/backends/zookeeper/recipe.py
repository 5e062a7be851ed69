"""ZooKeeper's lock recipe: a queue of ephemeral sequential znodes, each waiter watching only the znode in front."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from ...core import fork
from ...core.lock_info import claim_digest
from ...core.owner import LONGEST
from ...core.values import Claim, Lease, Refusal, valid_until
from .contenders import Contender, Contenders
from .session import NoZnode, Session, Unanswered, ZooKeeperError

TRUSTED_SHARE = (
    0.5  # share of the session timeout for which a confirmed write proves that the session lives, see docs/backends
)
FINAL_REQUEST_SECONDS = 0.25  # time for the last requests of a claim after its deadline

# The name that ZooKeeper gives to a sequential znode, and its data as `encode_data` writes it.
_CHILD = re.compile(r".*-\d{1,19}", re.DOTALL)
_DATA = re.compile(rb"(\d{1,12}\.\d{3})/(-?\d{1,12}\.\d{3}) (.*)", re.DOTALL)


class Recipe:
    """Acquires and releases the locks under the znode ``root``.

    Methods with a parameter ``until`` raise `ZooKeeperError` if they have no reply at that time.
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
        """Call a method of kazoo's client, until ``until`` (seconds of the clock) at most. See `Session.ask`."""
        return self.connect().ask(method, *args, until=until, **options)

    def children(self, name: str, until: float) -> list[str]:
        """Return the znodes in the queue of the lock ``name``, the holder's first."""
        try:
            children = self.ask("get_children", self.path(name), until=until)
        except NoZnode:
            return []
        return sorted(filter(_CHILD.fullmatch, children), key=_number)

    def try_acquire(self, claim: Claim, wait: float, until: float) -> Lease | Refusal:
        """Queue ``claim`` unless it is queued, and grant it if it is first in the queue.

        A claim that can't ``wait`` (0 seconds or less) joins an empty queue only.
        """
        contender = self._contenders.get(claim.token)
        if contender is None:
            if wait <= 0 and (line := self.children(claim.name, until)):
                return self._refusal(claim.name, line[0], until)
            contender = self._join(claim, until)
        while True:
            try:
                line = self.children(claim.name, until)
                mine = (contender.path or "").rpartition("/")[2]
                if mine not in line:  # the session has ended, or a force release has removed the znode
                    self._contenders.discard(contender)
                    contender = self._join(claim, until)
                elif mine == line[0]:
                    return self._granted(contender, until)
                elif wait <= 0 or self._is_in_front(contender, line[line.index(mine) - 1], until):
                    refusal = self._refusal(claim.name, line[0], until)
                    if self._contenders.get(claim.token) is not contender:  # cancelled meanwhile
                        self.unwatch(contender)
                    return refusal
            except Unanswered:
                if self._clock() >= until:
                    raise

    def _join(self, claim: Claim, until: float) -> Contender:
        """Create the znode of ``claim``. After a lost reply, find the znode by its unique prefix or create it again."""
        contender = Contender(claim, claim_digest(claim) + "-")
        if not self._contenders.join(contender):
            raise ZooKeeperError("the claim was released meanwhile")
        path, asked = f"{self.path(claim.name)}/{contender.prefix}", False
        while True:
            start = self._clock()
            try:
                if asked and self.find(contender, until):
                    return contender
                asked, data = True, encode_data(claim, claim.ttl)
                contender.path, stat = self.ask(
                    "create", path, data, ephemeral=True, sequence=True, include_data=True, until=until
                )
                contender.fencing_token, contender.written = stat.czxid, start
                if self._contenders.get(claim.token) is not contender:  # released meanwhile, or the session has ended
                    self._contenders.discard(contender)
                return contender
            except NoZnode:
                self.connect().make_parents(self.path(claim.name), until)
            except Unanswered:
                if self._clock() >= until:
                    raise

    def find(self, contender: Contender, until: float) -> bool:
        """Look for the znode of ``contender`` and set its path and fencing token. Returns whether the znode exists.

        ``sync`` comes first: after it, an earlier request of this session has been carried out or never will be.
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
        """Watch ``child``, and return whether it still exists. ``exists`` would leave a watch on an absent znode."""
        path = f"{self.path(contender.claim.name)}/{child}"
        try:
            self.ask("get", path, watch=contender.watch(path), until=until)
        except NoZnode:
            return False
        return True

    def _granted(self, contender: Contender, until: float) -> Lease:
        """Return the lease of the first contender. Writes its znode first unless a recent write was confirmed.

        A confirmed write proves that the session lives.
        """
        claim = contender.claim
        if contender.written is None or self._clock() - contender.written > FINAL_REQUEST_SECONDS:
            start = self._clock()
            try:
                self.ask("set", contender.path, encode_data(claim, claim.ttl), until=until)
            except NoZnode:
                raise Unanswered("the session has ended") from None
            contender.written = start
        self._contenders.discard_at(contender, contender.written + claim.ttl)
        return self.lease(contender, contender.written, claim.ttl, contender.written)

    def lease(self, contender: Contender, start: float, ttl: float, since: float) -> Lease:
        """Return the lease that follows from a confirmed write that was sent at ``start``.

        The lease lasts for ``ttl`` seconds, but at most for `TRUSTED_SHARE` of the session timeout.
        """
        ttl = min(ttl, self.connect().timeout * TRUSTED_SHARE)
        end = valid_until(start, ttl)
        return Lease(contender.claim, ttl, end, contender.fencing_token, since, fork.generation)

    def _refusal(self, name: str, holder: str, until: float) -> Refusal:
        try:
            data, stat = self.ask("get", f"{self.path(name)}/{holder}", until=until)
        except NoZnode:
            return Refusal(0.0)
        left, owner, _ = read_data(data, stat)
        return Refusal(math.inf if left is None else left, owner[:LONGEST].decode(errors="replace"))

    def withdraw(self, claim: Claim) -> None:
        """Remove ``claim`` from the queue: at once if the ensemble answers, otherwise in the background."""
        contender = self._contenders.leave(claim.token)
        if contender is None:
            return
        try:
            if contender.path is None:
                raise Unanswered
            self.ask("delete", contender.path, until=self._clock() + FINAL_REQUEST_SECONDS)
            self.unwatch(contender)
        except (ZooKeeperError, NoZnode):
            self._contenders.discard(contender)

    def unwatch(self, contender: Contender) -> None:
        """Remove the watch of ``contender``, if it has one.

        Called after the reply to a later request: kazoo adds a watch after it has passed on the reply to ``get``.
        """
        if contender.watches is not None:
            self.connect().unwatch(contender.watches, contender.change)

    def remove(self, contender: Contender, until: float) -> None:
        """Remove the znode of ``contender``, even one whose creation was not confirmed."""
        if contender.path is not None or self.find(contender, until):
            with suppress(NoZnode):
                self.ask("delete", contender.path, until=until)
        self.unwatch(contender)


def escaped(text: str) -> str:
    """Return ``text`` as the name of a znode: without slashes, control characters and dots."""
    return quote(text, safe="").replace(".", "%2E")


def _number(child: str) -> int:
    return int(child.rpartition("-")[2])


def encode_data(claim: Claim, ttl: float, held: float = 0.0) -> bytes:
    """Return the data of a znode: seconds of lease and seconds held, as of the write, and the owner (JSON)."""
    return b"%.3f/%.3f %b" % (ttl, held, claim.owner)


def read_data(data: bytes, stat: Any) -> tuple[float | None, bytes, float]:
    """Return the seconds of lease left, the owner (JSON) and since when the lock is held, from a znode's data.

    The seconds left are as accurate as the clocks of this machine and of the server agree; ``None`` means unknown. The
    last value is Unix time by the server's clock; 0 means unknown.
    """
    found = _DATA.fullmatch(data)
    if not found:
        return None, data, 0.0
    lease, written = float(found[1]), stat.mtime / 1000
    return min(lease, max(0.0, written + lease - time.time())), found[3], written - float(found[2])
