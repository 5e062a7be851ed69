"""The number of votes that a grant needs."""

import pytest

from django_redlock.core.algorithms.votes import votes_needed


@pytest.mark.parametrize("nodes", range(1, 8))
@pytest.mark.parametrize("limit", range(1, 8))
def test_votes(nodes, limit):
    """However the nodes grant, each to `limit` holders, no more than `limit` get enough; one vote less is too few."""
    need = votes_needed(nodes, limit)
    assert most_holders(nodes, limit, need) == limit
    assert need == 1 or most_holders(nodes, limit, need - 1) > limit


def most_holders(nodes, limit, votes):
    """How many holders can reach that many votes when each node has `limit` votes."""
    left, holders = [limit] * nodes, 0
    while len(richest := sorted((node for node in range(nodes) if left[node]), key=left.__getitem__)[-votes:]) == votes:
        holders += 1
        for node in richest:
            left[node] -= 1
    return holders
