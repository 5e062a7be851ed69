"""`Entry`: what identifies a request with an idempotency key, and what a store may know of it already."""

from __future__ import annotations

from typing import Literal, NamedTuple

InDoubt = Literal["refuse", "run"]
Found = Literal["answer", "mismatch", "in_doubt", "running"]


class Entry(NamedTuple):
    """One request with an idempotency key.

    ``name``: a hash of the user and the key. ``fingerprint``: a hash of the request, which a repeat has too. ``label``:
    method and path, for the list of live locks. ``keep``: seconds for which the answer is kept. ``in_doubt``: what
    happens to the repeat of a request whose outcome is not known.
    """

    name: str
    fingerprint: str
    label: str
    keep: float
    in_doubt: InDoubt = "refuse"


class Known(NamedTuple):
    """Why a request does not run: it has an answer, or it is refused."""

    found: Found
    answer: bytes = b""
