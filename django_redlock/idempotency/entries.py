"""`Entry` identifies a request with an idempotency key. `Known` is what a store knows of the request already."""

from __future__ import annotations

from typing import Literal, NamedTuple

InDoubt = Literal["refuse", "run"]
Found = Literal["answer", "mismatch", "in_doubt", "running"]


class Entry(NamedTuple):
    """One request with an idempotency key.

    ``name``: a hash of the user and the key. ``fingerprint``: a hash of the request; a repeat has the same. ``label``:
    method and path, for the list of live locks. ``keep``: seconds for which the answer is kept. ``in_doubt``: what
    happens to a repeat if the outcome of the request is not known, "refuse" or "run".
    """

    name: str
    fingerprint: str
    label: str
    keep: float
    in_doubt: InDoubt = "refuse"


class Known(NamedTuple):
    """The reason why the view does not run for a request.

    ``found``: "answer", an earlier request has been answered with ``answer`` (from `Answer.encoded`); "mismatch", the
    key was used for a different request; "running", an earlier request still runs; "in_doubt", an earlier request was
    interrupted, and its work may have been done.
    """

    found: Found
    answer: bytes = b""
