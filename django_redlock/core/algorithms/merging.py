"""Merges the descriptions that several nodes return for the same lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ..lock_info import LockInfo


def merge_views(found: Sequence[LockInfo], votes: int = 1) -> LockInfo | None:
    """Return the description of a lock that most nodes agree on; ``None`` if fewer than ``votes`` nodes agree on it.

    ``found``: the descriptions from all nodes that have the lock. The node with most waiters lists the waiters.
    """
    if len(found) < votes:
        return None
    merged = (_merge_shares if any(each.digests for each in found) else _merge_holders)(found, votes)
    if merged is None:
        return None
    fullest = max(found, key=lambda each: each.waiters)
    return replace(merged, waiters=fullest.waiters, queue=fullest.queue)


def _merge_holders(found: Sequence[LockInfo], votes: int) -> LockInfo | None:
    """Merge the descriptions of a lock with one holder into that of the holder that most nodes report."""
    digest, known = Counter(each.digest for each in found).most_common(1)[0]
    same = [each for each in found if each.digest == digest]
    return replace(same[0], nodes=tuple(node for each in same for node in each.nodes)) if known >= votes else None


def _merge_shares(found: Sequence[LockInfo], votes: int) -> LockInfo | None:
    """Merge the descriptions of a lock with several holders, each of which other nodes may have granted.

    A holder is kept if at least ``votes`` nodes and half of ``found`` report it. If no holder is reported by half of
    them, the holders that the most nodes report are kept.
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
