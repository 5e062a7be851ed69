"""Invalid settings raise ``ValueError`` when the backend is created."""

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend

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


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("redis://user:secret@h", "must be a list of URLs, one for each node, not 'redis://…@h'"),
        ([], "must be a list of URLs"),
        ((), "must be a list of URLs"),
        ([["redis://h"]] * 3, "expected a redis"),
        ([{"URL": "redis://h"}] * 3, "expected a redis"),
        (["redis+cluster://h:7000"], "can't be a node of a quorum"),
    ],
)
def test_invalid_nodes(location, message):
    """A quorum needs a list of URLs of independent servers. The error does not show a password."""
    with pytest.raises(ValueError, match=message):
        RedlockBackend(location, quarantine=False)


def test_an_even_number_of_nodes_warns():
    """Four nodes tolerate no more failures than three."""
    with pytest.warns(UserWarning, match="4 nodes tolerate the failure of 1, .*; use an odd number"):
        RedlockBackend([f"redis://127.0.0.1:{port}" for port in range(4)])


def test_without_poll(monkeypatch):
    """Without `select.poll`, for example under eventlet, RedlockBackend raises RuntimeError."""
    monkeypatch.delattr("select.poll")
    with pytest.raises(RuntimeError, match=r"needs select\.poll"):
        RedlockBackend(["redis://127.0.0.1:1/0"])
