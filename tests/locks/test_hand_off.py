"""A lock that one process hands to another, when either is killed and when replies are lost."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redlock.errors import LockLost, LockUnavailable
from tests.locks.hand_off_workers import backend_on, give, go_on
from tests.support.processes import ForkedWorker

WAIT = 60  # seconds: for what happens within two ttl on an idle machine


@pytest.fixture(params=["one", "three"])
def places(request):
    """The URLs of one Redis, or of three nodes."""
    if request.param == "one":
        return [request.getfixturevalue("redis_url")]
    return [server.url for server in request.getfixturevalue("servers")]


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


def test_never_adopted(backend, giver, unique):
    """A lock that was handed off and never adopted is free after its ttl, and the text can't be used later."""
    text = handed_off(giver)
    giver.kill()
    following = backend.lock(unique)
    assert following.acquire(timeout=WAIT)
    with pytest.raises(LockLost):
        backend.adopt(text)
    assert following.owned()


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
    client = client_of(type(direct)(proxy.url, node_timeout=4))
    client.describe(unique)
    text = lock.hand_off(ttl=10)
    proxy.drop(way)
    with pytest.raises(LockUnavailable):
        client.adopt_text(text)
    proxy.restore()
    assert direct.lock(unique).acquire(timeout=WAIT)


def test_lost_reply(proxy, redis_url, client_of, unique):
    """A request whose reply was lost with its connection is repeated, and adopts the lock once."""
    direct = backend_on([redis_url])
    lock = direct.lock(unique)
    assert lock.acquire()
    client = client_of(type(direct)(proxy.url, node_timeout=10))
    client.describe(unique)
    text = lock.hand_off()
    lost = proxy.lose_next_reply(b"EVALSHA")
    adopted = client.adopt_text(text)
    assert lost.is_set()
    assert adopted.owned()
    adopted.release()
    assert direct.lock(unique).acquire(False)


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
