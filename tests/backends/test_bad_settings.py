"""Invalid settings are refused when a backend is created, with what is wrong and without a password."""

import pytest
import redis
from redis.connection import Connection
from redis.credentials import CredentialProvider

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.backends.replica import ReplicaBackend
from django_redlock.backends.timestamp import TimestampBackend
from django_redlock.backends.zookeeper import ZooKeeperBackend

URL, CLUSTER = "redis://127.0.0.1:1/0", "redis+cluster://a"
LOCATIONS = [
    "",
    "127.0.0.1:6379",
    "http://there",
    "redis+sentinel://h:26379",
    "redis+cluster://",
    "redis+cluster://h:7000/?ssl=true",
    "redis://h:port",
    "redis://h/locks",
    "rediss://h/1/2",
    "redis://:pass/secret@h/0",
    "redis://h/locks?db=1",
    "redis://h/0?socket_timeuot=5",
    "redis://h/0?socket_timeuot=5&max_connections=2",
    "redis://user:secret@h?protocol=4",
    "rediss://user:secret@h?ssl_cert_reqs=some",
    None,
    17,
]
LOCATIONS += [["redis://a", "redis://b"], "redis://user:secret@h:port/0"]
LOCATIONS += ["user:secret@h:6379", "redis://h:port/0?password=secret&db=1", ["redis://user:secret@h"]]


@pytest.mark.parametrize("location", LOCATIONS, ids=repr)
def test_invalid_location(location):
    """An invalid LOCATION raises ValueError at construction, without its password."""
    with pytest.raises(ValueError, match="LOCATION") as caught:
        RedisBackend(location)
    assert "secret" not in str(caught.value)


def no_client():
    """What LOCATION names must return a client."""


def imitated(connection_class):
    return redis.Redis(connection_pool=redis.ConnectionPool(connection_class=connection_class))


FAKE = type("Fake", (Connection,), {"__module__": "fakeredis"})
INVALID = {
    RedisBackend: [
        (URL, {"tll": 3}, r"^RedisBackend\(\) has no option 'tll'; use ttl \(options: node_timeout, .*, ttl, "),
        (CLUSTER, {"address_remap": 5}, "must be a dict, a function or its dotted path, not 5"),
        (CLUSTER, {"address_remap": "nothing.here"}, "'nothing.here' can't be imported"),
        (CLUSTER, {"address_remap": {"a": "b:1"}}, "expected 'host:port' or a pair of host and port, not 'a'"),
        (CLUSTER, {"address_remap": {"a:1": ("b", 70000)}}, "not \\('b', 70000\\)"),
        (CLUSTER, {"quarantine": True}, "every slot"),  # a marker in every slot
        (f"{CLUSTER}?ssl_ca_certs=f", {}, "ssl_ca_certs: without TLS; the scheme with TLS is rediss"),
        (f"{CLUSTER}/x", {}, "must be a number"),
        ("rediss+cluster://a?ssl_cert=f", {}, "unexpected keyword argument 'ssl_cert'"),
        ("rediss+cluster://a?ssl_cert_reqs=maybe", {}, "maybe"),
        ("redis+sentinel://a/s?max_connections=5", {}, "max_connections"),
        ("redis+sentinel://a/s", {"sentinel_kwargs": {"pasword": "x"}}, "sentinel_kwargs: .*pasword"),
        ("redis+sentinel://a/s/x", {}, "the database after SERVICE/ must be a number"),
        (f"{__name__}.no_client", {}, "LOCATION '.*no_client': expected a redis.Redis or valkey.Valkey client"),
        (f"{__name__}.missing", {}, "can't be called: AttributeError"),
        ("no_such_module.function", {}, "can't be called: ModuleNotFoundError"),
        (redis.Redis, {}, "expected a redis.Redis"),
        (object(), {}, "expected a redis.Redis"),
        (imitated(lambda **_: None), {}, "override_locks, or fakeredis' TcpFakeServer"),
        (imitated(FAKE), {}, "override_locks, or fakeredis' TcpFakeServer"),
        (URL, {"credential_provider": object()}, "get_credentials"),
        (URL, {"credential_provider": CredentialProvider}, "get_credentials"),  # not an object of the class
        (URL, {"credential_provider": "no.such.provider"}, "can't be called"),
        (f"{URL}?retry_on_timeout=true", {}, "is not for locks"),  # it would change nothing
        (f"{URL}?retry_on_error=x", {}, "is not for locks"),
        *((URL, {"cohort": cohort}, "cohort") for cohort in (-1, 1.5, True, "16")),
    ],
    RedlockBackend: [
        ("redis://user:secret@h", {}, "must be a list of URLs, one for each node, not 'redis://…@h'"),
        ([], {}, "must be a list of URLs"),
        ((), {}, "must be a list of URLs"),
        ([["redis://h"]] * 3, {}, "expected a redis"),
        ([{"URL": "redis://h"}] * 3, {}, "expected a redis"),
        (["redis+cluster://h:7000"], {"quarantine": False}, "can't be a node of a quorum"),
    ],
    ReplicaBackend: [
        *((URL, {"min_replicas": value}, "min_replicas must be") for value in (-1, True, 1.5, "some", None)),
        *((URL, {"lag": value}, "lag must be") for value in (0, -1, None, float("inf"))),
        # The quarantine stores the number of replicas.
        (URL, {"quarantine": False}, "without a quarantine, give a number"),
        (CLUSTER, {"quarantine": False, "min_replicas": 1}, "one primary"),  # it has several
    ],
    TimestampBackend: [
        (URL, {"unit": "us"}, "unit"),
        *((URL, {"key_format": key}, "key_format") for key in ("lock", "{name}{name}", "{key}{name}", "{name!r}")),
        (URL, {"clock_skew": -1}, "clock_skew"),
        (URL, {"clock_skew": "1"}, "clock_skew"),
        (URL, {"quarantine": True}, "quarantine"),
    ],
    ZooKeeperBackend: [
        *((location, {}, "LOCATION") for location in ("", "/chroot", ["a:1"])),
        ("a:1", {"session_timeout": 0}, "session_timeout"),
        ("a:1", {"connect_timeout": "5"}, "connect_timeout"),
        ("a:1", {"node_timeout": -1}, "node_timeout"),
    ],
}


@pytest.mark.parametrize(
    ("backend", "location", "options", "message"),
    [(backend, *each) for backend, rows in INVALID.items() for each in rows],
)
def test_invalid_options(backend, location, options, message):
    """The error names the option and what it must be."""
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        backend(location, **options)
    assert "secret" not in str(caught.value)


def test_an_even_number_of_nodes_warns():
    """Four nodes tolerate no more failures than three."""
    with pytest.warns(UserWarning, match="4 nodes tolerate the failure of 1, .*; use an odd number"):
        RedlockBackend([f"redis://127.0.0.1:{port}" for port in range(4)])


def test_without_poll(monkeypatch):
    """Without `select.poll`, for example under eventlet, RedlockBackend raises RuntimeError."""
    monkeypatch.delattr("select.poll")
    with pytest.raises(RuntimeError, match=r"needs select\.poll"):
        RedlockBackend(["redis://127.0.0.1:1/0"])
