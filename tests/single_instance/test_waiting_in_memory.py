"""Bodies that wait for the records of other tasks in memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.backends.locmem.task_store import MemoryStore
from django_redlock.backends.locmem.task_table import TaskTable
from django_redlock.core.flow.drivers import drive
from django_redlock.core.flow.requests import BlockThenEval
from django_redlock.core.keys import keys_for
from django_redlock.core.owner import describe_owner
from django_redlock.core.values import Claim, Lease, new_token
from django_redlock.single_instance.body import BODY
from django_redlock.single_instance.call import TaskCall
from django_redlock.single_instance.modes import MODES


@pytest.fixture
def store(unique):
    return MemoryStore(LocMemBackend(unique))


def claim(name, task):
    keys = keys_for(b"redlock", name.encode())
    call = TaskCall(name, keys, "t", task, f"{task}-1", MODES["while_executing"], 1, 600.0, 60.0)
    return Claim(
        name, (keys,), new_token(), describe_owner({"task_id": task}), 60.0, payload=call._replace(ending="ended")
    )


def start(store, mine, wait=0.0, perform=None):
    deadline = store.clock() + wait
    return drive(store.algorithm.acquire(BODY, mine, deadline), perform or store.perform)


def end(store, lease):
    assert store.perform(BODY.release_request(lease.claim))


def test_an_end_before_the_wait(store, unique):
    """A body that ends between a refusal and the wait is noticed at once."""
    first = start(store, claim(unique, "a"))

    def perform(request):
        if isinstance(request, BlockThenEval):
            end(store, first)
            request = request._replace(seconds=60)
        return store.perform(request)

    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(start, store, claim(unique, "b"), 20, perform)
        assert isinstance(second.result(30), Lease)


def test_waiters_do_not_wake_each_other(store, unique, monkeypatch):
    """Waiters run their scripts again only after a change."""
    first, run, runs = start(store, claim(unique, "a")), TaskTable.run, []
    monkeypatch.setattr(TaskTable, "run", lambda *args: runs.append(args[1]) or run(*args))
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(start, store, claim(unique, task), 1) for task in "bc"]
        assert not any(isinstance(each.result(30), Lease) for each in waiting)
    assert len(runs) < 20
    end(store, first)
