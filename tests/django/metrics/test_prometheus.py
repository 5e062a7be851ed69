"""Prometheus metrics with the real library, and the setting that switches metrics on."""

import gc
import os
import subprocess
import sys

import pytest
from django.core.exceptions import ImproperlyConfigured
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from django_redlock import lock, locks
from django_redlock.apps import watch
from django_redlock.backends.redis import RedisBackend
from django_redlock.core.background.work import background
from django_redlock.errors import LockUnavailable
from django_redlock.history.event_queue import event_queue
from django_redlock.metrics import prometheus
from django_redlock.signals import task_duplicate
from django_redlock.testing.conformance.harness.fixtures import in_child
from tests.support.locks import redis_entry

pytestmark = pytest.mark.usefixtures("own_listeners")
AT = {"backend": "default", "kind": "mutex"}


@pytest.fixture
def registry():
    registry = CollectorRegistry()
    prometheus.install(registry)
    return registry


def test_counts(registry):
    """Acquisitions, refusals, waits and holds are counted by backend and kind."""
    with lock("stock"):
        lock("stock").acquire(blocking=False)
        with locks["memory"].semaphore("s", limit=2):
            pass
    event_queue.flush()
    value = registry.get_sample_value
    assert value("redlock_acquisitions_total", {"backend": "memory", "kind": "semaphore"}) == 1
    for name in ("acquisitions_total", "wait_seconds_count", "hold_seconds_count"):
        assert value(f"redlock_{name}", AT) == 1
    assert value("redlock_refusals_total", {**AT, "reason": "taken"}) == 1
    assert value("redlock_hold_seconds_bucket", {**AT, "le": "+Inf"}) == 1
    assert "stock" not in generate_latest(registry).decode()


def test_open_metrics(registry):
    """The exposition passes OpenMetrics' strict parser, with help, types and units."""
    with lock("stock"):
        pass
    task_duplicate.send("t", conflict=type("Conflict", (), {"task": "shop.sell", "where": "submit"}))
    event_queue.flush()
    families = {each.name: each for each in text_string_to_metric_families(generate_latest(registry).decode())}
    assert {name: each.type for name, each in families.items()} == {
        "redlock_acquisitions": "counter",
        "redlock_refusals": "counter",
        "redlock_losses": "counter",
        "redlock_forced_releases": "counter",
        "redlock_wait_seconds": "histogram",
        "redlock_hold_seconds": "histogram",
        "redlock_held": "gauge",
        "redlock_node_errors": "counter",
        "redlock_task_duplicates": "counter",
    }
    assert all(each.documentation for each in families.values())
    assert families["redlock_hold_seconds"].unit == "seconds"
    assert registry.get_sample_value("redlock_task_duplicates_total", {"task": "shop.sell", "found_at": "submit"}) == 1


@pytest.fixture
def held_now(registry):
    """`held_now(backend)`: the number of held mutexes in a scrape, without those of other tests."""
    gc.collect()
    left = background.held_counts()

    def scrape(backend="default"):
        event_queue.flush()
        return registry.get_sample_value("redlock_held", {"backend": backend, "kind": "mutex"}) - left[backend, "mutex"]

    scrape.left = left
    return scrape


def test_gauge(held_now, using):
    """The gauge counts a lock until it is released, and not one whose handle is garbage-collected."""
    held = [lock(name, using) for name in "abc"]
    assert all(each.acquire() for each in held)
    assert held_now(using) == 3
    held.pop(1)
    gc.collect()
    held[0].release()
    assert held_now(using) == 1


def test_gauge_goes_down_on_loss(registry, held_now, lost):
    """A lost lock is not counted as held, and is subtracted only once."""
    held = lock("a", on_lost="warn")
    with held:
        assert held_now() == 1
        locks["default"].force_release("a")
        with pytest.raises(Exception, match="lost"):
            held.extend()
        assert lost.wait(20)
        assert held_now() == 0
    assert held_now() == 0
    assert registry.get_sample_value("redlock_losses_total", AT) == 1
    assert registry.get_sample_value("redlock_forced_releases_total", {"backend": "default"}) == 1
    assert registry.get_sample_value("redlock_hold_seconds_count", AT) == 1


def test_quarantine(registry, settings, own_redis):
    """A server in quarantine counts as a refusal with that reason."""
    settings.REDLOCK = {"default": redis_entry(own_redis().url, quarantine=True, max_ttl=60)}
    with pytest.raises(LockUnavailable):
        lock("a").acquire()
    event_queue.flush()
    assert registry.get_sample_value("redlock_refusals_total", {**AT, "reason": "quarantine"}) == 1


def test_installed_twice(registry):
    prometheus.install(registry)
    with lock("a"):
        pass
    event_queue.flush()
    assert registry.get_sample_value("redlock_acquisitions_total", AT) == 1


def test_fork(held_now):
    """A forked child counts its own locks and not its parent's."""

    def count():
        held_now.left.clear()
        with lock("child"):
            return held_now()

    with lock("parent"):
        assert held_now() == 1
        assert in_child(count) == 1
        assert held_now() == 1


SHARED = """
import os, sys
import django
from django.conf import settings
backend = {"BACKEND": "django_redlock.backends.locmem.LocMemBackend"}
settings.configure(INSTALLED_APPS=["django_redlock"], REDLOCK={"locmem": backend}, REDLOCK_METRICS=["prometheus"])
django.setup()
from django_redlock import lock
from django_redlock.history.event_queue import event_queue
from prometheus_client import CollectorRegistry, multiprocess

if len(sys.argv) > 1:
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)
    at = {"backend": "locmem", "kind": "mutex"}
    print(*(registry.get_sample_value(f"redlock_{name}", at) for name in
            ("acquisitions_total", "hold_seconds_count", "held")))
else:
    child = os.fork()
    held = lock(f"mine:{os.getpid()}", "locmem")
    with lock(f"a:{os.getpid()}", "locmem"):
        pass
    held.acquire()
    event_queue.flush()
    if child:
        os.waitpid(child, 0)
    sys.stdout.flush()
    os._exit(0)
"""


def test_several_processes(tmp_path):
    """With PROMETHEUS_MULTIPROC_DIR the numbers of all processes are added."""
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    run = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SHARED]
    subprocess.run(run, env=environment, check=True, timeout=120)
    numbers = subprocess.run([*run, "read"], env=environment, check=True, timeout=120, capture_output=True, text=True)
    assert numbers.stdout.split() == ["4.0", "2.0", "2.0"]


# ── switching on ─────────────────────────────────────────────────────────────────────────────


def test_setting(settings):
    """`REDLOCK_METRICS` names the exporters that are installed when the app is ready."""
    event_queue.unsubscribe("opentelemetry metrics")
    settings.REDLOCK_METRICS = ["opentelemetry"]
    watch()
    assert "opentelemetry metrics" in event_queue.listeners


@pytest.mark.parametrize("names", [5, True, [None], [["prometheus"]], {"statsd": 1}, "statsd"])
def test_bad_setting(settings, names):
    """A wrong setting raises an error that names the setting."""
    settings.REDLOCK_METRICS = names
    with pytest.raises(ImproperlyConfigured, match=r"^REDLOCK_METRICS: "):
        watch()


@pytest.mark.parametrize("name", ["prometheus", "opentelemetry"])
def test_not_installed(settings, monkeypatch, name):
    """Without the library the error says what to install."""
    library = {"prometheus": "prometheus_client"}.get(name, name)
    for module in [f"django_redlock.metrics.{name}", *(each for each in sys.modules if each.startswith(library))]:
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    settings.REDLOCK_METRICS = name
    with pytest.raises(ImproperlyConfigured, match=rf'pip install "django-redlock\[{name}\]"'):
        watch()


def test_without_django(registry, redis_url):
    """A backend outside Django is counted if its hook is the event queue's."""
    backend = RedisBackend(redis_url, node_timeout=5)
    backend.alias, backend.hook = "mine", event_queue.record_event
    with backend.lock("a"):
        pass
    event_queue.flush()
    assert registry.get_sample_value("redlock_acquisitions_total", {"backend": "mine", "kind": "mutex"}) == 1
