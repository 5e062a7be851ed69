"""Counts votes: whether a majority was reached or still can be, and which holder is in the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..flow.replies import is_grant
from ..flow.requests import Fault
from ..values import Lease, Refusal


def votes_needed(nodes: int, limit: int = 1) -> int:
    """The votes needed for one of ``limit`` permits: no more than ``limit`` holders can have as many each."""
    return limit * nodes // (limit + 1) + 1


class RefusedAttempt(NamedTuple):
    """A refused attempt. ``wake_node``: the node on which to wait for a wake-up; ``None`` after a split vote.

    Unless ``certain``, the vote may have been split, or holders may release on nodes other than ``wake_node``.
    """

    refusal: Refusal
    wake_node: int | None
    certain: bool = True


def acquire_decided(replies: Sequence[Any], need: int) -> bool:
    """Whether ``need`` nodes have granted (stripes: the same one), or no longer can."""
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
    """The votes for the stripe with most votes, and the other votes with their nodes."""
    votes = Counter(lease.claim.granted_index for _, lease in grants)
    chosen = votes.most_common(1)[0][0] if votes else 0
    return (
        [lease for _, lease in grants if lease.claim.granted_index == chosen],
        [(node, lease) for node, lease in grants if lease.claim.granted_index != chosen],
    )


def refused_attempt(outcomes: Sequence[Any], need: int, *, any_one: bool, several: bool) -> RefusedAttempt:
    """The refusal to report and the node to wait on. ``any_one``: stripes; ``several``: more holders are possible."""
    refusals = {node: each for node, each in enumerate(outcomes) if isinstance(each, Refusal)}
    counted = Counter(each.holder for each in refusals.values()).most_common(1)
    if any_one and refusals:
        return RefusedAttempt(min(refusals.values()), min(refusals))
    if counted and several:
        return RefusedAttempt(min(refusals.values()), min(refusals), certain=False)
    holder, votes = counted[0] if counted else ("", 0)
    silent = sum(isinstance(each, Fault) for each in outcomes)  # silent nodes may have voted for the holder, too
    if not votes or votes + silent < need:
        return RefusedAttempt(Refusal(0.0, holder), None)
    nodes = [node for node, each in refusals.items() if each.holder == holder]
    remaining = min(refusals[node].remaining for node in nodes)
    return RefusedAttempt(Refusal(remaining, holder), nodes[0], certain=votes >= need)
