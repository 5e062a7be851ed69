"""``lock()`` and its siblings for the other kinds: functions with ``using=``."""

from functools import partial

import pytest

from django_redlock import fair_lock, leader, lock, multilock, rlock, rwlock, semaphore, striped

KINDS = {
    "mutex": partial(lock, "x"),
    "fair": partial(fair_lock, "x"),
    "rlock": partial(rlock, "x"),
    "semaphore": partial(semaphore, "x", limit=2),
    "rwlock": partial(rwlock, "x"),
    "striped": partial(striped, "x", 3),
    "multilock": partial(multilock, ["x", "y"]),
}
each_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


@each_kind
def test_options_and_store(stores, make, using):
    """Every kind of lock is on the backend ``using`` and has its options."""
    made = make(using=using, ttl=70)
    handle = getattr(made, "write", made)
    with handle:
        assert stores[using].held()
        assert 60 < handle.remaining <= 70
    assert not stores[using].held()


@each_kind
@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("timeout", r"use ttl \(the lease; redis-py's timeout\) or blocking_timeout \(how long to wait\)"),
        ("expire", "use ttl"),
        ("ttll", "use ttl"),
        ("blocking_timout", "use blocking_timeout"),
        ("auto_renewal", "use auto_renew"),
        ("colour", r"has no option 'colour' \(options: ttl, "),
    ],
)
def test_option_of_another_library(stores, make, option, hint):
    """An unknown option, for example of redis-py or threading, raises an error with the one that is meant."""
    with pytest.raises(TypeError, match=hint):
        make(**{option: 5})


def test_limit_is_needed(stores):
    with pytest.raises(TypeError, match="limit"):
        semaphore("x")


def test_leader(stores, using):
    """leader() uses the backend ``using`` and its options."""
    called = []
    with leader("x", on_lost=called.append, using=using, ttl=7, owner="beat") as candidate:
        assert candidate.wait(30)
        (held,) = stores[using].held()
        assert (held.name, held.ttl, held.owner.label) == ("x", 7, "beat")
    assert called == [candidate]
