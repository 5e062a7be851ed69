"""`KEY_PREFIX` as a function: locks, records, lists and commands are the current tenant's own."""

import contextlib
from contextvars import ContextVar
from types import SimpleNamespace

import pytest
from celery import Celery
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import RequestFactory

from django_redlock import lock, locks, striped
from django_redlock.celery import is_duplicate, single_instance_task
from django_redlock.decorators import idempotent
from django_redlock.errors import LockError
from django_redlock.testing import override_locks
from tests.django.management.command_result import Done
from tests.support.locks import memory_entry, redis_entry

tenant = ContextVar("tenant", default=None)


def prefix():
    return f"redlock:{tenant.get().schema}"


@contextlib.contextmanager
def as_tenant(name):
    before = tenant.set(SimpleNamespace(schema=name) if name else None)
    try:
        yield
    finally:
        tenant.reset(before)


@pytest.fixture(autouse=True)
def backend(settings, redis_url, redis_server):
    """A backend whose key prefix is that of the tenant."""
    settings.REDLOCK = {"default": {**redis_entry(redis_url), "KEY_PREFIX": f"{__name__}.prefix"}}
    yield locks["default"]
    with redis_server.client() as redis:
        redis.flushall()
    locks.reset()


def listed():
    return [each["name"] for each in Done("redlock_list", format="json").json]


def test_names_are_a_tenants_own(backend):
    """Tenants don't exclude each other, and see, list and release their own locks only."""
    with as_tenant("a"), lock("stock", on_lost="warn") as held:
        with as_tenant("b"):
            assert not backend.held()
            assert listed() == []
            assert not backend.force_release("stock")
            with lock("stock", blocking=False), striped("shelf", 2, blocking=False):
                assert [each.name for each in backend.held("stock*")] == ["stock"]
        assert held.owned()
        assert not lock("stock").acquire(False)
        assert listed() == ["stock"]
        assert backend.force_release("stock")


def test_waiters_of_two_tenants(own_thread, backend):
    """A tenant's waiters don't queue behind those of another tenant, who wait for the same name."""

    def wait():
        with as_tenant("a"), lock("stock", blocking_timeout=60):
            got.append("a")

    got = []
    with as_tenant("a"):
        held = lock("stock")
        held.acquire()
        thread = own_thread(wait)
        own_thread.until(lambda: backend.describe("stock").waiters == 1)
    with as_tenant("b"):
        other = lock("stock")
        assert other.acquire(timeout=30)
        assert got == []
    held.release()  # also without a tenant
    thread.join(60)
    other.release()
    assert got == ["a"]


def test_renewed_and_released_without_a_tenant():
    """A held lock knows its keys: the renewal has no tenant, and the block may change it."""
    with as_tenant("a"):
        held = lock("stock", ttl=1)
        held.acquire()
    held.extend()
    held.release()
    with as_tenant("a"):
        assert not held.locked()


def test_answers_of_two_tenants():
    """Equal requests of two tenants are two requests."""
    calls = []

    @idempotent(scope=lambda _request: "user 1")
    def view(_request):
        calls.append(tenant.get().schema)
        return HttpResponse()

    for name in ("a", "b", "a"):
        with as_tenant(name):
            view(RequestFactory().post("/", headers={"Idempotency-Key": "k"}))
    assert calls == ["a", "b"]


def test_tasks_of_two_tenants():
    """The second tenant's call is no duplicate, and its record is found where no tenant is set."""
    app = Celery(broker="memory://", backend="cache+memory://", set_as_current=False)

    @app.task
    @single_instance_task
    def report(number):
        """Not run."""

    app.finalize()
    duplicates = []
    for name in ("a", "b", "a"):
        with as_tenant(name):
            duplicates.append(is_duplicate(report.delay(1)))
    assert duplicates == [False, False, True]
    with app.connection_for_read() as connection, connection.SimpleQueue("celery") as queue:
        headers = [queue.get(timeout=10).headers for _ in range(2)]
    for sent, name in zip(headers, ("a", "b"), strict=True):
        call = report.redlock.received_call(report, Request(sent))
        assert call.keys.lock.startswith(f"redlock:{name}:{{".encode())


class Request(dict):
    """The request of a message, as the main process of a worker has it."""

    def __init__(self, headers):
        super().__init__(headers)
        self.id, self.retries = headers["id"], headers["retries"]


@pytest.mark.parametrize("bad", ["", "a b", "a{b", "\n", "x" * 129, "\xfc", None, 7, b"a"], ids=repr)
def test_bad_prefixes(monkeypatch, bad):
    """A prefix that is no short text without braces and spaces is an error that names the function."""
    with as_tenant("a"):
        monkeypatch.setitem(locks["default"].__dict__, "_prefix_of", lambda: bad)
        with pytest.raises(LockError, match=r"the key prefix of .* must be 1 to 128 printable ASCII characters"):
            lock("stock")


def test_without_a_tenant(backend):
    """An error of the function is an error of the lock that names the function."""
    for ask in (lambda: lock("stock"), backend.held):
        with pytest.raises(LockError, match=r"test_tenants\.prefix\(\) is not known: AttributeError"):
            ask()


PATHS = ["tests.django.test_tenants.tenants", "tests.django.nothing.prefix", "shop.locks"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        *(({**redis_entry(""), "KEY_PREFIX": path}, "is the dotted path of no function") for path in PATHS),
        ({**memory_entry(), "KEY_PREFIX": prefix}, "a function works on Redis only"),
    ],
)
def test_wrong_settings(settings, entry, message):
    """A dotted path must name a function: as a text it would make all tenants share their locks."""
    settings.REDLOCK = {"default": entry}
    with pytest.raises(ImproperlyConfigured, match=message):
        lock("stock")


def test_override_locks():
    """In tests with locks in memory the tenants share their locks."""
    with override_locks(), as_tenant("a"), lock("stock"):
        assert lock("stock").locked()
