"""Signals and log records for the events of locks. A failing receiver does not affect a lock."""

import asyncio
import logging
import threading
from functools import partial

import pytest

from django_redlock import lock, locks
from django_redlock.errors import LockLost
from django_redlock.signals import lock_acquired, lock_lost, lock_refused, lock_released

pytestmark = pytest.mark.usefixtures("stores")
SIGNALS = {"acquired": lock_acquired, "released": lock_released, "refused": lock_refused, "lost": lock_lost}


@pytest.fixture
def connect():
    """`connect(signal, receiver)` until the end of the test."""
    connected = []

    def connect(signal, receiver):
        signal.connect(receiver)
        connected.append((signal, receiver))

    yield connect
    for signal, receiver in connected:
        assert signal.disconnect(receiver)


@pytest.fixture
def heard(connect):
    """A list of (kind, sender, event) for each signal. Its `lost` is set by the signal of a loss."""

    class Heard(list):
        lost = threading.Event()

    heard = Heard()

    def receiver(kind, sender, event, **_kwargs):
        if event.lock.store is locks[event.alias]:  # not a lock of a test before
            heard.append((kind, sender, event))
            if kind == "lost":
                heard.lost.set()

    receivers = [partial(receiver, kind) for kind in SIGNALS]
    for each, signal in zip(receivers, SIGNALS.values(), strict=True):
        connect(signal, each)
    return heard


@pytest.mark.parametrize("using", ["default", "memory"])
def test_signals(heard, using):
    """acquired, refused and released are sent with the backend's class as sender, and with name, place and times."""
    with lock("stock", using, owner="till 7") as held:
        lock("stock", using).acquire(blocking=False)
    assert [kind for kind, _, _ in heard] == ["acquired", "refused", "released"]
    assert {sender for _, sender, _ in heard} == {type(locks[using])}
    acquired, refused, released = (event for _, _, event in heard)
    assert (acquired.name, acquired.alias, acquired.kind, acquired.lock) == ("stock", using, "acquired", held)
    assert "till 7" in refused.holder
    assert released.held >= 0


def test_lost(heard, caplog):
    """A lost lock is signalled once, and logged once as a warning."""
    with pytest.raises(LockLost), lock("stock"):
        locks["default"].force_release("stock")
    assert heard.lost.wait(20)
    assert [kind for kind, _, _ in heard] == ["acquired", "lost"]
    assert [record.levelname for record in caplog.records if "'stock'" in record.getMessage()] == ["WARNING"]


async def test_async(heard):
    """Locks in coroutines send the same signals."""
    async with lock("stock"):
        pass
    await locks["default"].aclose()
    assert [kind for kind, _, _ in heard] == ["acquired", "released"]


@pytest.mark.parametrize("kind", ["acquired", "released", "refused"])
def test_receiver_that_fails(connect, request, caplog, kind):
    """An error of a receiver is logged, and neither the lock nor other receivers are affected."""

    def receiver(**kwargs):
        raise ZeroDivisionError("in a receiver")

    connect(SIGNALS[kind], receiver)
    heard = request.getfixturevalue("heard")  # the others come after it
    with lock("stock"):
        assert lock("stock").locked()
        assert not lock("stock").acquire(blocking=False)
    assert not lock("stock").locked()
    assert [kind for kind, _, _ in heard] == ["acquired", "refused", "released"]
    [record] = [record for record in caplog.records if record.thread == threading.get_ident()]
    assert "ZeroDivisionError: in a receiver" in caplog.text
    assert record.levelno == logging.ERROR


def test_async_receiver(connect):
    """A receiver may be a coroutine function for a lock in a thread."""
    heard = []

    async def receiver(event, **kwargs):
        await asyncio.sleep(0)
        heard.append(event.name)

    connect(lock_acquired, receiver)
    with lock("stock"):
        assert heard == ["stock"]


def test_receiver_that_locks(connect):
    heard = []

    def receiver(event, **kwargs):
        if event.name == "stock":
            with lock("audit") as audit:
                heard.append(audit.owned())

    connect(lock_acquired, receiver)
    with lock("stock"):
        assert heard == [True]


def test_log_records(caplog):
    """At level DEBUG each event is a log record with its facts as attributes."""
    caplog.set_level(logging.DEBUG, "django_redlock.events")
    with lock("stock"):
        lock("stock").acquire(blocking=False)
    mine = [record for record in caplog.records if record.thread == threading.get_ident()]
    records = [record for record in mine if record.name == "django_redlock.events"]
    assert [record.lock_kind for record in records] == ["acquired", "refused", "released"]
    assert {(record.lock_name, record.lock_alias) for record in records} == {("stock", "default")}
    assert records[1].lock_holder
    assert "lock 'stock' on 'default' was refused" in caplog.text
