"""Waiters and backends that have ended leave nothing behind in ZooKeeper."""

from __future__ import annotations

import asyncio
import threading

from django_redlock.backends.zookeeper.session import Session
from tests.support.service import poll

from .tools import PATIENCE, until_in_line


def watches(backend):
    return backend._session.client._data_watchers


def until_no_watch(backend):
    poll(lambda: not any(watches(backend).values()), timeout=PATIENCE, what="the end of all watches")


async def hold(backend, name):
    """Acquire a lock until the session ends. Its znode isn't written again, which would end the watches."""
    assert await backend.lock(name, ttl=4 * PATIENCE, auto_renew=False).aacquire(False)


async def test_cancelled_waiters_leave_no_watch(backend, other, unique):
    await hold(other, unique)
    tasks = [asyncio.create_task(backend.lock(unique).aacquire()) for _ in range(5)]
    await asyncio.to_thread(until_in_line, other, unique, 6)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await asyncio.to_thread(until_in_line, other, unique, 1)
    await asyncio.to_thread(until_no_watch, backend)


async def test_a_request_for_a_watch_is_under_way(backend, other, unique, monkeypatch):
    """A cancelled waiter leaves no watch even if its request for the watch is answered after its znode is removed."""
    asked, removed, watched, send = threading.Event(), threading.Event(), threading.Event(), Session.send

    def delayed(self, method, *args, **options):
        if "watch" in options:
            asked.set()
            removed.wait(PATIENCE)
        elif self is backend._session and removed.is_set():
            watched.set()  # the waiter has had its reply, and asks who holds the lock
        pending = send(self, method, *args, **options)
        if method == "delete":
            pending.wait(PATIENCE)
            removed.set()
        return pending

    await hold(other, unique)
    monkeypatch.setattr(Session, "send", delayed)
    task = asyncio.create_task(backend.lock(unique).aacquire())
    await asyncio.to_thread(asked.wait, PATIENCE)
    task.cancel()
    await asyncio.wait([task])
    assert await asyncio.to_thread(watched.wait, PATIENCE)
    await asyncio.to_thread(until_no_watch, backend)
