"""Removes the records of revoked calls from the lock store as soon as a worker gets the revoke command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, wraps
from typing import Any

from celery.worker import state as worker
from celery.worker.control import Panel
from kombu.utils.functional import maybe_list


@cache
def install(kind: type) -> None:
    """Make the worker's revoke commands remove the records of revoked calls from the lock store.

    ``kind``: the class of the received messages (Celery's ``Request``) of protected tasks. Celery's signal
    ``task_revoked`` would come too late, because Celery sends it when the message is discarded.
    """
    for command in ("revoke", "terminate", "revoke_by_stamped_headers"):
        Panel.data[command] = _cancelling(Panel.data[command], kind)


def _cancelling(revoke: Callable[..., Any], kind: Any) -> Callable[..., Any]:
    @wraps(revoke)
    def revoke_and_cancel(state: Any, *args: Any, **kwargs: Any) -> Any:
        # Celery finds the running request in its dict `requests`. A redelivered copy of the message has replaced this
        # entry. Of several active requests with one id, the oldest runs the body: the store refuses the later ones.
        active = (request for request in _copied(worker.active_requests) if isinstance(request, kind))
        for request in sorted(active, key=lambda request: request.time_start, reverse=True):
            worker.requests[request.id] = request
        answer = revoke(state, *args, **kwargs)
        for request in _received_requests(state):
            if isinstance(request, kind) and (request.id in worker.revoked or _stamped(request)):
                request.cancel_record()
        return answer

    return revoke_and_cancel


def _stamped(request: Any) -> bool:
    """Return whether the request has a stamp that was revoked with ``revoke_by_stamped_headers``."""
    stamps = request.stamps or {}
    return any(
        set(maybe_list(stamps.get(name)) or ()) & set(maybe_list(values) or ())
        for name, values in worker.revoked_stamps.items()
    )


def _received_requests(state: Any) -> Iterator[Any]:
    """Yield all requests (received messages) of the worker that run, are about to run, or wait for ETA or rate limit.

    The worker's table ``requests`` is not enough. It has one request per task id, and drops the id when a request with
    this id ends. So the table misses a retry that arrived before the end of the run that sent it. ``state``: the
    worker's state, the first argument of a revoke command.
    """
    requests = list(worker.requests.values())
    yield from requests
    for bucket in filter(None, state.consumer.task_buckets.values()):
        yield from (request for request, _ in _copied(bucket.contents))
    if hasattr(worker, "scheduled_requests"):
        yield from set(_copied(worker.scheduled_requests)).difference(requests)
        return
    with suppress(TypeError):  # Celery before 5.7 keeps waiting requests only in the timer, which can't sort greenlets
        for waiting in state.consumer.timer.schedule.queue:
            yield from waiting.entry.args[:1]


def _copied(requests: Iterable[Any]) -> list[Any]:
    """Return a copy of ``requests`` as a list. Copies again if a timer thread has changed ``requests`` meanwhile."""
    while True:
        with suppress(RuntimeError):
            return list(requests)
