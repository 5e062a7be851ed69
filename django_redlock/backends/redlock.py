"""The Redlock backend: a majority of independent Redis nodes grants a lock."""

from __future__ import annotations

import select
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from ..client.redact import redact
from ..core.algorithms.redlock import Redlock
from ..core.algorithms.votes import merge_views, votes_needed
from ..core.flow.replies import unavailable_error
from ..core.flow.requests import Flow
from ..core.lock_info import Listing, LockInfo, by_trouble
from ..core.primitives.base import READERS_BEHIND_WRITERS
from ..errors import LockUnavailable
from .health import health
from .inspection import force_release, listing
from .redis import RedisBaseBackend

T = TypeVar("T")


class RedlockBackend(RedisBaseBackend):
    """Locks that a majority of N independent nodes grants, without replication between the nodes.

    - ``location``: the list of the nodes' URLs, each as for `RedisBackend`.
    - ``quarantine`` (``True``): a node that may have lost its data grants no lock until all earlier leases have ended.
      ``arm()`` takes new nodes into service without that delay.
    - other options: those of `RedisBaseBackend`.

    Warns if the number of nodes is even, because four nodes tolerate no more failures than three nodes. Source: Redis
    documentation, "The Redlock Algorithm".
    """

    default_quarantine = True
    queue_order = READERS_BEHIND_WRITERS
    unfair = "each node has its own order of arrival, so waiters that are first on some nodes would wait for each other"

    def __init__(self, location: Sequence[str], **options: Any) -> None:
        if isinstance(location, str) or not location:
            shown = redact(location)
            raise ValueError(
                f"LOCATION of {type(self).__name__} must be a list of URLs, one for each node, not {shown!r}"
            )
        if not hasattr(select, "poll"):  # poll() waits for the replies of all nodes at once
            raise RuntimeError(
                f"{type(self).__name__} needs select.poll, which Windows doesn't have and eventlet removes"
            )
        super().__init__(list(location), **options)
        if any(node.is_cluster for node in self.nodes):
            raise ValueError("a Redis Cluster can't be a node of a quorum, because its masters fail over by themselves")
        if len(self.nodes) % 2 == 0:
            few = f"{len(self.nodes)} nodes tolerate the failure of {len(self.nodes) // 2 - 1}, as one node less would"
            warnings.warn(f"{type(self).__name__}: {few}; use an odd number", stacklevel=2)
        labels = tuple(node.label for node in self.nodes)
        self.algorithm = Redlock(len(self.nodes), self.clock, self._new_quarantine(), labels=labels)

    def _listing(self, pattern: str, limit: int | None, max_keys: int | None) -> Flow[Listing]:
        found: dict[str, list[LockInfo]] = {}
        parts = yield from self._ask_each(pattern, partial(listing, self.key_prefix, pattern, limit, max_keys))
        for label, part in parts:
            for held in part.locks:
                found.setdefault(held.name, []).append(replace(held, nodes=(label,)))
        rows = [row for views in found.values() if (row := merge_views(views)) is not None]
        if max_keys is not None:
            rows.sort(key=by_trouble)
        complete = all(part.complete for _, part in parts) and (limit is None or len(rows) <= limit)
        return Listing(rows[:limit], sum(part.scanned for _, part in parts), complete)

    def _force_release(self, name: str, digest: str) -> Flow[bool]:
        outcomes = yield from self._ask_each(name, partial(force_release, name, self.keys_of(name), digest))
        return any(released for _, released in outcomes)

    def _ask_each(self, name: str, ask: Callable[[int], Flow[T]]) -> Flow[list[tuple[str, T]]]:
        """Run the flow ``ask(index)`` for each node. Returns pairs of label and result for the nodes that have replied.

        ``name``: for error messages. Raises ``LockUnavailable`` unless a majority has replied.
        """
        results, errors = [], dict[str, Any]()
        for index, node in enumerate(self.nodes):
            try:
                results.append((node.label, (yield from ask(index))))
            except LockUnavailable as error:
                errors[node.label] = next(iter(error.errors.values()), error)  # the node's own error
        if len(results) < votes_needed(len(self.nodes)):
            raise unavailable_error(name, f"no majority of the {len(self.nodes)} nodes is available", errors)
        return results

    def _health(self) -> Flow[list[dict[str, Any]]]:
        rows = []
        for index in range(len(self.nodes)):
            rows += yield from health(self, index)
        seen: dict[str, str] = {}
        for row in rows:
            run_id = row.get("run_id")
            if run_id in seen:
                row["ok"] = False
                row["problems"].append(f"is the same server as {seen[run_id]}: one server must not have two votes")
            elif run_id:
                seen[run_id] = row["node"]
        return rows
