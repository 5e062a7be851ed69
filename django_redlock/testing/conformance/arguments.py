"""Cases for valid and invalid arguments of locks and backends.

Every backend must pass them, even a backend that grants every acquire.
"""

from __future__ import annotations

import contextlib
import threading
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import Any

import pytest

from ...errors import LockNotSupported
from .harness.clients import Client
from .harness.fixtures import Fixtures, NewBackend
from .shared_handles import MAKE

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
    (False, float("inf")),
    (False, float("-inf")),
    (False, float("nan")),
    (False, threading.TIMEOUT_MAX),
    (False, 2**64 / 1e9),
]


def _what_happens(acquire: Any, arguments: tuple[Any, ...]) -> Any:
    try:
        return acquire(*arguments)
    except Exception as error:  # noqa: BLE001  (compared)
        return type(error)


class ArgumentCases(Fixtures):
    """Cases for names, times and options."""

    @pytest.mark.parametrize("arguments", ARGUMENTS, ids=repr)
    def test_arguments_of_acquire(self, client: Client, name: str, arguments: tuple[Any, ...]) -> None:
        """acquire() accepts and refuses the same arguments as threading.Lock.acquire(), with the same errors."""
        expected = _what_happens(threading.Lock().acquire, arguments)
        assert _what_happens(client.lock(name).acquire, arguments) == expected

    @pytest.mark.parametrize("ttl", [*NOT_POSITIVE, 300.1, timedelta(hours=1)], ids=repr)
    def test_invalid_ttl(self, client: Client, name: str, ttl: Any) -> None:
        """A ttl that is above max_ttl or not positive raises ValueError. After such an extend() the lock stays held."""
        with pytest.raises(ValueError, match="ttl"):
            client.lock(name, ttl=ttl)
        with client.lock(name) as lock:
            with pytest.raises(ValueError, match="ttl"):
                lock.extend(ttl)
            lock.check()

    def test_shortest_ttl(self, client: Client, name: str) -> None:
        """A ttl or max_hold below 0.003 seconds raises ValueError. The error names the minimum."""
        for option in ("ttl", "max_hold"):
            with pytest.raises(ValueError, match=rf"{option} must be at least 0.003"):
                client.lock(name, **{option: 0.002})
        with client.lock(name) as lock, pytest.raises(ValueError, match="at least"):
            lock.extend(0.001)

    @pytest.mark.parametrize("ttl", NOT_A_TIME, ids=repr)
    def test_ttl_of_another_type(self, client: Client, name: str, ttl: Any) -> None:
        """A ttl that is neither a number nor a timedelta raises TypeError."""
        with pytest.raises(TypeError, match="ttl"):
            client.lock(name, ttl=ttl)
        with client.lock(name) as lock, pytest.raises(TypeError, match="ttl"):
            lock.extend(ttl)

    @pytest.mark.parametrize("option", ["max_hold", "min_hold", "every", "blocking_timeout"])
    def test_invalid_times(self, client: Client, name: str, option: str) -> None:
        """The other times raise ValueError if negative, NaN or longer than a store can keep, and TypeError if a str."""
        for value in (-1, float("nan"), 1e17, 10**400):
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
    def test_invalid_options(self, client: Client, name: str, options: dict[str, Any], error: type[Exception]) -> None:
        """Options that are unknown or contradict each other are refused when the lock is created."""
        with pytest.raises(error, match=next(reversed(options))):
            client.lock(name, **options)

    def test_coroutine_function_as_on_lost(self, client: Client, name: str) -> None:
        """A coroutine function as on_lost raises TypeError, because nothing would await it."""

        async def stop(lock: Any) -> None:
            raise AssertionError(lock)

        class Stop:
            async def __call__(self, lock: Any) -> None:
                await stop(lock)

        for on_lost in (stop, partial(stop), Stop(), Stop().__call__):
            with pytest.raises(TypeError, match="on_lost"):
                client.lock(name, on_lost=on_lost)

    @pytest.mark.parametrize("option", ["tll", "timeout", "node_timout"])
    def test_unknown_option_of_the_backend(self, new_backend: NewBackend, option: str) -> None:
        """An unknown option of the backend raises TypeError, and the error names the option."""
        with pytest.raises(TypeError, match=option):
            new_backend(**{option: 10})

    @pytest.mark.parametrize(
        "options", [{"ttl": 0}, {"ttl": 301}, {"ttl": 20, "max_ttl": 10}, {"key_prefix": "a{b"}], ids=repr
    )
    def test_invalid_options_of_the_backend(self, new_backend: NewBackend, options: dict[str, Any]) -> None:
        """The constructor raises ValueError for a ttl that is not positive or is above max_ttl, or for a bad prefix."""
        with pytest.raises(ValueError, match=r"ttl|key_prefix"):
            new_backend(**options)

    @pytest.mark.parametrize("odd", GOOD_NAMES, ids=lambda odd: ascii(odd[:12]))
    def test_special_characters_in_names(self, client: Client, name: str, odd: str) -> None:
        """A name may have spaces, newlines, glob characters, braces and any Unicode."""
        full = odd if len(odd) == 512 else odd + name
        with client.lock(full) as lock:
            assert lock.extend(20) > 10
            assert lock.name == full

    @pytest.mark.parametrize("kind", sorted(MAKE))
    def test_unsupported_kinds(self, new_backend: NewBackend, name: str, kind: str) -> None:
        """The method for a kind of lock that the store does not support raises an error that names the kind."""
        with contextlib.closing(new_backend()) as backend:
            if kind in backend.kinds or (kind == "fair" and backend.fair):
                assert kind not in self.lacks
                MAKE[kind](backend, name)
            else:
                with pytest.raises(LockNotSupported, match=kind):
                    MAKE[kind](backend, name)

    def test_names_of_an_enum(self, new_backend: NewBackend, name: str) -> None:
        """A name that is a str and an Enum counts as its text, and the handle has that text as a plain str."""
        member: Any = Enum("Names", {"LOCK": name}, type=str).LOCK  # type: ignore[attr-defined]
        with contextlib.closing(new_backend()) as backend:
            for kind in {*MAKE} & {*backend.kinds}:
                made, expected = MAKE[kind](backend, member), MAKE[kind](backend, name)
                assert f"{made.name}" == expected.name
                assert [f"{each}" for each in getattr(made, "names", ())] == [*getattr(expected, "names", ())]

    @pytest.mark.parametrize("bad", BAD_NAMES, ids=lambda bad: ascii(bad[:4]))
    def test_invalid_names(self, client: Client, bad: str) -> None:
        """A name that is empty, too long, not valid text or begins with '}' raises ValueError."""
        with pytest.raises(ValueError, match="lock's name"):
            client.lock(bad)

    @pytest.mark.parametrize("bad", [None, 17, b"bytes"], ids=repr)
    def test_names_of_another_type(self, client: Client, bad: Any) -> None:
        """A name that is not a str raises TypeError."""
        with pytest.raises(TypeError, match="lock's name"):
            client.lock(bad)
