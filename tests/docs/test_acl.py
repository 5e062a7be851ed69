"""The page about Redis' ACL lists the permissions that locks need, and no others."""

from __future__ import annotations

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


def backend_of_user(server, words, **options) -> RedisBackend:
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "locks", *words)
    return RedisBackend(server.url.replace("redis://", "redis://locks:secret@"), node_timeout=5, **options)


@pytest.mark.parametrize("quarantine", [False, True])
def test_the_user_can_do_all(own_redis, quarantine):
    """A user with these rights can acquire, wait for, list, describe and release locks."""
    server = own_redis()
    backend = backend_of_user(server, rules(), quarantine=quarantine)
    backend.arm()
    assert backend.prepare()
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
    """Without one of the rights a lock can't be acquired."""
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
