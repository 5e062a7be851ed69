"""Finds lost calls, which the lock store lists as queued although the broker has no message for them.

A message is lost, for example, when a queue is purged or the broker loses its data.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from amqp.exceptions import NotFound
from celery import Celery, current_app

from ..backend_registry import locks
from ..core.keys import keys_for
from ..core.owner import Owner
from ..errors import LockError
from ..formatting import lost_calls_text
from ..single_instance.records import cancel_request

MIN_AGE_SECONDS = 60.0  # younger records are ignored, because a record is written before its message is sent
SECOND_LOOK_SECONDS = 2.0  # pause between two looks; one look may miss a message on its way from queue to worker
INSPECT_SECONDS = 1.0  # timeout for the replies of workers
# Queues of RabbitMQ in which Celery lets calls wait for their ETA if it finds a quorum queue in the settings. A message
# moves from each to a later one, and at last to the queue of its task.
_DELAYED = [f"celery_delayed_{level}" for level in range(27, -1, -1)]
_PAGE = 1000


class LostCall(NamedTuple):
    """A queued call without a message in the broker.

    ``name``: the lock's name. ``task``: the task's name. ``age``: seconds since the call was queued.
    """

    name: str
    task: str
    task_id: str
    age: float


class BrokerUnreadable(Exception):
    """The messages of the broker can't be read, so lost calls can't be found."""


def lost_calls(alias: str, app: Celery = current_app) -> list[LostCall]:
    """Return the queued calls of the store ``alias`` whose message was missing from the broker twice, 2 seconds apart.

    Omits calls that were queued within the last minute, calls in mode ``until_expired`` (their records outlive their
    messages), and tasks that ``app`` does not know. Raises `BrokerUnreadable`, and ``LockError`` when the store fails.
    """
    if not (first := _calls_without_message(alias, app)):
        return []
    time.sleep(SECOND_LOOK_SECONDS)
    second = _calls_without_message(alias, app)
    return [second[key] for key in sorted(first.keys() & second.keys())]


def cancel_lost(alias: str, lost: Iterable[LostCall]) -> int:
    """Remove the records of the calls ``lost`` from the store ``alias``. Returns the number of removed records.

    A call that is no longer queued has no record to remove. Raises ``LockError``.
    """
    backend: Any = locks[alias]
    requests = (cancel_request(keys_for(backend.encoded_prefix, each.name.encode()), each.task_id) for each in lost)
    return sum(backend.perform(request) == 1 for request in requests)


def check_tasks(alias: str, fix: bool) -> dict[str, Any]:
    """Look for lost calls in one store, and return the row that ``redlock_check --tasks`` prints for it.

    The row is a dict. ``lost`` in it lists the lost calls, and ``fixed`` is the number of records that were removed. If
    the broker or the store can't be read, a warning takes their place. Another warning names the calls whose records
    stay. ``fix``: remove the records of lost calls.
    """
    current_app.loader.import_default_modules()
    row: dict[str, Any] = {"node": "tasks", "ok": True, "problems": [], "warnings": []}
    try:
        lost = lost_calls(alias)
        fixed = cancel_lost(alias, lost) if fix else 0
    except (BrokerUnreadable, LockError) as error:
        row["warnings"].append(f"queued tasks were not compared with the broker: {error}")
        return row
    row["lost"] = [each._asdict() for each in lost]
    row["fixed"] = fixed
    if fixed < len(lost):
        row["warnings"].append(lost_calls_text(row["lost"], fixed if fix else None))
    return row


def _calls_without_message(alias: str, app: Celery) -> dict[tuple[str, str], LostCall]:
    calls = list(_queued_calls(alias, app))
    ids = message_ids(app) if calls else set()
    return {(each.name, each.task_id): each for each in calls if each.task_id not in ids}


def _queued_calls(alias: str, app: Celery) -> Iterator[LostCall]:
    for info in locks[alias].held():
        for owner in info.holders if info.kind == "task" else ():
            call = LostCall(info.name, str(owner.label), str(owner.extra.get("task_id")), time.time() - owner.since)
            if owner.extra.get("state") == "queued" and call.age >= MIN_AGE_SECONDS and _keeps_message(app, owner):
                yield call


def _keeps_message(app: Celery, owner: Owner) -> bool:
    task_lock = getattr(app.tasks.get(owner.label), "redlock", None)
    return task_lock is not None and not task_lock.options.states.until_expiry


# ── the broker ───────────────────────────────────────────────────────────────────────────────────


def message_ids(app: Celery) -> set[str]:
    """Return the ids of the tasks whose messages are in a queue or with a worker.

    Raises `BrokerUnreadable` if the broker is unavailable or is neither Redis nor RabbitMQ, and if a RabbitMQ queue is
    not empty, because its messages can't be read.
    """
    with app.connection_for_read() as connection:
        kind = connection.transport.driver_type
        try:
            if kind == "redis":
                return {*_ids_in_redis(connection.default_channel, app), *_ids_of_workers(app)}
            if kind == "amqp":
                ids = set(_ids_of_workers(app))
                _check_rabbitmq_is_empty(connection, app)
                return ids | set(_ids_of_workers(app))
        except connection.connection_errors + connection.channel_errors as error:
            raise BrokerUnreadable(f"the broker is unavailable: {error}") from error
    raise BrokerUnreadable(f"messages of the transport {kind!r} can't be read")


def _ids_in_redis(channel: Any, app: Celery) -> Iterator[str]:
    """Yield the task ids of the messages in all queues on this Redis, and of messages not yet acknowledged.

    The queues are those that ``app`` declares, and all others that are bound to an exchange.
    """
    from redis import Redis  # not installed with every broker

    redis: Any = Redis(connection_pool=channel.client.connection_pool)  # kombu's client prefixes only some keys
    prefix = channel.global_keyprefix
    queues = set(app.amqp.queues)
    for key in redis.scan_iter(match=f"{prefix}{channel.keyprefix_queue % '*'}", count=_PAGE):
        queues |= {each.decode().split(channel.sep)[2] for each in redis.smembers(key)}
    for queue in queues:
        for priority in channel.priority_steps:
            yield from _ids_in_list(redis, f"{prefix}{queue}{channel.sep}{priority}" if priority else prefix + queue)
    for _, value in redis.hscan_iter(prefix + channel.unacked_key, count=_PAGE):
        yield _task_id(json.loads(value)[0])


def _ids_in_list(redis: Any, key: str) -> Iterator[str]:
    first = 0
    # New messages are pushed at the front and shift the list, so a page may repeat messages but skips none.
    while page := redis.lrange(key, first, first + _PAGE - 1):
        yield from (_task_id(json.loads(each)) for each in page)
        first += _PAGE


def _task_id(message: dict[str, Any]) -> str:
    return str(message.get("headers", {}).get("id") or message.get("properties", {}).get("correlation_id"))


def _ids_of_workers(app: Celery) -> Iterator[str]:
    """Yield the ids of the tasks that workers have received. Workers that don't reply in time are omitted."""
    inspect = app.control.inspect(timeout=INSPECT_SECONDS)
    answers: tuple[Any, ...] = (inspect.reserved(), inspect.scheduled(), inspect.active())
    for replies in answers:
        for requests in (replies or {}).values():
            yield from (each.get("request", each)["id"] for each in requests)


def _check_rabbitmq_is_empty(connection: Any, app: Celery) -> None:
    """Raise `BrokerUnreadable` unless every queue is empty and all its consumers are workers that reply in time.

    Checks the queues that ``app`` declares, those of the workers, and before them those in which Celery lets calls wait
    for their ETA. No message is read, because RabbitMQ takes a message from the queue when it is read.
    """
    workers = app.control.inspect(timeout=INSPECT_SECONDS).active_queues() or {}
    consumed = [queue["name"] for queues in workers.values() for queue in queues]
    for queue in (*_DELAYED, *{*app.amqp.queues, *consumed}):
        try:
            with connection.channel() as channel:
                _, messages, consumers = channel.queue_declare(queue, passive=True)
        except NotFound:
            continue
        if messages:
            raise BrokerUnreadable(f"queue {queue!r} of RabbitMQ has {messages} messages, which can't be read")
        if consumers > consumed.count(queue):
            raise BrokerUnreadable(f"of {consumers} workers on queue {queue!r}, {consumed.count(queue)} have answered")
