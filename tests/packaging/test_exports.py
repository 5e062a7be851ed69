"""The public names, and the modules that their import loads."""

import importlib
import os
import pkgutil
import subprocess
import sys

import pytest

import django_redlock

# What the documentation promises, by module.
PROMISED = {
    "django_redlock": {
        "aadopt",
        "adopt",
        "errors",
        "fair_lock",
        "leader",
        "lock",
        "locks",
        "multilock",
        "rlock",
        "rwlock",
        "semaphore",
        "striped",
    },
    "django_redlock.errors": {
        "LockDeadlock",
        "LockError",
        "LockLost",
        "LockNotAcquired",
        "LockNotHeld",
        "LockNotSupported",
        "LockUnavailable",
        "PermitNotHeld",
        "StaleLock",
    },
    "django_redlock.fencing": {"FencedManager", "FencedModel", "FencedQuerySet"},
    "django_redlock.decorators": {"idempotent", "locked", "locked_view"},
    "django_redlock.celery": {"single_instance_task"},
    "django_redlock.celery.beat": {"LeaderScheduler"},
    "django_redlock.signals": {"lock_acquired", "lock_lost", "lock_refused", "lock_released"},
    "django_redlock.models": {"HeldLock"},
    "django_redlock.testing": {
        "Clock",
        "Rehearsal",
        "assert_enqueued_once",
        "assert_locked",
        "assert_not_locked",
        "override_locks",
    },
    "django_redlock.backends.redis": {"RedisBackend"},
    "django_redlock.backends.redlock": {"RedlockBackend"},
    "django_redlock.backends.replica": {"ReplicaBackend"},
    "django_redlock.backends.timestamp": {"TimestampBackend"},
    "django_redlock.backends.zookeeper.backend": {"ZooKeeperBackend"},
    "django_redlock.backends.locmem.backend": {"LocMemBackend"},
    "django_redlock.backends.dummy": {"DummyBackend"},
}
MODULES = [module.name for module in pkgutil.walk_packages(django_redlock.__path__, "django_redlock.")]
WITHOUT_DJANGO = [
    name
    for name in MODULES
    if name.startswith(
        ("django_redlock.core", "django_redlock.client", "django_redlock.history", "django_redlock.backends")
    )
]


@pytest.mark.parametrize(("module", "names"), PROMISED.items())
def test_promised_names(module, names):
    """Every promised name is there."""
    assert [name for name in sorted(names) if not hasattr(importlib.import_module(module), name)] == []


@pytest.mark.parametrize("module", ["django_redlock", *MODULES])
def test_names_in_dunder_all_exist(module):
    """Every name in a module's `__all__` exists."""
    loaded = importlib.import_module(module)
    assert [name for name in getattr(loaded, "__all__", ()) if not hasattr(loaded, name)] == []


def loaded_by(*modules):
    """Return the top-level packages that are loaded after an import of these modules in a new process."""
    program = (
        "import sys; [__import__(name) for name in sys.argv[1:]]; print(*{name.split('.')[0] for name in sys.modules})"
    )
    command = [sys.executable, "-W", "error", "-c", program, *modules]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return set(done.stdout.split())


def test_core_needs_the_standard_library_only():
    """Importing the package and its core loads no client library and no framework."""
    core = [name for name in MODULES if name.startswith("django_redlock.core")]
    assert loaded_by("django_redlock", *core).isdisjoint(
        {"redis", "django", "django_redis", "celery", "kombu", "kazoo"}
    )


def test_backends_need_no_framework():
    """Importing every backend loads neither Django nor Celery."""
    assert "redis" in loaded_by(*WITHOUT_DJANGO)
    assert loaded_by(*WITHOUT_DJANGO).isdisjoint({"django", "django_redis", "celery", "kombu"})


def test_django_side_reads_no_settings_on_import():
    """`from django_redlock import lock, locks` works before settings are configured."""
    program = "from django_redlock import lock, locks; from django.conf import settings; print(settings.configured)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("module", ["django_redlock", "django_redlock.formatting", "django_redlock.management.base"])
def test_import_before_the_settings(module):
    """Programs may import these modules before they configure Django."""
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    subprocess.run([sys.executable, "-c", f"import {module}"], env=environment, check=True, timeout=120)
