"""Waiters and backends that have ended leave nothing behind in ZooKeeper."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import operator
import threading
from pathlib import Path

import pytest

from django_redlock.backends.zookeeper import ZooKeeperBackend
from django_redlock.errors import LockLost
from tests.support.service import poll

from .tools import PATIENCE, until_in_line


def watches(backend):
    return backend._session.client._data_watchers


def test_waiters_in_turn_leave_no_watch(backend, unique, pool):
    """Waiters that are served in turn leave no watch on a removed znode."""

    def take():
        for _ in range(20):
            with backend.lock(unique):
                pass

    for each in [pool.submit(take) for _ in range(6)]:
        each.result(PATIENCE)
    poll(lambda: not watches(backend), timeout=PATIENCE, what="the end of all watches")


async def test_cancelled_waiters_leave_no_watch(backend, other, unique):
    """Cancelled waiters leave no watch on the znode in front of them."""
    async with other.lock(unique):
        tasks = [asyncio.create_task(backend.lock(unique).aacquire()) for _ in range(5)]
        await asyncio.to_thread(until_in_line, other, unique, 6)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await asyncio.to_thread(until_in_line, other, unique, 1)
        assert not any(watches(backend).values())


def resources():
    """Return the number of threads and of open files of this process."""
    gc.collect()
    return threading.active_count(), len(list(Path("/dev/fd").iterdir()))


@pytest.mark.parametrize("held", [False, True])
def test_dropped_backends(zookeeper, other, unique, held):
    """Backends that are garbage-collected without `close()` leave no threads, sockets or locks."""
    lock = other.lock(unique)
    lock.acquire()  # starts what stays with the process
    before = resources()

    async def use(number):
        backend = ZooKeeperBackend(zookeeper.hosts, connect_timeout=20, node_timeout=20)
        lock = backend.lock(f"{unique}:{number}")
        await lock.aacquire()
        if not held:
            await lock.arelease()

    for number in range(10):
        asyncio.run(use(number))
    poll(lambda: all(map(operator.le, resources(), before)), timeout=PATIENCE, what="the end of ten backends")
    poll(lambda: not other.held(f"{unique}:*"), timeout=PATIENCE, what="the end of their locks")
    with contextlib.suppress(LockLost):  # on a busy machine its session may have expired
        lock.release()
