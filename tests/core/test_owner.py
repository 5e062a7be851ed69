"""Who a lock's value says holds it."""

import _thread
import threading

from django_redlock.core.owner import Owner, describe_owner


def test_a_thread_of_another_library_leaves_no_entry():
    """Describing a thread that was not started through `threading` doesn't register it there for ever."""
    before, done = len(threading.enumerate()), _thread.allocate_lock()
    done.acquire()
    told = []

    def work():
        told.append(Owner.parse(describe_owner()))
        done.release()

    _thread.start_new_thread(work, ())
    assert done.acquire(timeout=10)
    assert told[0].thread
    assert len(threading.enumerate()) == before


def test_a_thread_is_named():
    """A thread that has a name is known by it."""
    told = []
    thread = threading.Thread(target=lambda: told.append(Owner.parse(describe_owner())), name="night shift")
    thread.start()
    thread.join(10)
    assert told[0].thread == "night shift"
