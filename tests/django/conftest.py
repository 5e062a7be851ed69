"""The admin and the commands on real stores."""

import io
import itertools
import threading
import time
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import Permission, User

from django_redlock import lock, locks
from django_redlock.history.event_queue import event_queue
from django_redlock.signals import lock_lost
from tests.support.databases import sqlite_file
from tests.support.service import poll

REDIS = "django_redlock.backends.redis.RedisBackend"
UNREACHABLE = "redis://127.0.0.1:1/0"  # nobody listens on port 1


@pytest.fixture
def stores(stores, settings):
    """The stores, and the admin alone."""
    settings.ROOT_URLCONF = "tests.django.urls"
    return stores


@pytest.fixture
def one_down(settings, stores):
    """The backends of `stores`, and one that is not reachable."""
    settings.REDLOCK = {**settings.REDLOCK, "broken": {"BACKEND": REDIS, "LOCATION": UNREACHABLE}}
    return locks


@pytest.fixture
def user_with(db, client):
    """`user_with("view_heldlock", staff=True)`: log such a user in."""

    def login(*codenames: str, staff: bool = True) -> User:
        user = User.objects.create_user("operator", is_staff=staff)  # no password: hashing one takes long
        user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        client.force_login(user)
        return user

    return login


@pytest.fixture
def operator(user_with):
    """A staff member who may see locks and release them by force."""
    return user_with("view_heldlock", "delete_heldlock")


class Threads:
    """`own_thread(function)` runs it beside the test; `own_thread.until(condition)` waits for its effect."""

    def __call__(self, function):
        thread = threading.Thread(target=function, daemon=True)
        thread.start()
        return thread

    def until(self, condition):
        poll(condition, timeout=60, what="another thread")


@pytest.fixture
def own_thread():
    return Threads()


@pytest.fixture(params=["default", "memory"])
def using(request):
    """The alias of each backend of `stores` in turn."""
    return request.param


@pytest.fixture
def file(tmp_path, django_db_blocker):
    """The alias of a database in a file."""
    with django_db_blocker.unblock(), sqlite_file("file", tmp_path / "db.sqlite3") as alias:
        yield alias


@pytest.fixture
def own_listeners(stores, monkeypatch):
    """Removes the listeners that a test has installed."""
    event_queue.flush()
    before = dict(event_queue.listeners), event_queue.context
    yield
    event_queue.listeners, event_queue.context = before


@pytest.fixture
def lost(stores):
    """`lost.wait(20)`: wait until a loss in `stores` was signalled and recorded."""
    loss = SimpleNamespace(event=threading.Event())

    def receiver(event, **_kwargs):
        if event.lock.store is stores[event.alias]:  # not a lock of a test before
            loss.thread = threading.current_thread()
            loss.event.set()

    def wait(seconds):
        if (signalled := loss.event.wait(seconds)) and loss.thread is not threading.current_thread():
            loss.thread.join(seconds)  # it records the loss after the signal
        return signalled

    loss.wait = wait
    lock_lost.connect(receiver)
    yield loss
    lock_lost.disconnect(receiver)


@pytest.fixture
def passing_time(monkeypatch):
    """`passing_time(10)`: from now on, each look at the clock for a duration finds it ten seconds ahead."""

    def passing(step):
        ticks = itertools.count(time.time(), step)
        monkeypatch.setattr("django_redlock.formatting.time", SimpleNamespace(time=lambda: next(ticks)))

    return passing


@pytest.fixture
def answer(monkeypatch):
    """`answer("y")`: the operator's answer on stdin."""
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(f"{text}\n"))


@pytest.fixture
def kept(using):
    """`kept("name")`: a lock that the transaction keeps."""
    return lambda name="stock", **options: lock(name, using, blocking=False, release_on_commit=True, **options)


@pytest.fixture
def is_locked(using):
    return lambda name="stock": lock(name, using).locked()
