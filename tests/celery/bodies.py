"""What the tasks of `tests.celery.app` do. Each body records its events for the test that has sent it."""

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

from celery import current_task, group
from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded

from tests.celery.records import RECORDS, UNTIL_GO, last, note
from tests.support.overlap import believing


@contextlib.contextmanager
def _running(self: Any, name: str) -> Iterator[None]:
    with believing(RECORDS / f"{name}.beliefs", name, f"{os.getpid()}/{self.request.id}"):
        note(name, "start", id=self.request.id, retries=self.request.retries)
        yield
    note(name, "end", id=self.request.id)


def work(self: Any, name: str, seconds: float = 0.0) -> str:
    with _running(self, name):
        last(name, seconds)
    return name


def gated(self: Any, name: str, seconds: float = 0.0) -> str:
    """Last until go(), and so many seconds longer."""
    with _running(self, name):
        last(name, UNTIL_GO)
        last(name, float(seconds))
    return name


def carried(self: Any, name: str, seconds: float = 0.0) -> str:
    """Record the headers of the message."""
    request = self.request
    texts = {each: request.get(each) for each in ("tenant", "colour", "argsrepr", "kwargsrepr")}
    note(name, "carried", id=request.id, nested=request.headers.get("trace"), **texts)
    return gated(self, name, seconds)


def values(self: Any, value: Any) -> str:
    return repr(value)


# ── ends ─────────────────────────────────────────────────────────────────────────────────────


def ending(self: Any, name: str, how: str, seconds: float = 0.0) -> str:
    note(name, "start", id=self.request.id, how=how)
    time.sleep(seconds)
    if how == "exception":
        raise ValueError(name)
    if how == "ignore":
        raise Ignore
    if how == "reject":
        raise Reject("no", requeue=False)
    if how == "exit":
        raise SystemExit(3)
    return name


def soft(self: Any, name: str) -> str:
    note(name, "start", id=self.request.id)
    try:
        time.sleep(60)
    except SoftTimeLimitExceeded:
        note(name, "soft")
        raise
    return name


def stubborn(self: Any, name: str, seconds: float) -> str:
    """Last for so long, whatever interrupts."""
    note(name, "start", id=self.request.id)
    end = time.monotonic() + seconds
    try:
        time.sleep(seconds)
    except SoftTimeLimitExceeded:
        note(name, "soft")
        time.sleep(max(end - time.monotonic(), 0))
    note(name, "end", id=self.request.id)
    return name


def _starts_first(self: Any, name: str) -> bool:
    first = not (RECORDS / f"{name}.events").exists()
    note(name, "start", id=self.request.id)
    return first


def rejecting(self: Any, name: str) -> str:
    """Ask to be delivered again, the first time."""
    if _starts_first(self, name):
        raise Reject("later", requeue=True)
    return name


def exiting(self: Any, name: str) -> str:
    """End the process, the first time."""
    if _starts_first(self, name):
        raise SystemExit(1)
    last(name, UNTIL_GO)
    return name


# ── retries ──────────────────────────────────────────────────────────────────────────────────


def flaky(self: Any, name: str, failures: int = 2, countdown: float = 0.5, seconds: float = 0.0) -> str:
    work(self, name, seconds)
    if self.request.retries < failures:
        raise self.retry(countdown=countdown, max_retries=10)
    return name


def autoflaky(self: Any, name: str, failures: int = 2, seconds: float = 0.0) -> str:
    work(self, name, seconds)
    if self.request.retries < failures:
        raise ConnectionError(name)
    return name


def hopeless(self: Any, name: str) -> str:
    note(name, "start", id=self.request.id)
    raise self.retry(countdown=0.1, max_retries=1, exc=ValueError(name))


def going_on(self: Any, name: str, seconds: float = 60.0, countdown: float = 1.0) -> str:
    """Send a retry, and go on."""
    note(name, "start", id=self.request.id)
    if not self.request.retries:
        self.retry(countdown=countdown, throw=False)
        note(name, "retried")
        last(name, seconds)
    note(name, "end")
    return name


def wandering(self: Any, name: str, other: str) -> str:
    """Retry with other arguments."""
    note(name, "start", id=self.request.id)
    if name != other:
        raise self.retry(args=(other, other), countdown=1)
    last(name, UNTIL_GO)
    return name


# ── other tasks ──────────────────────────────────────────────────────────────────────────────


def _other(self: Any, name: str) -> Any:
    return self.app.tasks[f"{self.name.rpartition('.')[0]}.{name}"]


def giving_way(self: Any, name: str, to: str, seconds: float = 0.0) -> Any:
    """Be replaced by another task."""
    note(name, "start", id=self.request.id)
    if not to:
        return name
    queue = self.request.delivery_info["routing_key"]
    raise self.replace(_other(self, to).si(name, "" if to == "gives_way" else seconds).set(queue=queue))


def giving_way_to_many(self: Any, name: str, parts: int, slowly: float = 0.0) -> Any:
    """Call `replace()` with a group of equal calls, and linger when they have been sent."""
    note(name, "start", id=self.request.id)
    if not parts:
        return name
    queue = self.request.delivery_info["routing_key"]
    collect = _other(self, "collect").s().set(queue=queue)
    try:
        raise self.replace(group(self.s(name, 0).set(queue=queue) for _ in range(parts)) | collect)
    finally:
        time.sleep(slowly)


def forwarding(self: Any, name: str, to: str) -> str:
    """Send another task with the headers of this one, as tracing middleware does."""
    headers, queue = self.request.headers, self.request.delivery_info["routing_key"]
    return str(self.app.send_task(_other(self, to).name, (name,), headers=headers, queue=queue).id)


def itself(self: Any, name: str, depth: int = 1) -> Any:
    note(name, "start", id=self.request.id, depth=depth)
    inner = self.apply((name, depth - 1)) if depth else None
    return {"depth": depth, "inner": inner and inner.get(disable_sync_subtasks=False)}


def calling_itself(self: Any, name: str, depth: int = 1) -> Any:
    request, current = self.request, current_task.name if current_task else None
    found = {"current": current, "args": list(request.args or ()), "id": request.id}
    return found | {"inner": self(name, depth - 1) if depth else None}
