"""Extensions of one lease that are under way together: the server may carry them out in any order."""

from __future__ import annotations

import math
from typing import NamedTuple

from .lease import DRIFT, Lease


class Asked(NamedTuple):
    """The extensions of one token since the last time when none was without an answer."""

    token: bytes = b""
    under_way: int = 0
    given_up: bool = False  # some were, and may reach the server at any time
    least: float = math.inf  # the shortest ttl among them, in seconds

    def one_more(self, token: bytes, ttl: float) -> Asked:
        """When another one is asked for."""
        before = self if self.token == token else NOTHING
        return Asked(token, before.under_way + 1, before.given_up, min(before.least, ttl))

    def one_less(self, token: bytes, *, given_up: bool) -> Asked:
        """When one has been answered, or given up."""
        if self.token != token:
            return self
        after = self._replace(under_way=self.under_way - 1, given_up=self.given_up or given_up)
        return after if after.under_way or after.given_up else NOTHING


NOTHING = Asked()


def agreed(basis: Lease, current: Lease, outcome: Lease, least: float) -> Lease:
    """What is held when ``basis`` has become ``outcome``, and the extensions beside it were for ``least`` seconds.

    One that the server carries out after this one ends the lease that long after it came, so after this was asked for.
    """
    surplus = max(0.0, outcome.ttl - least)
    end = max(current.valid_until, outcome.valid_until - surplus * (1 - DRIFT))
    if current is not basis and outcome.ttl == basis.ttl:  # a renewal: what was asked for meanwhile goes on instead
        return outcome._replace(valid_until=end, claim=current.claim, ttl=current.ttl)
    return outcome._replace(valid_until=end)
