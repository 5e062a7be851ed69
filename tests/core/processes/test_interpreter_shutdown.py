"""Locks while the interpreter shuts down, and under gevent that patches late, as with a preloaded application."""

import subprocess
import sys
import textwrap

import pytest

DELETED = """
    class Last:
        def __del__(self):
            use()

    last = Last()
"""
AT_EXIT = """
    import atexit

    atexit.register(lambda: use())
"""


@pytest.mark.parametrize("moment", [DELETED, AT_EXIT], ids=["__del__", "atexit"])
@pytest.mark.parametrize("hook", [None, "event_queue.record_event"], ids=["without history", "with history"])
def test_first_lock(moment, hook):
    """A process can acquire and release its first lock at its end, when threads can't be started."""
    code = f"""
        from django_redlock.backends.locmem import LocMemBackend
        from django_redlock.history.event_queue import event_queue

        backend = LocMemBackend("end")
        backend.hook = {hook}
        event_queue.subscribe("test", [].extend)

        def use(backend=backend, print=print):
            with backend.lock("x") as held:
                print(held.token is not None, held.remaining > 0)
            print(backend.lock("x").locked(), flush=True)
    """
    code = textwrap.dedent(code) + textwrap.dedent(moment)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (ended.stdout.split(), ended.stderr, ended.returncode) == (["True", "True", "False"], "", 0)


CODE = """
    import warnings

    from django_redlock.backends.locmem import LocMemBackend

    warnings.simplefilter("ignore")
    from gevent import joinall, monkey, spawn

    monkey.patch_all()

    def use(name):
        with backend.lock(name):
            return name

    backend = LocMemBackend("late")
    done = joinall([spawn(use, name) for name in "abc"], timeout=20)
    print(*sorted(each.get() for each in done))
"""


def test_patched_after_import():
    """A worker that gevent patches after the import can acquire and release locks."""
    pytest.importorskip("gevent")
    run = [sys.executable, "-c", textwrap.dedent(CODE)]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout.split(), ended.stderr) == (["a", "b", "c"], "")
