"""The number of votes that a grant needs."""

import pytest

from django_redlock.core.algorithms.votes import votes_needed


@pytest.mark.parametrize("nodes", range(1, 8))
@pytest.mark.parametrize("limit", range(1, 8))
def test_votes(nodes, limit):
    """With `limit` votes on each node, at most `limit` holders reach the quorum, and one vote less would allow more."""
    need = votes_needed(nodes, limit)
    assert most_holders(nodes, limit, need) == limit
    assert need == 1 or most_holders(nodes, limit, need - 1) > limit


def most_holders(nodes, limit, votes):
    """Return how many holders can reach that many votes when each node has `limit` votes."""
    left, holders = [limit] * nodes, 0
    while len(richest := sorted((node for node in range(nodes) if left[node]), key=left.__getitem__)[-votes:]) == votes:
        holders += 1
        for node in richest:
            left[node] -= 1
    return holders
