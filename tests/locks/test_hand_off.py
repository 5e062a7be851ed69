"""A lock that one process hands to another, when either is killed and when replies are lost."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from django_redlock.core.flow.drivers import drive
from django_redlock.core.flow.requests import EvalScript, SendToAll
from django_redlock.core.locks.hand_off import hand_off_flow
from django_redlock.errors import LockLost, LockUnavailable
from tests.locks.workers import backend_on, give, go_on
from tests.support.processes import ForkedWorker

WAIT = 60  # seconds: for what happens within two ttl on an idle machine


@pytest.fixture
def backend(places):
    backend = backend_on(places)
    yield backend
    backend.close()


@pytest.fixture
def giver(places, unique):
    with ForkedWorker(give, places, unique) as worker:
        worker.expect("held", WAIT)
        yield worker


@pytest.fixture
def adopter(places):
    with ForkedWorker(go_on, places) as worker:
        worker.expect("ready", WAIT)
        yield worker


def handed_off(giver):
    """Return the text of the giver, which no longer holds the lock."""
    giver.tell("hand off")
    told = giver.expect("handed off", WAIT)
    assert told["token"] is None
    return told["text"]


def test_giver_killed_afterwards(backend, giver, adopter, unique):
    """The adopter renews and releases the lock although the first holder is dead."""
    text = handed_off(giver)
    adopter.tell("adopt", text=text)
    adopter.expect("adopted", WAIT)
    giver.kill()
    adopter.expect("renewed", WAIT)
    assert backend.describe(unique).owner.label == "adopter"
    assert not backend.lock(unique).acquire(False)
    with pytest.raises(LockLost):
        backend.adopt(text)
    adopter.tell("release")
    assert adopter.result(WAIT) is False
    assert backend.lock(unique).acquire(timeout=WAIT)


def test_adopter_killed(backend, giver, adopter, unique):
    """The lock of a dead adopter is free after its ttl, and the text can't be used again."""
    text = handed_off(giver)
    adopter.tell("adopt", text=text)
    adopter.expect("adopted", WAIT)
    adopter.kill()
    with pytest.raises(LockLost):
        backend.adopt(text)
    assert backend.lock(unique).acquire(timeout=WAIT)
    with pytest.raises(LockLost):
        backend.adopt(text)


def test_adopted_at_once(places, backend, unique):
    """Of several adopters at most one gets the lock, and on one server exactly one."""
    lock = backend.lock(unique, ttl=60)
    lock.acquire()
    text, together = lock.hand_off(), threading.Barrier(4)

    def adopt(user):
        together.wait(WAIT)
        try:
            return user.adopt(text)
        except (LockLost, LockUnavailable):
            return None

    users = [backend_on(places) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        adopted = [each for each in pool.map(adopt, users) if each]
    assert len(adopted) in ([1] if len(places) == 1 else [0, 1])
    for each in adopted:
        each.release()
    assert backend.lock(unique).acquire(timeout=WAIT)
    for user in users:
        user.close()


@pytest.mark.parametrize("way", ["requests", "replies"])
def test_adopt_without_a_reply(proxy, redis_url, client_of, unique, way):
    """An adopt() without a reply raises LockUnavailable, and the lock ends by itself or is released."""
    direct = backend_on([redis_url])
    lock = direct.lock(unique)
    assert lock.acquire()
    client = client_of(type(direct)(proxy.url, node_timeout=2))
    client.describe(unique)
    text = lock.hand_off(ttl=4)
    proxy.drop(way)
    with pytest.raises(LockUnavailable):
        client.adopt_text(text)
    proxy.restore()
    assert direct.lock(unique).acquire(timeout=WAIT)


def test_late_acquire(places, backend, unique):
    """A copy of the acquire request that arrives after the release makes the text valid for no second adoption."""
    lock = backend.lock(unique)
    lock.acquire()
    token, text = lock.token, lock.hand_off()
    backend.adopt(text).release()
    for place in places:
        with redis.Redis.from_url(place) as server:
            server.set(backend.keys_of(unique).lock, f"{token} {{}}", px=60_000)
    with pytest.raises(LockLost):
        backend.adopt(text)
    assert backend.force_release(unique)


def handed_off_when(lock, before_transfer):
    def perform(request):
        asks = request.requests if isinstance(request, SendToAll) else [request]
        if isinstance(asks[0], EvalScript) and asks[0].script.name == "mutex_hand_over":
            before_transfer()
        return lock.store.perform(request)

    return drive(hand_off_flow(lock, None), perform)


@pytest.mark.parametrize("way", ["requests", "replies"])
def test_transfer_without_reply(proxy, redis_url, unique, way):
    """If it is unknown whether the text has the lock, the handle has lost it, and it is free soon."""
    direct, backend = backend_on([redis_url]), type(backend_on([redis_url]))(proxy.url, node_timeout=1, ttl=60)
    losses = []
    lock = backend.lock(unique, on_lost=losses.append)
    with lock:
        with pytest.raises(LockUnavailable):
            handed_off_when(lock, lambda: proxy.drop(way))
        assert lock.lost
        assert losses == [lock]
        proxy.restore()
        assert direct.lock(unique).acquire(timeout=WAIT / 2)  # the ttl is longer
    backend.close()


def test_lost_before_transfer(backend, unique):
    """A lock that is released by force while it is handed off is lost, and the block says so at its end."""
    lock = backend.lock(unique)
    with pytest.raises(LockLost), lock, contextlib.suppress(LockLost):
        handed_off_when(lock, lambda: backend.force_release(unique))
    assert backend.lock(unique).acquire(False)


def test_restarted_node_adopts_nothing(own_redis, client_of, unique):
    """A server in quarantine, which may have lost a lock, adopts nothing until the lease has ended."""
    server = own_redis("--appendonly", "yes")
    client = client_of(type(backend_on([server.url]))(server.url, node_timeout=10, quarantine=True, max_ttl=20, ttl=20))
    client.backend.arm()
    lock = client.lock(unique)
    lock.acquire()
    text = lock.hand_off()
    server.restart()
    with pytest.raises(LockUnavailable, match="quarantine"):
        client.adopt_text(text)
