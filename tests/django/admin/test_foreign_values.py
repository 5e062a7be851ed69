"""Values that another program has written: a bad lock is shown as a bad row, without an error."""

import contextlib
import html
import math

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote

from django_redlock.errors import LockError, LockNotAcquired
from django_redlock.history.event_queue import event_queue
from django_redlock.models import make_pk
from tests.django.admin.test_list import LIST, names_in
from tests.django.management.command_result import Done
from tests.support.locks import entry_of

DEEP = "[" * 5000 + "]" * 5000
OWNERS = {
    "surrogate": r'{"host":"a","label":"\udcff"}',
    "surrogate in a key": r'{"host":"a","\udcff":{"\udcff":["\udcff"]}}',
    "nul": r'{"host":"a\u0000","label":"\u0000"}',
    "list": '[{"host":"a"}]',
    "list of texts": '["x"]',
    "empty list": "[]",
    "text": '"x"',
    "number": "17",
    "nan": '{"host":"a","since":NaN,"ttl":Infinity,"more":-Infinity}',
    "overflow": '{"host":"a","since":1e999,"pid":1e999}',
    "text for number": '{"host":"a","pid":"Infinity","since":"nan"}',
    "digits": f'{{"host":"a","pid":{"9" * 5000}}}',
    "deep": DEEP,
    "deep in a field": f'{{"host":"a","x":{DEEP}}}',
    "less deep": '{"host":"a","x":' + '{"x":' * 500 + "1" + "}" * 501,
    "mappings": '{"host":{"a":[1]},"thread":[],"task":{},"label":{},"multilock":[],"task_id":{"a":1}}',
    "no json": "{",
    "no utf-8": "\udcff\udcfe{",
    "large": '{"host":"a","x":"' + "x" * 3_000_000 + '"}',
    "large text": "x" * 3_000_000,
}
END = 2**52  # ms


def value_of(owner):
    return b"0" * 32 + b" " + owner.encode(errors="surrogateescape")


MUTEXES = {f"mutex, {name}": value_of(owner) for name, owner in OWNERS.items()} | {"no owner": b"0815", "empty": b""}
HASHES = {
    **{f"semaphore, {name}": {value_of(owner): f"semaphore@{END} x"} for name, owner in OWNERS.items()},
    **{f"task, {name}": {"x": b"running t s %d - 0 " % END + value_of(owner)[33:]} for name, owner in OWNERS.items()},
    "no share": {"x": "y"},
    "share": {"x": f"semaphore@{'9' * 400} x"},
    "endless share": {"x": f"semaphore@{'9' * 5000} x"},
    "task": {"x": f"running t s {'9' * 400} - 0 {{}}"},
    "kind": {"x": f"{'x' * 5000}@{END} x"},
}
COMPANIONS = {
    "waiters": lambda redis, key: redis.set(f"{key}:waiters", "x"),
    "waiters in a list": lambda redis, key: redis.rpush(f"{key}:waiters", "x"),
    "deep waiter": lambda redis, key: redis.zadd(f"{key}:waiters", {f"0 {DEEP}": END}),
}
OTHERS = {"set": lambda redis, key: redis.sadd(key, "x"), "stream": lambda redis, key: redis.xadd(key, {"x": "y"})}


@pytest.fixture
def bad(redis_server, stores):
    """The names of locks in `default` with such values."""
    keys = {name: f"redlock:{{{name}}}" for name in (*MUTEXES, *HASHES, *COMPANIONS, *OTHERS)}
    with redis_server.client() as redis:
        for name, value in MUTEXES.items():
            redis.set(keys[name], value, px=60_000)
        for name, fields in HASHES.items():
            redis.hset(keys[name], mapping=fields)
        for name, write in (COMPANIONS | OTHERS).items():
            write(redis, keys[name])
        for name in COMPANIONS:
            redis.set(keys[name], value_of('{"host":"a"}'), px=60_000)
        redis.set(f"redlock:{{{'x' * 100_000}}}", "no lock has such a long name")
    return set(keys)


def test_lists(client, stores, operator, bad):
    """held(), the commands and the admin list all of them, in bounded size and escaped."""
    held = stores["default"].held()
    assert {each.name for each in held} == bad
    assert all(all(n is None or math.isfinite(n) for n in (each.remaining, each.ttl, each.since)) for each in held)
    assert len(str(held).encode()) < 1_000_000
    for kind in ("json", "table"):
        done = Done("redlock_list", using=["default"], format=kind)
        assert len(done.out.encode()) < 500_000
        assert all(name in done.out for name in bad)
        assert kind == "table" or {row["name"] for row in done.json} == bad
    pages = [client.get(LIST), client.get(LIST, {"tab": "tasks"})]
    assert set(names_in(pages[0])) | set(names_in(pages[1])) == bad
    assert all(len(page.content) < 500_000 for page in pages)


def test_each(client, stores, operator, bad):
    """Each has a page, can be released by force, and a caller who is refused because of it gets a short error."""
    for name in bad:
        response = client.get(f"{LIST}{quote(f'default:{name}')}/change/")
        assert (response.status_code, len(response.content) < 50_000) == (200, True), name
        for lock in (
            stores["default"].lock(name, blocking=False),
            stores["default"].semaphore(name, limit=1, blocking=False),
        ):
            with pytest.raises(LockError) as refused, lock:
                raise AssertionError(f"{name} was granted")
            assert len(str(refused.value).encode()) < 1000
            if isinstance(refused.value, LockNotAcquired):
                assert len(str(refused.value.holder)) < 10_000
    for held in stores["default"].held():
        assert stores["default"].force_release(held.name, held.digest) or held.kind == "task", held.name


@pytest.mark.parametrize("companion", ["owner", "holder", "token", "waiters"])
def test_timestamp(stores, settings, redis_url, redis_server, client, operator, companion):
    """Foreign values beside the locks of a TimestampBackend are listed, too."""
    settings.REDLOCK = {"old": entry_of("timestamp.TimestampBackend", redis_url, node_timeout=5)}
    locks = [stores["old"].lock(f"name-{number}", ttl=300) for number in range(len(OWNERS))]  # no renewal meanwhile
    with redis_server.client() as redis:
        for lock, owner in zip(locks, OWNERS.values(), strict=True):
            assert lock.acquire()
            beside = f"redlock:{{redlock:{lock.name}}}:fence"
            if companion == "owner":
                redis.hset(beside, "owner", value_of(owner)[33:])
            elif companion == "token":
                redis.hdel(beside, "token")
            elif companion == "holder":
                redis.set(beside, "x")
            else:
                redis.set(f"redlock:{{redlock:{lock.name}}}:waiters", "x")
    assert len(stores["old"].held()) == len(locks)
    page = client.get(LIST)
    assert set(names_in(page)) == {lock.name for lock in locks}
    assert len(page.content) < 500_000
    for lock in locks:
        assert client.get(f"{LIST}old_3A{lock.name}/change/").status_code == 200
        with pytest.raises(LockError), stores["old"].lock(lock.name, blocking=False):
            raise AssertionError("granted")
        with contextlib.suppress(LockError):
            lock.release()


SPOOFED = "invoice\u202e\u2066\u200f\u200b\x9b:7 "
ESCAPED = "invoice\\u202e\\u2066\\u200f\\u200b\\x9b:7\\x20"
ODD = "\u202e\u2066\u200f\u200b\x9b"


def test_invisible_characters(client, stores, operator):
    """Characters that reverse text or can't be seen are shown escaped on every page, and the lock is found."""
    owner = {"label": SPOOFED, "task": SPOOFED, "host": SPOOFED, SPOOFED: SPOOFED}
    page, release = f"{LIST}{quote(make_pk('default', SPOOFED))}/change/", f"{LIST}release/"
    held = [stores["default"].semaphore(SPOOFED, limit=2, owner=owner) for _ in range(2)]
    for each in held:
        each.acquire()
    waiter = stores["default"].semaphore(SPOOFED, limit=2, owner=owner)
    assert not waiter.acquire(blocking=False)
    event_queue.flush()
    confirm = client.post(LIST, {"action": "force_release", "_selected_action": [make_pk("default", SPOOFED)]})
    assert SPOOFED in {each.name for each in stores["default"].held()}
    holding = [f"{digest}:{make_pk('default', SPOOFED)}" for digest in stores["default"].describe(SPOOFED).digests]
    pages = [client.get(LIST), client.get(page), confirm, client.post(release, {"holding": holding}, follow=True)]
    pages += [client.get(page), client.post(release, {"holding": holding}, follow=True), client.get(f"{LIST}health/")]
    assert stores["default"].describe(SPOOFED) is None
    texts = [html.unescape(each.text) for each in pages]
    assert [number for number, text in enumerate(texts) if set(text) & set(ODD)] == []
    assert [number for number, text in enumerate(texts[:-1]) if ESCAPED not in text] == []
    assert LogEntry.objects.filter(object_id=make_pk("default", SPOOFED), change_message__contains=ESCAPED)


def test_invisible_characters_on_a_terminal(stores):
    """The commands write such characters, escape sequences and line breaks escaped, and JSON has the true name."""
    name = f"{SPOOFED}\x1b[31m\n"
    with stores["default"].lock(name, owner=f"{name}\x1b]0;pwned\x07"):
        listed, table = Done("redlock_list", format="json"), Done("redlock_list").out
    assert ESCAPED.replace("\\x20", " ") + r"\x1b[31m\n" in table
    assert len(table.splitlines()) == 2
    assert not (set(table) | set(listed.out)) & {*ODD, "\x1b"}
    assert [row["name"] for row in listed.json] == [name]


def test_foreign_token_stays_secret(stores, redis_server):
    """A lock of another program shows at most a quarter of its value."""
    with redis_server.client() as redis:
        redis.set("redlock:{theirs}", "0123456789abcdef", px=9000)
    held = stores["default"].describe("theirs")
    assert (held.kind, held.owner.label, held.token_prefix) == ("mutex", "", "0123")
    assert "456789abcdef" not in repr(held)


def test_records_of_a_task(stores, redis_server):
    """A task's lock lists every task with a record, the running one first."""
    record = '{} - 5a1d 100000000000000 - 0 {{"host": "{}", "task_id": "c0ffee"}}'
    with redis_server.client() as redis:
        redis.hset(
            "redlock:{settle}", mapping={"a": record.format("queued", "web0"), "b": record.format("running", "web1")}
        )
    held = stores["default"].describe("settle")
    assert (held.kind, held.owner, held.owner.extra["task_id"]) == ("task", held.holders[0], "c0ffee")
    states = [(holder.host, holder.extra["state"]) for holder in held.holders]
    assert states == [("web1", "running"), ("web0", "queued")]
