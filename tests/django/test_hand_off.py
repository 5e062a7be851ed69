"""A view or a command takes a lock, and another process goes on with it: `django_redlock.adopt`."""

import asyncio
import base64
import json

import pytest
from django.db import transaction
from django.http import HttpResponse
from django.test import RequestFactory

from django_redlock import aadopt, adopt, lock, locks
from django_redlock.core.locks.hand_off import HANDED_OFF
from django_redlock.decorators import locked_view
from django_redlock.errors import LockLost, LockNotAcquired
from django_redlock.history.event_queue import event_queue
from django_redlock.signals import lock_acquired, lock_released
from django_redlock.testing.conformance.harness.fixtures import in_child

pytestmark = pytest.mark.usefixtures("stores")


@pytest.fixture
def held():
    """A held lock."""
    held = lock("order:17")
    held.acquire()
    return held


@pytest.mark.parametrize("stripes", [None, 4])
def test_view(stripes):
    """The lock of a view that hands it off outlives the request, and the task releases it."""

    @locked_view("order:{pk}", stripes=stripes)
    def view(request, pk):
        return HttpResponse(request.lock.hand_off(), status=202)

    response = view(RequestFactory().get("/"), pk=17)
    assert response.status_code == 202
    [held] = locks["default"].held("*order:17*")
    with adopt(response.text, owner="the task") as adopted:
        assert adopted.name == held.name
        assert locks["default"].describe(held.name).owner.label == "the task"
    assert locks["default"].held("*order:17*") == []


async def test_async_view():
    """The same in coroutines."""

    @locked_view("order:{pk}")
    async def view(request, pk):
        return HttpResponse(await request.lock.ahand_off())

    async with await aadopt((await view(RequestFactory().get("/"), pk=17)).text) as held:
        assert await held.aowned()
    assert not await lock("order:17").alocked()
    await locks["default"].aclose()


@pytest.mark.parametrize("alias", ["default", "memory"])
def test_alias(alias):
    """An adopted lock has the first holder's alias, unless another is named."""
    held = lock("order:17", alias)
    held.acquire()
    adopted = adopt(held.hand_off())
    assert adopted.store is locks[alias]
    with pytest.raises(LockLost):
        adopt(adopted.hand_off(), using="memory" if alias == "default" else "default")


def test_text_of_the_first_version():
    """The text of 1.0.0, whose token this version doesn't know, is that of a lost lease: callers handle LockLost."""
    parts = [1, "default", locks["default"].key_prefix, ["order:17"], False, "a" * 16 + "00000001", 10.0, True, 17]
    text = base64.urlsafe_b64encode(json.dumps(parts).encode()).rstrip(b"=").decode()
    with pytest.raises(LockLost):
        adopt(text)


@pytest.mark.parametrize(("text", "error", "match"), [("order:17", ValueError, "hand_off"), (None, TypeError, "str")])
def test_bad_input(text, error, match):
    with pytest.raises(error, match=match):
        adopt(text)
    with pytest.raises(TypeError, match="timeout"):
        adopt("order:17", timeout=5)


async def test_in_a_coroutine(held):
    """adopt() in a coroutine raises an error that names aadopt()."""
    text = await asyncio.to_thread(held.hand_off)
    with pytest.raises(RuntimeError, match="aadopt"):
        adopt(text)
    await asyncio.to_thread(lambda: adopt(text).release())


def test_lost_before_the_block(held):
    """A block with an adopted lease that was lost meanwhile raises LockLost before it begins."""
    adopted = adopt(held.hand_off(), on_lost="warn")
    adopted.hold.mark_lost("by the test")
    with pytest.raises(LockLost), adopted:
        pytest.fail("the block has begun")


def test_block_in_a_child(held):
    """The block of a handle in a forked child does not begin while the parent holds the lock."""
    adopted = adopt(held.hand_off(), blocking=False)
    assert isinstance(in_child(adopted.__enter__), LockNotAcquired)
    with adopted:
        adopted.check()


def test_signals(held):
    """A hand-off signals a release with its reason and an acquisition."""
    seen = []

    def see(event, **_):
        seen.append((event.kind, event.reason))

    for signal in (lock_acquired, lock_released):
        signal.connect(see)
    adopt(held.hand_off()).release()
    for signal in (lock_acquired, lock_released):
        signal.disconnect(see)
    assert seen == [("released", HANDED_OFF), ("acquired", ""), ("released", "")]
    event_queue.flush()


@pytest.mark.django_db(transaction=True)
def test_transactions(caplog):
    """A lock can be handed off within a transaction, without a warning. The transaction then does not keep it."""
    with transaction.atomic():
        with lock("order:17", release_on_commit=True) as held:
            text = held.hand_off()
        assert lock("order:17").locked()
    assert lock("order:17").locked()
    adopt(text).release()
    with transaction.atomic(), lock("order:18") as held:
        text = held.hand_off()
    assert [record for record in caplog.records if record.name == "django_redlock.transactions"] == []
    adopt(text).release()
