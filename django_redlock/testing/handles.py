"""What a handle does for its user when nobody else is there: true of every backend, of one that always grants too."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from datetime import timedelta
from typing import Any

import pytest

from ..errors import LockNotHeld
from .faces import AsyncClient, Client, SyncClient
from .fixtures import Fixtures, NewBackend

NOT_POSITIVE = [0, -1, -0.001, float("nan"), float("inf"), float("-inf"), timedelta(0), timedelta(seconds=-1)]
NOT_A_TIME = ["10", True, [], b"1", 1j]
GOOD_NAMES = [" ", "two words", "new\nline", "\r\n", "nul\0", "*", "a?b", "[ab]", "a[", "{b}", "a}b", "back\\slash"]
GOOD_NAMES += ["Bestätigung", "在庫", "🔒", '"quoted"', "order:17", "%s %(x)s", "a/b", "x" * 512]
BAD_NAMES = ["", "x" * 513, "ä" * 257, "}", "}x", "\ud800"]
ARGUMENTS: list[tuple[Any, ...]] = [
    (True, -1),
    (True, -1.0),
    (True, 0),
    (False,),
    (False, -1),
    (True, threading.TIMEOUT_MAX),
]
ARGUMENTS += [(False, 1), (False, 0), (True, -2), (True, -0.5), (True, 1e100), (True, threading.TIMEOUT_MAX + 1)]
ARGUMENTS += [
    (True, float("nan")),
    (True, float("inf")),
    (True, float("-inf")),
    (True, "1"),
    (True, None),
    (True, b"1"),
]


def _what_happens(acquire: Any, arguments: tuple[Any, ...]) -> Any:
    try:
        return acquire(*arguments)
    except Exception as error:  # noqa: BLE001  (compared)
        return type(error)


class HandleCases(Fixtures):
    """One user, one handle."""

    def test_acquire_and_release(self, client: Client, name: str) -> None:
        """Between acquire and release a handle says that it holds, before and after that it doesn't."""
        lock = client.lock(name, ttl=10)
        assert (lock.token, lock.owner, lock.fencing_token, lock.remaining, lock.lost) == (None, None, None, 0, False)
        assert lock.acquire() is True
        assert lock.token
        assert 0 < lock.remaining < 10
        assert lock.lost is False
        lock.check()
        lock.release()
        assert (lock.token, lock.owner, lock.fencing_token, lock.remaining, lock.lost) == (None, None, None, 0, False)

    def test_can_be_used_again(self, client: Client, name: str) -> None:
        """A handle can be acquired any number of times, with a new token each time."""
        lock = client.lock(name)
        tokens = set()
        for _ in range(3):
            assert lock.acquire(timeout=1)
            tokens.add(lock.token)
            lock.release()
        assert len(tokens) == 3

    def test_with(self, client: Client, name: str) -> None:
        """`with` hands out the lock, held, and gives it back."""
        with client.lock(name) as held:
            assert held.token
            assert held.name == name
            held.check()
        assert held.token is None

    def test_error_of_the_body(self, client: Client, name: str) -> None:
        """An exception leaves `with` as it is, and the lock is given back."""
        lock = client.lock(name)
        with pytest.raises(ZeroDivisionError) as caught, lock:
            1 / 0  # noqa: B018
        assert lock.token is None
        assert caught.value.__cause__ is None

    def test_released_in_the_body(self, client: Client, name: str) -> None:
        """Who releases within `with` is told at its end, as by threading.Lock; the body's own error comes first."""
        lock = client.lock(name)
        with pytest.raises(LockNotHeld), lock:
            lock.release()
        with pytest.raises(ZeroDivisionError), lock:
            lock.release()
            1 / 0  # noqa: B018

    @pytest.mark.parametrize("method", ["release", "extend", "check"])
    def test_nothing_held(self, client: Client, name: str, method: str) -> None:
        """To release, extend or check what is not held is LockNotHeld, a RuntimeError, before and after holding."""
        lock = client.lock(name)
        for _ in range(2):
            with pytest.raises(LockNotHeld) as caught:
                getattr(lock, method)()
            assert isinstance(caught.value, RuntimeError)
            assert caught.value.name == name
            assert repr(name) in str(caught.value)
            lock.acquire()
            lock.release()

    @pytest.mark.parametrize("arguments", ARGUMENTS, ids=repr)
    def test_arguments_of_acquire(self, client: Client, name: str, arguments: tuple[Any, ...]) -> None:
        """acquire() takes and refuses what threading.Lock.acquire() takes and refuses, with the same errors."""
        expected = _what_happens(threading.Lock().acquire, arguments)
        assert _what_happens(client.lock(name).acquire, arguments) == expected

    def test_extend_replaces(self, client: Client, name: str) -> None:
        """extend() sets what is left of the lease, never adds to it, and returns it."""
        lock = client.lock(name, ttl=10, auto_renew=False)
        lock.acquire()
        assert 10 < lock.extend(20) < 20
        assert 10 < lock.extend(timedelta(seconds=20)) < 20
        assert 2 < lock.extend(5) < 5
        assert 2 < lock.remaining < 5
        assert 5 < lock.extend() < 10
        lock.release()

    def test_max_hold_bounds_extend(self, client: Client, name: str) -> None:
        """max_hold bounds ttl and extend() alike."""
        with client.lock(name, ttl=10, max_hold=5) as lock:
            assert lock.remaining < 5
            assert lock.extend(20) < 5

    @pytest.mark.parametrize("ttl", [*NOT_POSITIVE, 300.1, timedelta(hours=1)], ids=repr)
    def test_senseless_ttl(self, client: Client, name: str, ttl: Any) -> None:
        """A ttl that is not positive, or above max_ttl, is a ValueError; a lock that is held stays held."""
        with pytest.raises(ValueError, match="ttl"):
            client.lock(name, ttl=ttl)
        with client.lock(name) as lock:
            with pytest.raises(ValueError, match="ttl"):
                lock.extend(ttl)
            lock.check()

    @pytest.mark.parametrize("ttl", NOT_A_TIME, ids=repr)
    def test_ttl_that_is_no_time(self, client: Client, name: str, ttl: Any) -> None:
        """A ttl that is no number and no timedelta is a TypeError."""
        with pytest.raises(TypeError, match="ttl"):
            client.lock(name, ttl=ttl)
        with client.lock(name) as lock, pytest.raises(TypeError, match="ttl"):
            lock.extend(ttl)

    @pytest.mark.parametrize("option", ["max_hold", "min_hold", "blocking_timeout"])
    def test_senseless_times(self, client: Client, name: str, option: str) -> None:
        """The other times are checked as the ttl is."""
        for value in (-1, float("nan")):
            with pytest.raises(ValueError, match=option):
                client.lock(name, **{option: value})
        with pytest.raises(TypeError, match=option):
            client.lock(name, **{option: "1"})

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"tll": 10}, TypeError),
            ({"on_lost": "ignore"}, ValueError),
            ({"blocking": False, "blocking_timeout": 1}, ValueError),
        ],
        ids=repr,
    )
    def test_senseless_options(
        self, client: Client, name: str, options: dict[str, Any], error: type[Exception]
    ) -> None:
        """Options that are unknown or contradict each other are refused when the lock is made."""
        with pytest.raises(error, match=next(reversed(options))):
            client.lock(name, **options)

    @pytest.mark.parametrize("option", ["tll", "timeout", "node_timout"])
    def test_unknown_option_of_the_backend(self, new_backend: NewBackend, option: str) -> None:
        """A typo in the backend's options is a TypeError that names it."""
        with pytest.raises(TypeError, match=option):
            new_backend(**{option: 10})

    @pytest.mark.parametrize(
        "options", [{"ttl": 0}, {"ttl": 301}, {"ttl": 20, "max_ttl": 10}, {"key_prefix": "a{b"}], ids=repr
    )
    def test_senseless_options_of_the_backend(self, new_backend: NewBackend, options: dict[str, Any]) -> None:
        """A ttl that is not positive or above max_ttl, or a prefix with braces, is a ValueError when it is made."""
        with pytest.raises(ValueError, match=r"ttl|key_prefix"):
            new_backend(**options)

    @pytest.mark.parametrize("odd", GOOD_NAMES, ids=lambda odd: ascii(odd[:12]))
    def test_odd_names(self, client: Client, name: str, odd: str) -> None:
        """Spaces, newlines, glob characters, braces and any Unicode are fine in a name."""
        full = odd if len(odd) == 512 else odd + name
        with client.lock(full) as lock:
            assert lock.extend(20) > 10
            assert lock.name == full

    @pytest.mark.parametrize("bad", BAD_NAMES, ids=lambda bad: ascii(bad[:4]))
    def test_bad_names(self, client: Client, bad: str) -> None:
        """An empty or over-long name, one that begins with '}' and one that is no text is a ValueError."""
        with pytest.raises(ValueError, match="lock's name"):
            client.lock(bad)

    @pytest.mark.parametrize("bad", [None, 17, b"bytes"], ids=repr)
    def test_names_of_another_type(self, client: Client, bad: Any) -> None:
        """A name that is no str is a TypeError."""
        with pytest.raises(TypeError, match="lock's name"):
            client.lock(bad)

    def test_owner(self, client: Client, name: str) -> None:
        """The owner tells host, process, thread or task, since when, and what the caller adds."""
        with client.lock(name, owner="nightly run") as lock:
            assert lock.owner.pid == os.getpid()
            assert lock.owner.host
            assert lock.owner.since > 1e9
            assert lock.owner.label == "nightly run"
            assert bool(lock.owner.task) is isinstance(client, AsyncClient)
            assert "nightly run" in str(lock.owner)
        with client.lock(name, owner={"order": 17, "who": "\U0001f512 ä\n"}) as lock:
            assert lock.owner.extra == {"order": 17, "who": "\U0001f512 ä\n"}

    @pytest.mark.parametrize("fencing", [False, True])
    def test_fencing_tokens_grow(self, client: Client, other: Client, name: str, fencing: bool) -> None:
        """Each grant of a name has a larger fencing token than the one before, whoever gets it."""
        tokens = []
        for user in (client, other) * 5:
            with user.lock(name, fencing=fencing) as lock:
                tokens.append(lock.fencing_token)
        assert tokens == sorted(set(tokens))

    def test_repr(self, client: Client, name: str) -> None:
        """The repr says locked or unlocked as threading.Lock's does, and never the token."""
        lock = client.lock(name)
        assert repr(lock).startswith("<unlocked ")
        with lock:
            assert repr(lock).startswith("<locked ")
            assert name in repr(lock)
            assert lock.token not in repr(lock)
        assert repr(lock).startswith("<unlocked ")

    def test_no_reference_is_kept(self, client: Client, name: str) -> None:
        """Nothing keeps a handle alive: not even what renews it."""
        lock = client.lock(name)
        lock.acquire()  # what a client library does when it connects may leave a cycle behind
        lock.release()
        lock = client.lock(name)
        lock.acquire()
        ref = weakref.ref(getattr(lock, "_lock", lock))
        del lock
        assert ref() is None

    def test_acquire_in_a_coroutine(self, new_backend: NewBackend, name: str) -> None:
        """acquire() and `with` in a coroutine are refused, with what to write instead; nothing is taken by that."""
        backend = new_backend()

        async def mistake() -> None:
            lock = backend.lock(name)
            with pytest.raises(RuntimeError, match="aacquire"):
                lock.acquire()
            with pytest.raises(RuntimeError, match="async with"), lock:
                raise AssertionError("the block was entered")
            assert await lock.aacquire(False)
            await lock.arelease()
            await backend.aclose()

        asyncio.run(mistake())
        backend.close()

    def test_both_colours(self, new_backend: NewBackend, name: str) -> None:
        """One handle can be acquired by a coroutine and released by blocking code, and the other way round."""
        backend = new_backend()
        lock = backend.lock(name)
        assert asyncio.run(lock.aacquire())
        lock.release()
        assert lock.acquire()
        asyncio.run(lock.arelease())
        assert lock.token is None
        SyncClient(backend).close()
