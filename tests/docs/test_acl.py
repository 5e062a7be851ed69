"""The page about Redis' ACL lists the permissions that locks need, and no others."""

import contextlib
import re
import threading

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.core.flow.scripts import all_scripts
from django_redlock.errors import LockError
from tests.docs.pages import DOCS, examples

PAGE = DOCS / "howto" / "redis-acl.rst"


def rules() -> list[str]:
    """Return the words after `ACL SETUSER locks`."""
    [block] = [example.code for example in examples(PAGE.read_text()) if example.language == "text"]
    return block.split()[3:]


def backend_of_user(server, words, database=0, **options) -> RedisBackend:
    """Return a backend that connects as a user with these rights."""
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "locks", *words)
    url = server.url.replace("redis://", "redis://locks:secret@")
    return RedisBackend(f"{url[:-1]}{database}", node_timeout=5, **options)


def added(place: str) -> list[str]:
    """Return the words that the page adds for `place`, a word of the paragraph that explains them."""
    return re.search(rf"^``(\+.*)``\n.*{place}", PAGE.read_text(), re.MULTILINE)[1].split()


def test_another_database(own_redis):
    """A database other than 0 needs the right that the page names, and without it the error names the page."""
    server = own_redis()
    words = rules() + added("database other than 0")
    assert backend_of_user(server, words, database=1).lock("x").acquire()
    backend = backend_of_user(server, [*rules(), "-select"], database=1)
    with pytest.raises(LockError, match=r"select.*A Redis user for locks"):
        backend.lock("x").acquire()


def test_cluster(cluster, unique, start):
    """On a Cluster, the rights of the page suffice, also while a slot moves."""
    for node in cluster.nodes:
        with node.client() as client:
            client.execute_command("ACL", "SETUSER", "locks", *rules(), *added("Redis Cluster"))
    url = cluster.url.replace("://", "://locks:secret@")
    backend = start(contextlib.closing(RedisBackend(url, node_timeout=5)))
    with backend.lock(f"{unique}:other") as held:
        held.extend()
        assert not backend.lock(f"{unique}:other").acquire(timeout=0.05)
    assert [row["ok"] for row in backend.health()] == [True] * 3
    key = f"redlock:{{{unique}}}"
    target = next(node for node in cluster.nodes if node is not cluster.owner(key))
    moved = backend.lock(unique, auto_renew=False)
    assert moved.acquire()
    with cluster.migrating(key, target):
        cluster.move_keys(key, target)
        moved.extend()  # the old server no longer has the key, and so redirects
        with target.client() as client:
            assert client.info("commandstats")["cmdstat_asking"]["calls"]
    for node in cluster.nodes:
        with node.client() as client:
            assert {row["object"] for row in client.acl_log()} <= {"cluster|info"}  # optional
            client.execute_command("ACL", "DELUSER", "locks")


@pytest.mark.parametrize("quarantine", [False, True])
def test_the_user_can_do_all(own_redis, quarantine):
    """A user with these rights can acquire, wait for, list, describe and release locks."""
    server = own_redis()
    backend = backend_of_user(server, rules(), quarantine=quarantine)
    backend.arm()
    backend.prepare()
    held = backend.lock("x", fencing=True)
    held.acquire()
    held.extend()
    waiter = threading.Thread(target=lambda: backend.lock("x").acquire(timeout=20))
    waiter.start()
    assert not backend.lock("x").acquire(timeout=0.05)
    held.release()
    waiter.join(20)
    assert [each.name for each in backend.held()] == ["x"]
    assert backend.describe("x") is not None
    assert backend.force_release("x")
    assert [row["ok"] for row in backend.health()] == [True]
    with server.client() as client:
        assert client.acl_log() == []


def test_a_right_that_is_missing_is_noticed(own_redis):
    backend = backend_of_user(own_redis(), [word for word in rules() if word != "+@string"])
    with pytest.raises(LockError, match=r"can.t run this command"):
        backend.lock("x").acquire()


def test_quarantine_without_info(own_redis):
    """Without INFO the error names quarantine=False, which needs no INFO and works."""
    words = [word for word in rules() if word != "+info"]
    backend = backend_of_user(own_redis(), words, quarantine=True)
    with pytest.raises(LockError, match="not needed with quarantine=False"):
        backend.lock("x").acquire()
    assert backend_of_user(own_redis(), words).lock("x").acquire()


@pytest.mark.parametrize("script", all_scripts(), ids=lambda script: script.name)
def test_commands_of_every_script(redis_server, script):
    """Every command of the scripts is allowed by the page, by name or category."""
    allowed = {word.removeprefix("+") for word in rules()}
    with redis_server.client() as client:
        allowed |= {name.lower() for word in rules() if word[:2] == "+@" for name in client.acl_cat(word[2:])}
    called = re.findall(rb"redis\.p?call\(\s*'(\w+)'", script.source)
    assert {word.decode().lower() for word in called} <= allowed
