"""Tasks while their store is unavailable, or a reply of it is lost."""

import asyncio

import pytest
from django.db import transaction

from django_redlock import locks
from django_redlock.core.flow.scripts import script
from tests.support.locks import redis_entry
from tests.support.service import poll


@pytest.fixture
def far_store(proxy, redis_server, settings):
    """The store with the alias ``down`` is up until the test stops its proxy. ``near`` is a direct way to it."""
    redis = settings.REDLOCK["default"]
    settings.REDLOCK = {**settings.REDLOCK, "down": {**redis, "LOCATION": proxy.url}}
    settings.REDLOCK["near"] = {**redis, "LOCATION": redis_server.url}
    return proxy


def run_queue():
    """Run all queued calls, as ``db_worker --batch``."""
    from django_tasks_db.management.commands.db_worker import Worker

    Worker(
        queue_names=["default"],
        interval=0,
        batch=True,
        backend_name="default",
        startup_delay=False,
        max_tasks=None,
        worker_id="test",
        excluded_queue_names=[],
    ).run()


@pytest.mark.parametrize(("task", "prefix"), [("protected", "down"), ("unprotected", "own")])
def test_store_down_at_the_start(database, app, unique, far_store, task, prefix):
    """The call has ended, failed or unprotected, so its record goes when the store is back."""
    result = getattr(app, task).enqueue(unique)
    assert locks["down"].describe(f"{prefix}:{unique}").owner.extra["task_id"] == result.id
    far_store.refuse()
    far_store.cut()
    run_queue()
    result.refresh()
    assert result.status == ("FAILED" if task == "protected" else "SUCCESSFUL")
    far_store.restore()
    poll(lambda: locks["down"].describe(f"{prefix}:{unique}") is None, timeout=60, what="the end of the record")


def test_lost_reply_before_a_rollback(database, app, unique, far_store):
    """The record is found under the id that it got by the script whose reply was lost."""
    app.protected.enqueue(f"{unique}-first")  # the server knows the scripts now
    with transaction.atomic(using=database):
        lost = far_store.lose_next_reply(script("task_rename").sha)
        app.protected.enqueue(unique)
        assert lost.is_set()
        transaction.set_rollback(True, using=database)
    assert locks["down"].describe(f"down:{unique}") is None


async def test_cancelled_call(dummy, app, unique, held, events):
    """A body in a thread can't be stopped: it keeps its lock to its end."""
    call = asyncio.create_task(app.until.acall(unique, waits=True))
    await asyncio.to_thread(events, "start", 1)
    call.cancel()
    done, _ = await asyncio.wait([call], timeout=1)
    assert not done
    assert held(f"until:{unique}")[0] == "running"
    events.go()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert len(events("end")) == 1
    assert held(f"until:{unique}") is None


async def test_cancelled_enqueue(dummy, app, unique, far_store, settings):
    """A call that is cancelled before it is sent leaves no record, also if the server has written it."""
    settings.REDLOCK = {**settings.REDLOCK, "down": redis_entry(far_store.url, node_timeout=2)}
    await app.protected.aenqueue(f"{unique}-first")  # the server knows the scripts now

    def has_record():
        return locks["near"].describe(f"down:{unique}") is not None

    far_store.hold("replies")
    call = asyncio.create_task(app.protected.aenqueue(unique))
    await asyncio.to_thread(poll, has_record, timeout=60, what="the record")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    far_store.restore()
    await asyncio.to_thread(poll, lambda: not has_record(), timeout=60, what="the end of the record")
