"""The pytest plugin, in separate pytest processes of projects with and without Django."""

import os
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
SETTINGS = """
REDLOCK = {
    "default": {
        "BACKEND": "django_redlock.backends.redis.RedisBackend",
        "LOCATION": "redis://127.0.0.1:1/0",
        "OPTIONS": {"ttl": 7},
    },
}
INSTALLED_APPS = ["django_redlock"]
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """`run(tests, *arguments)`: pytest on a file of tests, by default beside settings."""
    for name in [name for name in os.environ if name.startswith(("PYTEST_", "DJANGO_SETTINGS", "COV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def go(tests, *arguments, django=True):
        if django:
            monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "project_settings")
            pytester.makepyfile(project_settings=SETTINGS)
        pytester.makepyfile(test_it=tests)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)

    return go


def test_fixtures(run):
    """The fixtures give locks in memory for each test, assertions and a clock."""
    done = run(
        """
        import pytest
        from django_redlock import lock
        from django_redlock.testing import assert_locked, assert_not_locked

        @pytest.mark.parametrize("turn", [1, 2])
        def test_isolated(redlock, turn):
            assert_not_locked("left behind")
            lock("left behind").acquire()
            assert_locked("left behind")

        def test_time(redlock_clock):
            held = lock("x", auto_renew=False)
            held.acquire()
            redlock_clock.advance(8)
            assert held.lost

        def test_dummy(redlock_dummy):
            with lock("x"), lock("x"):
                pass

        def test_that_fails(redlock):
            assert_locked("x")
    """
    )
    done.assert_outcomes(passed=4, failed=1)
    done.stdout.fnmatch_lines(["*AssertionError: lock 'x' on 'default' is not held (held: none)"])


def test_settings_are_restored(run):
    """After a test that has also changed settings with the fixture of pytest-django, the project's locks are back."""
    done = run("""
        import pytest
        from django.conf import settings as project
        from django_redlock import lock, locks
        from django_redlock.backends.redis import RedisBackend
        from django_redlock.testing import assert_locked

        @pytest.fixture(autouse=True)
        def real_locks_around():
            assert type(locks["default"]) is RedisBackend
            yield
            assert type(locks["default"]) is RedisBackend
            assert project.REDLOCK["default"]["OPTIONS"] == {"ttl": 7}

        def test_changed_over_the_locks(settings, redlock):
            settings.DEBUG = True
            lock("x").acquire()
            assert_locked("x")

        def test_after_it():
            assert not project.DEBUG

        def test_changed_below_the_locks(redlock, settings):
            settings.DEBUG = True
            lock("x").acquire()

        def test_deleted_and_set_again(settings, redlock):
            del settings.REDLOCK
            settings.REDLOCK = {"default": "not an entry"}

        def test_after_that():
            pass
    """)
    done.assert_outcomes(passed=5)


def test_imports_no_libraries(run):
    """A project that doesn't use the plugin gets no imports of Django or client libraries, and no warning."""
    arguments = "-p", "no:django", "-p", "no:asyncio", "-W", "error"
    done = run(
        """
        import sys

        def test_imports():
            assert "django_redlock.testing.plugin" in sys.modules
            loaded = {name.partition(".")[0] for name in sys.modules}
            assert not loaded & {"django", "asgiref", "redis", "celery", "kazoo"}
            ours = {"django_redlock.core", "django_redlock.backends", "django_redlock.backend_registry"}
            assert not ours & set(sys.modules)
    """,
        *arguments,
        django=False,
    )
    done.assert_outcomes(passed=1)
    done.stdout.no_fnmatch_line("*warning*")
