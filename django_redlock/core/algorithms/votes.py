"""How votes are counted: who has a majority, who may have one still, and who is in the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..flow.replies import is_grant
from ..flow.requests import Fault
from ..values import Lease, Refusal


def votes_needed(nodes: int, limit: int = 1) -> int:
    """Votes without which nobody holds one of ``limit`` permits: ``limit`` holders at most can have as many each."""
    return limit * nodes // (limit + 1) + 1


class RefusedAttempt(NamedTuple):
    """A refused attempt. ``signal``: the node whose wake-up tells of the release; ``None`` after a split vote.

    Not ``sure``: it may have been a split vote, or others may hold it whose releases this node doesn't hear of.
    """

    refusal: Refusal
    wake_node: int | None
    certain: bool = True


def acquire_decided(replies: Sequence[Any], need: int) -> bool:
    """A majority has granted, of several locks the same one, or can't any more."""
    granted: dict[Any, int] = {}
    waiting = 0
    for reply in replies:
        if reply is None:
            waiting += 1
        elif is_grant(reply):
            which = 0 if isinstance(reply, int) or len(reply) < 4 else reply[3]
            granted[which] = granted.get(which, 0) + 1
    most = max(granted.values(), default=0)
    return most >= need or most + waiting < need


def split_votes(grants: Sequence[tuple[int, Lease]]) -> tuple[list[Lease], list[tuple[int, Lease]]]:
    """The votes for that one of several locks that has most of them, and the others with their nodes."""
    votes = Counter(lease.claim.granted_index for _, lease in grants)
    chosen = votes.most_common(1)[0][0] if votes else 0
    return (
        [lease for _, lease in grants if lease.claim.granted_index == chosen],
        [(node, lease) for node, lease in grants if lease.claim.granted_index != chosen],
    )


def refused_attempt(outcomes: Sequence[Any], need: int, *, any_one: bool, several: bool) -> RefusedAttempt:
    """Who is in the way: one holder with a majority, or several with some votes each, as is usual where they may."""
    refusals = {node: each for node, each in enumerate(outcomes) if isinstance(each, Refusal)}
    counted = Counter(each.holder for each in refusals.values()).most_common(1)
    if any_one and refusals:
        return RefusedAttempt(min(refusals.values()), min(refusals))
    if counted and several:
        return RefusedAttempt(min(refusals.values()), min(refusals), certain=False)
    holder, votes = counted[0] if counted else ("", 0)
    silent = sum(isinstance(each, Fault) for each in outcomes)  # those may have voted for the holder, too
    if not votes or votes + silent < need:
        return RefusedAttempt(Refusal(0.0, holder), None)
    nodes = [node for node, each in refusals.items() if each.holder == holder]
    remaining = min(refusals[node].remaining for node in nodes)
    return RefusedAttempt(Refusal(remaining, holder), nodes[0], certain=votes >= need)
