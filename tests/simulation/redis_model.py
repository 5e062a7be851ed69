"""A Redis in memory that runs the real scripts in a real Lua: just the commands that the scripts use.

They are in Lua as well, in ``redis_model.lua``, since going from one language to the other takes more time than most of
them. `test_redis_model` compares it with a real Redis.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from lupa.lua51 import LuaRuntime

from django_redlock.core.scripts import Script

_lua = LuaRuntime(encoding=None)
_server: Any = _lua.execute(Path(__file__).with_suffix(".lua").read_bytes())
_lua.globals().redis.sha1hex = lambda text: hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
_run = _server.run
_compiled: dict[bytes, Any] = {}
_words: dict[Sequence[bytes], Any] = {}  # KEYS as Lua has them: there are few, and they come again and again
_on: list[Model] = [None]  # type: ignore[list-item]  # where something happens now


def _nothing(key: bytes) -> None:
    del key


class RedisError(Exception):
    """An error reply."""


class Model:
    """One server's data. ``clock`` gives its time in µs; ``info`` the sections of INFO.

    ``pushed(key)`` is told of what was put on a list, ``wrote(key, value, end)`` of all that was written.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        info: Callable[[bytes], bytes],
        pushed: Callable[[bytes], None] = _nothing,
        wrote: Callable[[bytes, Any, int | None], None] | None = None,
    ) -> None:
        self.clock = clock
        self.info = info
        self.pushed = pushed
        self.wrote = wrote
        self.flush()

    def flush(self) -> None:
        """FLUSHALL."""
        self._state = _server.new(self.wrote is not None)

    def run(self, script: Script, keys: Sequence[bytes], args: Sequence[bytes]) -> Any:
        """The reply of a script, as a client gets it."""
        function = _compiled.get(script.sha)
        if function is None:
            function = _compiled[script.sha] = _lua.execute(b"return function(KEYS, ARGV)\n%b\nend" % script.source)
        _on[0] = self
        words = _words.get(keys)
        if words is None:
            words = _words[keys] = _server.words(*keys)
        return _reply(_run(self._state, self.clock(), function, words, *args))

    def texts(self, key: bytes) -> list[bytes]:
        """A key's string, items or names; nothing, when there is no such key or it has expired."""
        return list(_server.texts(self._state, self.clock(), key).values())

    def keys(self) -> set[bytes]:
        """All of them, also those that have expired and that nobody has looked at since."""
        return set(self._state.data.keys())

    def pop(self, key: bytes) -> bytes | None:
        """LPOP."""
        _on[0] = self
        return cast("bytes | None", _server.pop(self._state, self.clock(), key))

    def put(self, key: bytes, value: Any, end: int | None) -> None:
        """What another model ``wrote``."""
        _server.put(self._state, key, value, end)

    def copy(self) -> Any:
        """All its data, for `load`."""
        return _server.copy(self._state)

    def load(self, copied: Any) -> None:
        """Have this data instead."""
        _server.load(self._state, copied)


def _reply(value: Any) -> Any:
    kind = type(value)
    if kind is int or kind is bytes:
        return value
    if kind is tuple:
        return [each if type(each) is int else _reply(each) for each in value]
    if value is None or value is False:
        return None
    if isinstance(value, int | float):
        return int(value)
    return RedisError(value.err.decode()) if value.err else [_reply(each) for each in value.values()]


# Python and Lua don't see each other's cycles: what Lua kept of a server would stay for ever.
_server.hooks.info = lambda section: _on[0].info(section)  # noqa: PLW0108  (another model each time)
_server.hooks.pushed = lambda key: _on[0].pushed(key)  # noqa: PLW0108
_server.hooks.wrote = lambda *what: _on[0].wrote(*what)  # noqa: PLW0108
