"""Counts the votes of nodes: whether a majority is reached or still possible, and which holder is in the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..flow.replies import is_grant
from ..flow.requests import Fault
from ..values import Lease, Refusal


def votes_needed(nodes: int, limit: int = 1) -> int:
    """Return the number of votes that a grant needs, so that a lock can't have more than ``limit`` holders."""
    return limit * nodes // (limit + 1) + 1


class RefusedAttempt(NamedTuple):
    """The result of an attempt that too few nodes have granted.

    ``wake_node``: the index of the node on which to wait for a wake-up; ``None`` after a split vote. ``certain``:
    ``True`` if the next release surely wakes a waiter on ``wake_node``. ``False`` if the vote may have been split, or
    if the next release may be on other nodes only.
    """

    refusal: Refusal
    wake_node: int | None
    certain: bool = True


def acquire_decided(replies: Sequence[Any], need: int) -> bool:
    """Return whether ``need`` nodes have granted the lock, or can no longer do so.

    A striped lock needs their votes for the same stripe. ``None`` stands for a reply that has not arrived.
    """
    granted: dict[Any, int] = {}
    waiting = 0
    for reply in replies:
        if reply is None:
            waiting += 1
        elif is_grant(reply):
            index = 0 if isinstance(reply, int) or len(reply) < 4 else reply[3]
            granted[index] = granted.get(index, 0) + 1
    most = max(granted.values(), default=0)
    return most >= need or most + waiting < need


def split_votes(grants: Sequence[tuple[int, Lease]]) -> tuple[list[Lease], list[tuple[int, Lease]]]:
    """Return the leases of the stripe with most votes, and the pairs of node and lease for other stripes."""
    votes = Counter(lease.claim.keys for _, lease in grants)
    chosen = votes.most_common(1)[0][0] if votes else None
    return (
        [lease for _, lease in grants if lease.claim.keys == chosen],
        [(node, lease) for node, lease in grants if lease.claim.keys != chosen],
    )


def refused_attempt(outcomes: Sequence[Any], need: int, *, any_one: bool, several: bool) -> RefusedAttempt:
    """Return the refusal of an attempt, and the node on which to wait for a wake-up.

    ``outcomes``: for each node its `Lease`, `Refusal` or `Fault`; ``None`` if not known. ``any_one``: the claim is for
    any one of several stripes. ``several``: the lock may have several holders, or has a fair queue.
    """
    refusals = {node: each for node, each in enumerate(outcomes) if isinstance(each, Refusal)}
    counted = Counter(each.holder for each in refusals.values()).most_common(1)
    if any_one and refusals:
        return RefusedAttempt(min(refusals.values()), min(refusals))
    if counted and several:
        return RefusedAttempt(min(refusals.values()), min(refusals), certain=False)
    holder, votes = counted[0] if counted else ("", 0)
    silent = sum(isinstance(each, Fault) for each in outcomes)  # nodes without a reply may have granted to the holder
    if not votes or votes + silent < need:
        return RefusedAttempt(Refusal(0.0, holder), None)
    nodes = [node for node, each in refusals.items() if each.holder == holder]
    remaining = min(refusals[node].remaining for node in nodes)
    # A node lists the waiter of a multilock for one of the locks only, see multi_acquire.lua.
    return RefusedAttempt(refusals[nodes[0]]._replace(remaining=remaining), nodes[0], certain=votes >= need)
