"""In a worker's main process: what is revoked is in nobody's way, although its message is kept until its ETA."""

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
    """Have the worker's commands that revoke free the locks of requests of this kind. Celery has no signal for it:
    ``task_revoked`` comes when a message is discarded.
    """
    for command in ("revoke", "terminate", "revoke_by_stamped_headers"):
        Panel.data[command] = _releasing(Panel.data[command], kind)


def _releasing(revoke: Callable[..., Any], kind: Any) -> Callable[..., Any]:
    @wraps(revoke)
    def freeing(state: Any, *args: Any, **kwargs: Any) -> Any:
        answer = revoke(state, *args, **kwargs)
        for request in _received_requests(state):
            if isinstance(request, kind) and (request.id in worker.revoked or _stamped(request)):
                request.cancel_record()
        return answer

    return freeing


def _stamped(request: Any) -> bool:
    """Whether it bears a stamp that is revoked."""
    stamps = request.stamps or {}
    return any(
        set(maybe_list(stamps.get(name)) or ()) & set(maybe_list(values) or ())
        for name, values in worker.revoked_stamps.items()
    )


def _received_requests(state: Any) -> Iterator[Any]:
    """What the worker has in hand: what runs, is about to, or waits for its ETA or its rate limit.

    The worker's table has one request for each id, and forgets the id when one of them ends: a retry that was received
    before the run that sent it was over is not found there.
    """
    requests = list(worker.requests.values())
    yield from requests
    for bucket in filter(None, state.consumer.task_buckets.values()):
        yield from (request for request, _ in _copied(bucket.contents))
    if hasattr(worker, "scheduled_requests"):
        yield from set(_copied(worker.scheduled_requests)).difference(requests)
        return
    with suppress(TypeError):  # before Celery 5.7 the timer alone knows these, and can't sort greenlets
        for waiting in state.consumer.timer.schedule.queue:
            yield from waiting.entry.args[:1]


def _copied(requests: Iterable[Any]) -> list[Any]:
    """Of what a timer's thread may change meanwhile."""
    while True:
        with suppress(RuntimeError):
            return list(requests)
