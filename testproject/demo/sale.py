"""Buyers, many at once, over HTTP; and what they saw."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

PATIENCE = 60.0  # seconds that a buyer goes on trying while others hold the lock


@dataclass(frozen=True)
class Visit:
    """What one buyer was told: seconds of each try to buy, the order if there was one, and of the requests to have it
    confirmed whether the shop called it a duplicate.
    """

    tries: list[float]
    order: int | None
    duplicates: list[bool]


@dataclass(frozen=True)
class Sale:
    """All visits, and the seconds from the first buyer's coming to the last one's going."""

    visits: list[Visit]
    elapsed: float

    @property
    def sold(self) -> int:
        return sum(visit.order is not None for visit in self.visits)

    @property
    def refused(self) -> int:
        return len(self.visits) - self.sold

    @cached_property
    def tries(self) -> list[float]:
        return sorted(seconds for visit in self.visits for seconds in visit.tries)

    @cached_property
    def duplicates(self) -> list[bool]:
        return [duplicate for visit in self.visits for duplicate in visit.duplicates]

    @property
    def requests_per_second(self) -> float:
        return (len(self.tries) + len(self.duplicates)) / self.elapsed

    @property
    def sold_per_second(self) -> float:
        return self.sold / self.elapsed

    def percentile(self, percent: int) -> float:
        """The seconds that so many percent of the tries to buy took at most."""
        return self.tries[percent * (len(self.tries) - 1) // 100]


def post(address: tuple[str, int], path: str, **fields: str) -> tuple[int, dict[str, Any], float]:
    """Status, JSON and `Retry-After` (seconds; 0 where there is none) of one POST."""
    connection = http.client.HTTPConnection(*address, timeout=30)
    try:
        connection.request("POST", path, urlencode(fields), {"Content-Type": "application/x-www-form-urlencoded"})
        response = connection.getresponse()
        body = response.read()
        content = json.loads(body) if response.headers.get_content_type() == "application/json" else {}
        return response.status, content, float(response.headers.get("Retry-After", 0))
    finally:
        connection.close()


def insist(address: tuple[str, int], path: str, **fields: str) -> tuple[int, dict[str, Any], list[float]]:
    """`post` until the answer is another than "try later"; status, JSON, and the seconds of each try."""
    deadline = time.monotonic() + PATIENCE
    tries: list[float] = []
    while time.monotonic() < deadline:
        start = time.monotonic()
        status, content, retry_after = post(address, path, **fields)
        tries.append(time.monotonic() - start)
        if status not in (http.client.CONFLICT, http.client.SERVICE_UNAVAILABLE):
            return status, content, tries
        time.sleep(retry_after)
    raise TimeoutError(f"{path} had nothing but 'try later' in {PATIENCE:g} s")


def visit(address: tuple[str, int], path: str, buyer: str, *, patient: bool) -> Visit:
    """Try until there is an order or nothing left, then ask twice for its confirmation, as impatient people do."""
    status, content, tries = insist(address, path, buyer=buyer)
    if status == http.client.GONE:
        return Visit(tries, None, [])
    if status != http.client.CREATED:
        raise RuntimeError(f"{path} answered {status}")
    order = content["order"]
    if patient:
        return Visit(tries, order, [])
    return Visit(tries, order, [confirm(address, order), confirm(address, order)])


def confirm(address: tuple[str, int], order: int) -> bool:
    """Ask for the confirmation of an order; says whether that was a duplicate of one that is under way."""
    status, content, _ = insist(address, f"/orders/{order}/confirm/")
    if status != http.client.ACCEPTED:
        raise RuntimeError(f"the confirmation of order {order} answered {status}")
    return bool(content["duplicate"])


def hold_sale(
    address: tuple[str, int],
    path: str,
    *,
    buyers: int,
    at_once: int,
    advance: Callable[[], object],
    patient: bool = False,
) -> Sale:
    """Let the buyers in, so many at once; `advance` is called after each. The first error among them is raised.

    Patient buyers don't ask for confirmations.
    """
    start = time.monotonic()
    with ThreadPoolExecutor(at_once) as crowd:
        coming = [crowd.submit(visit, address, path, f"buyer {number}", patient=patient) for number in range(buyers)]
        visits = []
        try:
            for gone in coming:
                visits.append(gone.result())
                advance()
        finally:
            crowd.shutdown(wait=False, cancel_futures=True)
    return Sale(visits, time.monotonic() - start)
