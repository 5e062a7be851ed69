"""The system checks: one id for each problem, and the alias in every message."""

import contextlib
import re
from pathlib import Path

import pytest
from django.core import checks
from django.core.cache import caches as connections
from django.core.management import call_command
from django.core.management.base import SystemCheckError

import django_redlock.checks.deploy
import django_redlock.checks.settings
from django_redlock.backend_registry import build
from django_redlock.backends.redis import RedisBackend
from django_redlock.checks.deploy import cautions
from tests.docs.pages import DOCS

REDIS, TIMESTAMP, LOCMEM, DUMMY = (
    f"django_redlock.backends.{each}"
    for each in ("redis.RedisBackend", "timestamp.TimestampBackend", "locmem.LocMemBackend", "dummy.DummyBackend")
)
DOWN = "redis://127.0.0.1:1/0"


@pytest.fixture
def found(settings):
    """`found({alias: entry}, deploy=False)`: the messages of the checks of this package."""

    def run(redlock, *, deploy=False, caches=None):
        settings.REDLOCK = redlock
        settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}, **(caches or {})}
        return checks.run_checks(tags=["redlock"], include_deployment_checks=deploy)

    return run


def on_redis(url, **options):
    """Return a setting with one backend, which may take its time: the machine may be busy."""
    return {"default": {"BACKEND": REDIS, "LOCATION": url, "OPTIONS": {"node_timeout": 5, **options}}}


def ids(messages):
    return [message.id for message in messages]


def django_redis(url, **options):
    return {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url, "OPTIONS": options}


def test_no_messages(found):
    """A usual configuration gives no messages, and no server is contacted."""
    redlock = {
        "default": {"BACKEND": REDIS, "LOCATION": DOWN},
        "payments": {"BACKEND": REDIS, "LOCATION": DOWN, "KEY_PREFIX": "payments"},
        "php": {"BACKEND": TIMESTAMP, "LOCATION": DOWN},
        "java": {"BACKEND": TIMESTAMP, "LOCATION": DOWN, "OPTIONS": {"key_format": "lock.{name}"}},
        "cache": {"BACKEND": REDIS, "LOCATION": "cache:redis"},
        "memory": {"BACKEND": LOCMEM},
        "dummy": {"BACKEND": DUMMY},
    }
    assert found(redlock, caches={"redis": django_redis(DOWN)}) == []


@pytest.mark.parametrize(
    ("redlock", "id", "message"),
    [
        ({}, "redlock.E001", "no alias 'default'"),
        ({"default": {"BACKEND": LOCMEM}, "a": {"BACKEND": REDIS}}, "redlock.E002", "REDLOCK['a']"),
        ({"default": {"BACKEND": LOCMEM, "OPTIONS": {"tll": 1}}}, "redlock.E002", "'tll'"),
        ("redis://x", "redlock.E002", "REDLOCK must be a dict"),
        ({"default": {"BACKEND": "nowhere.Backend"}}, "redlock.E003", "REDLOCK['default']: BACKEND 'nowhere.Backend'"),
        ({"default": {"LOCATION": DOWN}}, "redlock.E003", "REDLOCK['default'] must be a dict with a BACKEND"),
        ({"default": {"BACKEND": REDIS, "LOCATION": "cache:default"}}, "redlock.E002", "is not a cache on one Redis"),
        ({"default": {"BACKEND": REDIS, "LOCATION": "cache:bad"}}, "redlock.E002", "the cache 'bad' can't be used"),
        (on_redis(DOWN, ttl=3, node_timeout=2), "redlock.W005", "REDLOCK['default']: node_timeout (2 s)"),
    ],
)
def test_each_mistake(found, redlock, id, message):
    """Each mistake has an id, and its message names the alias."""
    caches = {"bad": django_redis(DOWN, CONNECTION_POOL_CLASS="no.Pool")}
    try:
        [complaint] = found(redlock, caches=caches)
    finally:
        with contextlib.suppress(AttributeError):
            del connections["bad"]  # django-redis 5 makes the pool again to close it
    assert complaint.id == id
    assert message in complaint.msg


def test_deployment(found, own_redis):
    """Only `check --deploy` mentions backends for tests."""
    redlock = on_redis(own_redis("--appendonly", "yes").url)
    redlock |= {"memory": {"BACKEND": LOCMEM}, "dummy": {"BACKEND": DUMMY}}
    assert found(redlock) == []
    assert ids(found(redlock, deploy=True)) == ["redlock.W002", "redlock.W001"]


def test_server_that_evicts(found, own_redis):
    """`check --deploy` reports a server that may evict a held lock."""
    server = own_redis("--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru", "--appendonly", "yes")
    redlock = on_redis(server.url)
    assert found(redlock) == []
    [complaint] = found(redlock, deploy=True)
    assert complaint.id == "redlock.W006"
    assert "maxmemory-policy is allkeys-lru" in complaint.msg
    with server.client() as client:
        client.config_set("maxmemory-policy", "noeviction")
    assert found(redlock, deploy=True) == []


@pytest.mark.parametrize(
    ("location", "hosts"),
    [
        ("redis://cache.example:6379/0", ["cache.example"]),
        ("redis://user:pass@10.0.0.1/0", ["10.0.0.1"]),
        ("redis+sentinel://a.example:1,127.0.0.1:1,[fd00::1]:1/mymaster/0", ["a.example", "fd00::1"]),
        ("redis+cluster://a.example:1", ["a.example"]),
        ("cache:remote", ["cached.example"]),
        ("valkey://cache.example:6379/0", ["cache.example"]),
        ("valkeys://cache.example:6379/0", []),
        ("rediss://cache.example:6379/0", []),
        ("redis://localhost:1/0", []),
        ("redis://127.8.0.1:1/0", []),
        ("redis://[::1]:1/0", []),
        ("unix:///nowhere/redis.sock", []),
    ],
)
def test_plain_text(location, hosts, settings):
    """`check --deploy` names each remote host without TLS, and shows no password."""
    settings.CACHES = {"default": {}, "remote": django_redis("redis://:secret@cached.example:1/0")}
    said = [each.sentence for each in cautions(RedisBackend(location), []) if each.id == "redlock.W007"]
    assert said == [f"speaks to {host} without TLS." for host in hosts]


def test_short_ttl(found, own_redis):
    """A ttl with renewals every second is reported."""
    server = own_redis("--appendonly", "yes")
    for ttl, expected in ((2.9, ["redlock.W008"]), (3, [])):  # W005: the node_timeout is patient
        assert ids(found(on_redis(server.url, ttl=ttl), deploy=True)) == ["redlock.W005", *expected]


def test_forgetful_server(found, own_redis):
    """A server without persistence is reported, unless a quarantine is on."""
    server = own_redis()
    [complaint] = found(on_redis(server.url), deploy=True)
    assert complaint.id == "redlock.W009"
    assert str(server.port) in complaint.msg
    redlock = on_redis(server.url, quarantine=True)
    build("default", redlock["default"]).arm()
    assert found(redlock, deploy=True) == []
    with server.client() as client:
        client.config_set("save", "60 1")
    assert found(on_redis(server.url), deploy=True) == []


@pytest.mark.parametrize(
    ("location", "warned"),
    [
        ("cache:redis", True),
        ("redis://127.0.0.1:1", True),
        ("redis://u:p@127.0.0.1:1/0?max_connections=9", True),
        (DOWN[:-1] + "9", False),
    ],
)
def test_cache_on_the_same_database(settings, location, warned):
    """A cache whose clear() would remove the locks is named, unless the store has a quarantine."""
    settings.CACHES = {"redis": django_redis(DOWN), "other": django_redis("redis://127.0.0.1:2/0")}
    for quarantine in False, True:
        backend = build("a", {"BACKEND": REDIS, "LOCATION": location, "OPTIONS": {"quarantine": quarantine}})
        warnings = [each for each in cautions(backend, []) if each.id == "redlock.W011"]
        assert bool(warnings) == (warned and not quarantine)
        assert all("of CACHES['redis']: clear()" in each.sentence for each in warnings)


def test_server_that_is_down(found):
    [complaint] = found(on_redis(DOWN), deploy=True)
    assert (complaint.id, complaint.level) == ("redlock.I001", checks.INFO)


def test_command(settings):
    """`manage.py check` runs the checks."""
    settings.ROOT_URLCONF = "tests.django.urls"
    settings.REDLOCK = {"default": {"BACKEND": "nowhere.Backend"}}
    with pytest.raises(SystemCheckError, match=r"redlock\.E003"):
        call_command("check")


def test_documented():
    """Every id is explained in the docs, and the docs explain no others."""
    pattern = re.compile(r"\b[EWI]\d{3}\b")
    modules = (django_redlock.checks.settings, django_redlock.checks.deploy)
    given = {id for module in modules for id in pattern.findall(Path(module.__file__).read_text())}
    explained = set(pattern.findall((DOCS / "reference/checks.rst").read_text()))
    assert given == explained
