"""The public names, the modules that their import loads, and the errors if an optional package is not installed."""

import importlib
import os
import pkgutil
import subprocess
import sys

import pytest

import django_redlock

# What the documentation promises, by module.
PROMISED = {
    "django_redlock": "aadopt adopt errors fair_lock leader lock locks multilock rlock rwlock semaphore striped",
    "django_redlock.errors": "LockDeadlock LockError LockLost LockNotAcquired LockNotHeld LockNotSupported "
    "LockUnavailable PermitNotHeld StaleLock",
    "django_redlock.fencing": "FencedManager FencedModel FencedQuerySet",
    "django_redlock.decorators": "idempotent locked locked_view",
    "django_redlock.celery": "SingleInstance single_instance_task",
    "django_redlock.celery.beat": "LeaderScheduler",
    "django_redlock.tasks": "single_instance_task",
    "django_redlock.signals": "lock_abandoned lock_acquired lock_forced lock_lost lock_refused lock_released "
    "task_duplicate",
    "django_redlock.models": "HeldLock",
    "django_redlock.cache": "aget_or_compute get_or_compute",
    "django_redlock.testing": "Clock Rehearsal assert_enqueued_once assert_locked assert_not_locked override_locks",
    "django_redlock.backends.redis": "RedisBackend",
    "django_redlock.backends.redlock": "RedlockBackend",
    "django_redlock.backends.replica": "ReplicaBackend",
    "django_redlock.backends.timestamp": "TimestampBackend",
    "django_redlock.backends.zookeeper": "ZooKeeperBackend",
    "django_redlock.backends.locmem": "LocMemBackend",
    "django_redlock.backends.dummy": "DummyBackend",
    "django_redlock.backends.storage": "StorageBackend",
}
MODULES = [module.name for module in pkgutil.walk_packages(django_redlock.__path__, "django_redlock.")]
CORE = [name for name in MODULES if name.startswith("django_redlock.core")]
WITHOUT_DJANGO = [name for name in MODULES if name.split(".")[1] in ("core", "client", "history", "backends")]


@pytest.mark.parametrize(("module", "names"), PROMISED.items())
def test_promised_names(module, names):
    assert [name for name in names.split() if not hasattr(importlib.import_module(module), name)] == []


def run(program, *arguments):
    """Return the output of a program in a new process, in which no settings are configured."""
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


LOADED = "import sys; [__import__(name) for name in sys.argv[1:]]; print(*{name.split('.')[0] for name in sys.modules})"


def test_core_needs_the_standard_library_only():
    foreign = {"redis", "django", "django_redis", "celery", "kombu", "kazoo"}
    assert foreign.isdisjoint(run(LOADED, "django_redlock", *CORE))


def test_backends_need_no_framework():
    loaded = run(LOADED, *WITHOUT_DJANGO)
    assert "redis" in loaded
    assert {"django", "django_redis", "celery", "kombu"}.isdisjoint(loaded)


def test_django_side_reads_no_settings_on_import():
    program = "from django_redlock import lock, locks; from django.conf import settings; print(settings.configured)"
    assert run(program) == ["False"]


@pytest.mark.parametrize("module", ["django_redlock", "django_redlock.formatting", "django_redlock.management.base"])
def test_import_before_the_settings(module):
    """Programs may import these modules before they configure Django."""
    run(f"import {module}")


WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=sys.argv[1])

sys.meta_path.insert(0, Missing())
exec(sys.argv[2])
"""
ZOOKEEPER = "from django_redlock.backends.zookeeper import ZooKeeperBackend as Z; Z('127.0.0.1:1')"


@pytest.mark.parametrize(
    ("missing", "program", "message"),
    [
        ("celery", "import django_redlock.celery", 'needs Celery: pip install "django-redlock[celery]"'),
        ("django", "from django_redlock import rlock", "django_redlock.rlock needs Django: pip install Django."),
        ("kazoo", ZOOKEEPER, 'pip install "django-redlock[zookeeper]"'),
    ],
)
def test_missing_package(missing, program, message):
    """The error names the extra to install, not only the module."""
    command = [sys.executable, "-c", WITHOUT, missing, program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, message in done.stderr.splitlines()[-1]) == (1, True)
