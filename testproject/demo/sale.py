"""Simulates many concurrent buyers over HTTP, and records the answers that they get."""

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

PATIENCE = 60.0  # seconds for which a buyer retries while the lock is held


@dataclass(frozen=True)
class Visit:
    """The answers to one buyer: the seconds of each try, the order if any, and whether each confirmation was a
    duplicate.
    """

    tries: list[float]
    order: int | None
    duplicates: list[bool]


@dataclass(frozen=True)
class Sale:
    """All visits of a sale, and the seconds from the first visit's start to the last visit's end."""

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
        """Returns a percentile of the times of all tries to buy, in seconds."""
        return self.tries[percent * (len(self.tries) - 1) // 100]


def post(address: tuple[str, int], path: str, **fields: str) -> tuple[int, dict[str, Any], float]:
    """Send one POST. Returns the status, the JSON, and `Retry-After` in seconds (0 if the header is missing)."""
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
    """Repeat `post` until the answer is not "try later". Returns the status, the JSON, and the seconds of each try."""
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
    """Try until there is an order or the product is sold out. Request the confirmation twice, unless `patient`."""
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
    """Request the confirmation of an order. Returns whether the request was a duplicate."""
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
    """Send the buyers in, `at_once` at a time. Calls `advance` after each buyer. Raises the first error of a buyer.

    Patient buyers don't request confirmations.
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
