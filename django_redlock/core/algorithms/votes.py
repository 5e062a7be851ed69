"""Counts the replies of nodes: votes for a grant, the holder that refuses a claim, and descriptions of one lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..flow.replies import is_grant
from ..flow.requests import Fault
from ..lock_info import LockInfo
from ..values import Lease, Refusal


def votes_needed(nodes: int, limit: int = 1) -> int:
    """Return the number of votes that a grant needs, so that a lock has at most ``limit`` holders."""
    return limit * nodes // (limit + 1) + 1


class RefusedAttempt(NamedTuple):
    """The result of an attempt with too few votes.

    ``wake_node``: the index of the node on which to wait for a wake-up; ``None`` after a split vote. ``certain``:
    whether the next release surely wakes a waiter on ``wake_node``: not after a split vote, nor if the holder may
    release on other nodes only.
    """

    refusal: Refusal
    wake_node: int | None
    certain: bool = True


def acquire_decided(replies: Sequence[Any], need: int) -> bool:
    """Return whether ``need`` nodes have granted the lock, or can no longer do so.

    For a striped lock, the votes must be for the same stripe. ``None``: a reply that has not arrived.
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
    """Return the leases of the stripe with the most votes, and pairs of node and lease for all other stripes."""
    votes = Counter(lease.claim.keys for _, lease in grants)
    chosen = votes.most_common(1)[0][0] if votes else None
    return (
        [lease for _, lease in grants if lease.claim.keys == chosen],
        [(node, lease) for node, lease in grants if lease.claim.keys != chosen],
    )


def refused_attempt(outcomes: Sequence[Any], need: int, *, any_one: bool, several: bool) -> RefusedAttempt:
    """Return the refusal of an attempt, and the node on which to wait for a wake-up.

    ``outcomes``: the `Lease`, `Refusal` or `Fault` of each node; ``None``: unknown. ``any_one``: whether the claim is
    for any one of several stripes. ``several``: whether the lock may have several holders, or has a fair queue.
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
    # A node lists the waiter of a multilock for one of the locks only, see mutex_acquire.lua.
    return RefusedAttempt(refusals[nodes[0]]._replace(remaining=remaining), nodes[0], certain=votes >= need)


# ── descriptions ─────────────────────────────────────────────────────────────────────────────


def merge_views(found: Sequence[LockInfo], votes: int = 1) -> LockInfo | None:
    """Return the description of a lock that most nodes agree on; ``None`` if fewer than ``votes`` nodes agree on it.

    ``found``: the descriptions from all nodes that have the lock. The waiters are those of the node with most waiters.
    """
    if len(found) < votes:
        return None
    merged = (_merge_shares if any(each.digests for each in found) else _merge_holders)(found, votes)
    if merged is None:
        return None
    fullest = max(found, key=lambda each: each.waiters)
    return replace(merged, waiters=fullest.waiters, queue=fullest.queue)


def _merge_holders(found: Sequence[LockInfo], votes: int) -> LockInfo | None:
    """Return the description of the holder that most nodes report, for a lock with one holder."""
    digest, known = Counter(each.digest for each in found).most_common(1)[0]
    same = [each for each in found if each.digest == digest]
    return replace(same[0], nodes=tuple(node for each in same for node in each.nodes)) if known >= votes else None


def _merge_shares(found: Sequence[LockInfo], votes: int) -> LockInfo | None:
    """Merge the descriptions of a lock with several holders. The nodes may report different holders.

    A holder is kept if at least ``votes`` nodes and half of ``found`` report it. If there is no such holder, the
    holders that the most nodes report are kept.
    """
    known = Counter(digest for each in found for digest in each.digests)
    if max(known.values()) < votes:
        return None
    enough = max(votes, min(len(found) / 2, max(known.values())))
    owners = {digest: owner for each in found for digest, owner in zip(each.digests, each.holders, strict=True)}
    shares = tuple(digest for digest, nodes in known.items() if nodes >= enough)
    holders = tuple(owners[digest] for digest in shares)
    first = max(found, key=lambda each: len(set(each.digests) & set(shares)))
    nodes = tuple(node for each in found for node in each.nodes)
    return replace(first, owner=holders[0], holders=holders, digests=shares, nodes=nodes)
