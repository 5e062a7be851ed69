"""ReplicaLock on a real primary with real replicas that are cut off, paused and promoted."""

import time

import pytest

from django_redlock.backends.replica import ReplicaBackend
from django_redlock.errors import LockUnavailable
from tests.backends.replica.stores import LASTING, OPTIONS, extended, has, lag_out, store
from tests.support.locks import SHORT, granted, renew_now
from tests.support.proxy import Proxy
from tests.support.replicas import wait_in_sync
from tests.support.service import poll


def test_a_grant_is_confirmed(two, client_of):
    """When acquire() returns, the replicas have the lock, and after release() none has it."""
    client = client_of(store(two, min_replicas="all", **LASTING))
    client.backend.arm()
    lock = client.lock("stock")
    assert lock.acquire()
    assert [has(server, "slow:{stock}") for server in two.servers] == [True] * 3
    lock.release()
    poll(
        lambda: not any(has(server, "slow:{stock}") for server in two.servers),
        timeout=LASTING["ttl"] / 2,
        what="the release everywhere",
    )


def test_the_time_of_the_confirmation_is_deducted(two, client_of):
    """The lease counts from before the request, so the time that WAIT took is deducted."""
    client = client_of(store(two, wait_timeout=5, node_timeout=8, min_replicas="all"))
    assert granted(client)
    for replica in two.replicas:
        two.links[replica].delay(0.1)
    lock = client.lock("stock", auto_renew=False)
    assert lock.acquire()
    assert lock.remaining < SHORT["ttl"] - 0.1
    lock.release()


@pytest.mark.parametrize(
    ("rule", "lost", "serves"),
    [("majority", 1, True), ("majority", 2, False), ("all", 1, False), (1, 1, True), (2, 1, False), (0, 2, True)],
)
def test_how_many_must_confirm(two, rule, lost, serves):
    """Each rule of min_replicas grants with as few of two replicas as it allows, else refuses with the reason."""
    backend = store(two, min_replicas=rule, key_prefix="rule")
    backend.arm()
    assert granted(backend)
    two.cut_off(*two.replicas[:lost])
    lag_out(two, lost)
    if serves:
        poll(lambda: granted(backend), timeout=20, what="a grant")  # its last reply may be more than a second old
        return
    needed = {"majority": 1, "all": 2}.get(rule, rule)
    with pytest.raises(LockUnavailable, match=rf"{2 - lost} of the {needed} replicas that must confirm keep up"):
        backend.lock("stock").acquire()
    two.rejoin(*two.replicas[:lost])
    poll(lambda: granted(backend), timeout=20, what="grants, now that they are back")


def test_a_replica_that_is_removed_for_good(two):
    """With min_replicas="all", a removed replica stops all grants until the primary is armed again."""
    backend = store(two, min_replicas="all")
    backend.arm()
    assert granted(backend)
    two.replicas[0].kill()
    with two.primary.client() as admin:
        poll(lambda: admin.info("replication")["connected_slaves"] == 1, timeout=20, what="a replica that has gone")
    with pytest.raises(LockUnavailable, match="1 of the 2 replicas that must confirm keep up"):
        backend.lock("stock").acquire()
    backend.arm()
    assert granted(backend)


def test_an_unconfirmed_grant_is_given_back(two, client_of):
    """A grant that too few replicas confirm in time is released by its token and raises LockUnavailable."""
    client = client_of(store(two, lag=30))  # replicas that have just been cut off count
    assert granted(client)
    two.cut_off(*two.replicas)
    lock = client.lock("stock")
    with pytest.raises(LockUnavailable, match=r"0 of 1 replicas confirmed within 2 s"):
        lock.acquire()
    assert not has(two.primary)
    assert lock.remaining == 0


def test_a_grant_whose_confirmation_fails_is_given_back(two, client_of):
    """A grant whose WAIT fails, as for missing rights, is released, and each attempt raises the error."""
    with two.primary.client() as direct:
        direct.execute_command("ACL", "SETUSER", "hasty", "on", ">secret", "~*", "&*", "+@all", "-wait")
    url = two.primary.url.replace("://", "://hasty:secret@")
    lock = client_of(ReplicaBackend(url, **OPTIONS)).lock("stock")
    for _ in range(2):
        with pytest.raises(LockUnavailable, match="wait"):
            lock.acquire()
        assert not has(two.primary)


def test_undone_by_token_only(two, client_of):
    """After an unconfirmed attempt only the attempt's own grant is released, and another holder's lock stays."""
    client = client_of(store(two, lag=30))  # replicas that have just been cut off count
    assert granted(client)
    two.cut_off(*two.replicas)
    with two.primary.client() as direct:
        direct.set("redlock:{stock}", "another", px=60_000)
    assert not client.lock("stock").acquire(blocking=False)
    assert has(two.primary)


def test_an_unconfirmed_extension_does_not_count(two, client_of):
    """An extension that no replica confirms raises LockUnavailable, and renewals can't prolong the lease, either."""
    lock = client_of(store(two)).lock("stock")
    assert lock.acquire()
    first = lock.hold.lease
    renew_now(lock)
    poll(lambda: lock.hold.lease is not first, timeout=20, what="a renewal")
    two.cut_off(*two.replicas)
    end = lock.hold.lease.valid_until
    with pytest.raises(LockUnavailable, match="0 of 1 replicas confirmed"):
        lock.extend()
    assert lock.hold.lease.valid_until == end
    poll(lambda: lock.lost, timeout=20, what="the end of the lease")


def test_an_old_primary_that_is_cut_off_grants_nothing(two, client_of):
    old = client_of(store(two))
    holder = old.lock("stock", auto_renew=False)
    assert holder.acquire()
    chosen, other = two.replicas
    former = two.promote(chosen)
    two.follow(other)
    assert former.url != two.primary.url
    with pytest.raises(LockUnavailable, match=r"confirmed within|keep up|replicas that must confirm"):
        old.lock("else").acquire()
    new = client_of(store(two))
    with pytest.raises(LockUnavailable, match="in quarantine"):
        new.lock("stock").acquire()
    poll(lambda: granted(new), timeout=30, what="the end of the quarantine")
    assert holder.lost


@pytest.mark.parametrize("way", ["empty", "old data", "all data", "flushed"])
def test_a_primary_that_lost_its_data(two, client_of, way):
    """A primary that was restarted or flushed grants nothing new, and the holder keeps its lock."""
    holder, other = client_of(store(two, **LASTING)), client_of(store(two, **LASTING))
    holder.backend.arm()
    poll(lambda: granted(holder), timeout=20, what="a reply in time")
    with two.primary.client() as direct:
        if way == "old data":
            direct.save()
        lock = holder.lock("stock", auto_renew=False)
        assert lock.acquire()
        if way == "all data":
            direct.save()
        if way == "flushed":
            direct.flushall()
    if way != "flushed":
        two.primary.kill()
        two.primary.start()
        wait_in_sync(two.primary, two.replicas)
    assert has(two.primary, "slow:{stock}") == (way == "all data")
    with pytest.raises(LockUnavailable, match="in quarantine for another"):
        other.lock("different").acquire(blocking=False)
    poll(lambda: extended(lock), timeout=20, what="the lock back in its place")
    assert has(two.primary, "slow:{stock}")
    with pytest.raises(LockUnavailable, match="in quarantine for another"):
        other.lock("stock").acquire(blocking=False)
    lock.release()


def test_the_clock_waits_for_replicas(two, client_of):
    """The quarantine of a promoted replica begins when it has replicas, and health() says what it waits for."""
    former = two.promote(two.replicas[0])
    former.kill()
    backend = store(two)
    client = client_of(backend)
    with pytest.raises(LockUnavailable):
        client.lock("stock").acquire()
    (row,) = client.health()
    assert (row["armed"], row["quarantine"]) == (False, None)
    former.start()
    two.follow(former)
    with pytest.raises(LockUnavailable, match="in quarantine for another"):
        poll_until_it_counts(client)
    (row,) = client.health()
    assert 0 < row["quarantine"] <= SHORT["max_ttl"] + OPTIONS["lag"] + 1


def poll_until_it_counts(client):
    """Acquire until the error names the quarantine, then wait for its end."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            client.lock("stock").acquire()
        except LockUnavailable as error:
            if "in quarantine for another" in str(error):
                raise
        time.sleep(0.01)


def test_a_holder_survives_a_failover(two, start, client_of):
    """A holder that extends within its lease keeps its lock when a replica without the lock is promoted."""
    front = start(Proxy(two.primary.url))
    client = client_of(ReplicaBackend(front.url, **{**OPTIONS, **LASTING}))
    client.backend.arm()
    lagging, other = two.replicas
    two.cut_off(lagging)
    lock = client.lock("stock", auto_renew=False)
    assert lock.acquire()
    assert not has(lagging, "slow:{stock}")
    two.primary.kill()
    two.promote(lagging)
    front.retarget(two.primary.url)
    two.follow(other)
    poll(lambda: extended(lock), timeout=20, what="the lock back in its place")
    assert has(two.primary, "slow:{stock}")
    lock.release()


def test_without_replicas(redis_server, client_of):
    """A primary without replicas grants nothing and says why; with min_replicas=0 it grants."""
    backend = ReplicaBackend(redis_server.url, **OPTIONS)
    backend.arm()
    with pytest.raises(LockUnavailable, match="0 of the 1 replicas that must confirm keep up"):
        client_of(backend).lock("stock").acquire()
    knowingly = ReplicaBackend(redis_server.url, **OPTIONS, min_replicas=0)
    assert granted(client_of(knowingly))
