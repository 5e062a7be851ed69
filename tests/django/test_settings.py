"""The REDLOCK setting: its backends, its errors, and when it is read."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_redlock import lock, locks
from django_redlock.backends.redis import RedisBackend
from tests.support.proxy import Proxy
from tests.support.service import poll

REDIS = "django_redlock.backends.redis.RedisBackend"
LOCMEM = "django_redlock.backends.locmem.LocMemBackend"
URL = "redis://127.0.0.1:1/0"


@pytest.fixture
def redlock(settings):
    """`redlock(entry)` sets the default alias, `redlock(alias=entry)` the named ones."""

    def configure(default=None, **aliases):
        settings.REDLOCK = {**({"default": default} if default is not None else {}), **aliases}
        return locks

    yield configure
    locks.reset()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"BACKEND": REDIS}, "LOCATION must begin with one of redis://"),
        ({"BACKEND": REDIS, "LOCATION": "http://x"}, "LOCATION must begin with one of redis://.*not 'http://x'"),
        ({"BACKEND": REDIS, "LOCATION": [URL]}, "must be one URL, .*; for several nodes use RedlockBackend"),
        ({"BACKEND": REDIS, "LOCATION": "redis://a..b:6379/0"}, r"'redis://a..b:6379/0': 'a\.\.b' is not a host name"),
        (
            {"BACKEND": REDIS, "LOCATION": URL, "OPTIONS": {"tll": 3}},
            r"RedisBackend\(\) has no option 'tll'; use ttl \(options: node_timeout, .*, ttl, ",
        ),
        ({"BACKEND": REDIS, "LOCATION": URL, "OPTIONS": [("ttl", 3)]}, "OPTIONS must be a dict"),
        ({"BACKEND": REDIS, "LOCATION": URL, "KEY_PREFIX": ""}, "key_prefix must be a text without braces"),
        ({"BACKEND": REDIS, "LOCATION": URL, "TIMEOUT": 3}, r"unknown keys: TIMEOUT \(known: BACKEND, LOCATION"),
        ({"BACKEND": "django_redlock.backends.reddis.RedisBackend"}, "can't be imported: No module named"),
        ({"BACKEND": "django_redlock.backends.redis.Redis"}, "can't be imported"),
        (
            {"BACKEND": "redis"},
            "can't be imported.*Backends of this package: django_redlock.backends.redis.RedisBackend, ",
        ),
        ({"BACKEND": 17}, "can't be imported"),
        ({"BACKEND": "json.loads"}, "'json.loads' is not a lock backend.*RedisBackend"),
        ({"LOCATION": URL}, "must be a dict with a BACKEND"),
        ("redis://localhost", "must be a dict with a BACKEND, not 'redis://localhost'"),
        ({"LOCATION": "redis://:secret@h", "OPTIONS": {"ttl": 5}}, "must be a dict with a BACKEND, not .*…@h"),
        ({"BACKEND": REDIS, "LOCATION": "cache:nowhere"}, r"CACHES has no 'nowhere' \(it has 'plain', 'several'"),
        ({"BACKEND": REDIS, "LOCATION": "cache:plain"}, "'plain' .*LocMemCache.* is not a cache on one Redis .* Use "),
        (
            {"BACKEND": REDIS, "LOCATION": "cache:several"},
            "'several' .*RedisCache.* is not a cache on one Redis .* Use ",
        ),
    ],
)
def test_bad_entry(redlock, settings, entry, message):
    """A wrong entry raises an error at the first use, with the alias and without the password."""
    client = {"CLIENT_CLASS": "django_redis.client.ShardClient"}
    settings.CACHES = {
        "plain": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        "several": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": [URL, URL], "OPTIONS": client},
    }
    with pytest.raises(ImproperlyConfigured, match=message) as refused:
        redlock(shop=entry)["shop"]
    assert str(refused.value).startswith("REDLOCK['shop']")
    assert "secret" not in str(refused.value)


def test_unknown_alias(redlock):
    """An unknown alias raises an error that lists the aliases."""
    redlock({"BACKEND": LOCMEM}, other={"BACKEND": LOCMEM})
    for alias in "payments", None:
        with pytest.raises(ImproperlyConfigured, match=r"\(aliases: 'default', 'other'\)"):
            lock("x", using=alias)
    assert "payments" not in locks
    assert (list(locks), len(locks)) == (["default", "other"], 2)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, r'Add to your settings: REDLOCK = \{"default"'),
        (None, r'Add to your settings: REDLOCK = \{"default"'),
        ("redis://:secret@localhost", "REDLOCK must be a dict of aliases, not 'redis://…@localhost'"),
    ],
)
def test_bad_setting(settings, value, message):
    """Without a usable setting the error says what to write."""
    settings.REDLOCK, settings.CACHES = value, {}
    with pytest.raises(ImproperlyConfigured, match=message):
        lock("x")


def test_backend_gets_its_settings(redlock):
    """LOCATION, KEY_PREFIX and OPTIONS are passed to the backend, which knows its alias."""
    entry = {"BACKEND": REDIS, "LOCATION": URL, "KEY_PREFIX": "shop", "OPTIONS": {"ttl": 7, "node_timeout": 0.1}}
    backend = redlock(payments=entry)["payments"]
    assert isinstance(backend, RedisBackend)
    assert (backend.alias, backend.key_prefix, backend.ttl, backend.node_timeout) == ("payments", "shop", 7, 0.1)


def test_one_backend_for_the_process(redlock):
    """Threads that ask at the same moment get the same backend."""
    redlock({"BACKEND": LOCMEM})
    together = threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda _: (together.wait(20) and None) or locks["default"], range(8))
    assert len(set(map(id, found))) == 1


def test_settings_that_change(redlock):
    """override_settings takes effect at once, and the old backend comes back afterwards."""
    redlock({"BACKEND": LOCMEM, "OPTIONS": {"ttl": 5}})
    assert locks["default"].ttl == 5
    with override_settings(REDLOCK={"default": {"BACKEND": LOCMEM, "OPTIONS": {"ttl": 6}}}):
        assert locks["default"].ttl == 6
    assert locks["default"].ttl == 5


def test_held_locks_survive_a_change_of_settings(redlock, redis_url):
    redlock({"BACKEND": REDIS, "LOCATION": redis_url, "OPTIONS": {"node_timeout": 5}})
    held = lock("x")
    held.acquire()
    redlock({"BACKEND": LOCMEM})
    held.release()
    assert not held.locked()


@pytest.mark.parametrize("location", ["cache:default", URL])
def test_building_connects_nowhere(redlock, settings, start, location):
    """Neither the backend nor a lock opens a connection before the first acquire."""
    proxy = start(Proxy(URL))
    location = location if location.startswith("cache:") else proxy.url
    settings.CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": proxy.url}}
    redlock({"BACKEND": REDIS, "LOCATION": location})
    made = lock("x")
    assert proxy.accepted == 0
    with pytest.raises(ConnectionError):
        made.acquire()
    poll(lambda: proxy.accepted > 0, timeout=20, what="the connection")


@pytest.mark.parametrize("backend", ["django_redis.cache.RedisCache", "django.core.cache.backends.redis.RedisCache"])
def test_a_cache_on_redis_is_the_default(settings, redis_url, backend, monkeypatch):
    monkeypatch.setattr("django_redlock.backends.redis.default_node_timeout", lambda _ttl: 5)
    del settings.REDLOCK
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": redis_url}}
    with lock("x"):
        assert lock("x").locked()
        assert [each.name for each in RedisBackend(redis_url, node_timeout=5).held()] == ["x"]
    assert list(locks) == ["default"]
    assert locks["default"].location == "cache:default"
