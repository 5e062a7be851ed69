"""The queue between locks and the listeners of their events."""

import threading
import time

import pytest

from django_redlock.history import event_queue as module
from django_redlock.history.event_queue import MAX_RECORDS, EventQueue, EventRecord
from django_redlock.testing.conformance.harness.fixtures import in_child
from tests.support.service import poll


def event(name="stock"):
    return EventRecord(time.time(), "acquired", name)


@pytest.fixture
def seen():
    """The names of the events that the listener of `queue` has got."""
    return []


@pytest.fixture
def queue(seen):
    queue = EventQueue()
    queue.subscribe("test", lambda records: seen.extend(each.name for each in records))
    return queue


def test_one_thread_for_all(queue, seen, monkeypatch):
    """Events of many threads start one thread, which ends when idle and starts again with the next event."""
    monkeypatch.setattr(module, "INTERVAL", 0.01)
    started = []
    run = queue._run
    monkeypatch.setattr(queue, "_run", lambda: (started.append(threading.current_thread()), run()))
    for round_ in (1, 2):
        monkeypatch.setattr(module, "IDLE_ROUNDS", 100_000)  # however late some of the threads are
        threads = [threading.Thread(target=queue.record, args=(event(),)) for _ in range(20)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        poll(lambda: len(seen) == 20 * round_, timeout=20, what="all events")  # noqa: B023
        monkeypatch.setattr(module, "IDLE_ROUNDS", 1)
        poll(lambda: queue._thread is None, timeout=20, what="the thread's end")
        started[-1].join(20)
        assert (len(started), len(seen)) == (round_, 20 * round_)


def test_listener_that_fails(queue, seen, caplog):
    """An error in a listener is logged, and the other listeners are served."""

    def fail(_records):
        raise ZeroDivisionError("in a watcher")

    queue.listeners = {"failing": fail, **queue.listeners}
    queue.record(event())
    queue.flush()
    assert seen == ["stock"]
    logged = [record for record in caplog.records if record.exc_info and "in a watcher" in str(record.exc_info[1])]
    assert [record.levelname for record in logged] == ["ERROR"]


def test_full_queue_drops_events(queue, seen, monkeypatch):
    monkeypatch.setattr(queue, "_start", lambda: None)
    for name in ["old", *["new"] * MAX_RECORDS]:
        queue.record(event(name))
    queue.flush()
    assert seen == ["new"] * MAX_RECORDS


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork():
    """A forked child delivers its own events with its own thread, and does not repeat events of its parent."""
    queue, seen = module.event_queue, []
    ours = {"parent", "child"}  # other tests' servers may have gone only now

    def child():
        seen.clear()
        queue.record(event("child"))
        poll(lambda: seen, timeout=20, what="the child's thread")
        return seen

    queue.subscribe("test", lambda records: seen.extend(each.name for each in records if each.name in ours))
    try:
        queue.record(event("parent"))
        assert in_child(child) == ["child"]
        queue.flush()
        assert seen == ["parent"]
    finally:
        queue.unsubscribe("test")
