"""gevent that patches late: gunicorn with a preloaded application patches in its workers."""

import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("gevent")

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
    run = [sys.executable, "-c", textwrap.dedent(CODE)]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout.split(), ended.stderr) == (["a", "b", "c"], "")
