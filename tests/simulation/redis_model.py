"""A Redis in memory that runs the real scripts in a real Lua: just the commands that the scripts use.

`test_redis_model` compares it with a real Redis.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from lupa.lua51 import LuaRuntime

from django_redlock.core.scripts import Script

_lua = LuaRuntime(encoding="latin-1", unpack_returned_tuples=True)
_compiled: dict[bytes, Any] = {}
_on: list[Model] = [None]  # type: ignore[list-item]  # the model on which a script runs now


class RedisError(Exception):
    """An error reply."""


class Hash(dict[str, str]):
    """The value of a hash; a sorted set is a plain ``dict``."""

    def __deepcopy__(self, memo: Any) -> Hash:
        return Hash(self)


class Model:
    """One server's data. ``clock`` gives its time in µs; ``info`` the sections of INFO."""

    def __init__(self, clock: Callable[[], int], info: Callable[[str], str]) -> None:
        self.clock = clock
        self.info = info
        self.data: dict[str, Any] = {}
        self.ends: dict[str, int] = {}  # key -> when it expires, ms
        self.pushed: Callable[[str], None] = _nothing
        self.wrote: Callable[[str], None] = _nothing
        self._micros = 0  # the time, which stands still while a script runs

    def run(self, script: Script, keys: Iterable[bytes], args: Iterable[bytes]) -> Any:
        """The reply of a script, as a client gets it."""
        _on[0] = self
        self._micros = self.clock()
        function = _compiled.get(script.sha)
        if function is None:
            source = script.source.decode("latin-1")
            function = _compiled[script.sha] = _lua.execute(f"return function(KEYS, ARGV)\n{source}\nend")
        lists = [_lua.table_from([each.decode("latin-1") for each in group]) for group in (keys, args)]
        try:
            return _to_reply(function(*lists))
        except RedisError as error:
            return error

    def call(self, name: str, *args: Any) -> Any:
        """One command, with Lua's types."""
        words = [arg if type(arg) is str else _text(arg) for arg in args]
        if words:
            self._lapse(words[0])
        return getattr(self, _methods[name])(*words)

    def _lapse(self, key: str) -> None:
        if key in self.ends and self.ends[key] <= self._micros // 1000:
            self.drop(key)

    def drop(self, key: str) -> None:
        """Delete a key."""
        self.data.pop(key, None)
        self.ends.pop(key, None)

    def live(self, key: str) -> Any:
        """The value of a key that has not expired."""
        if key in self.ends and self.ends[key] <= self.clock() // 1000:
            self.drop(key)
        return self.data.get(key)

    def _typed(self, key: str, kind: type) -> Any:
        value = self.data.get(key)
        if value is not None and type(value) is not kind:
            raise RedisError("WRONGTYPE Operation against a key holding the wrong kind of value")
        return value

    def _get(self, key: str) -> Any:
        value = self._typed(key, str)
        return False if value is None else value

    def _mget(self, *keys: str) -> Any:
        for key in keys:
            self._lapse(key)
        values = (self.data.get(key) for key in keys)
        return _lua.table_from([value if type(value) is str else False for value in values])

    def _set(self, key: str, value: str, *options: str) -> Any:
        self.data[key] = value
        self.ends.pop(key, None)
        if options:
            assert options[0] == "PX", options
            self.ends[key] = self._micros // 1000 + int(options[1])
        self.wrote(key)
        return _lua.table_from({"ok": "OK"})

    def _del(self, *keys: str) -> int:
        found = sum(key in self.data for key in keys)
        for key in keys:
            self.drop(key)
            self.wrote(key)
        return found

    def _exists(self, *keys: str) -> int:
        for key in keys[1:]:  # the first has been looked at
            self._lapse(key)
        return sum(key in self.data for key in keys)

    def _type(self, key: str) -> Any:
        kinds = {str: "string", dict: "zset", Hash: "hash", list: "list", type(None): "none"}
        return _lua.table_from({"ok": kinds[type(self.data.get(key))]})

    def _time(self) -> Any:
        return _lua.table_from([str(self._micros // 1_000_000), str(self._micros % 1_000_000)])

    def _pttl(self, key: str) -> int:
        if key not in self.data:
            return -2
        return self.ends[key] - self._micros // 1000 if key in self.ends else -1

    def _pexpire(self, key: str, ms: str) -> int:
        if key not in self.data:
            return 0
        self.ends[key] = self._micros // 1000 + int(ms)
        self.wrote(key)
        return 1

    def _zadd(self, key: str, *rest: str) -> int:
        *options, score, member = rest
        zset = self._typed(key, dict)
        if zset is None:
            zset = self.data[key] = {}
        new = member not in zset
        if new or "NX" not in options:
            zset[member] = float(score)
            self.wrote(key)
        return int(new)

    def _zscore(self, key: str, member: str) -> Any:
        score = (self._typed(key, dict) or {}).get(member)
        return False if score is None else _text(score)

    def _zrange(self, key: str, first: str, last: str) -> Any:
        zset = self._typed(key, dict) or {}
        return _lua.table_from(sorted(zset, key=lambda member: (zset[member], member))[int(first) : int(last) + 1])

    def _zrem(self, key: str, member: str) -> int:
        zset = self._typed(key, dict) or {}
        found = zset.pop(member, None) is not None
        if not zset:
            self.drop(key)
        self.wrote(key)
        return int(found)

    def _zremrangebyscore(self, key: str, low: str, high: str) -> int:
        zset = self._typed(key, dict) or {}
        gone = [member for member, score in zset.items() if float(low) <= score <= float(high)]
        for member in gone:
            self._zrem(key, member)
        return len(gone)

    def _zcount(self, key: str, low: str, high: str) -> int:
        zset = self._typed(key, dict) or {}
        return sum(float(low) <= score <= float(high) for score in zset.values())

    def _hgetall(self, key: str) -> Any:
        return _lua.table_from([text for pair in (self._typed(key, Hash) or {}).items() for text in pair])

    def _hkeys(self, key: str) -> Any:
        return _lua.table_from(list(self._typed(key, Hash) or {}))

    def _hget(self, key: str, field: str) -> Any:
        return (self._typed(key, Hash) or {}).get(field, False)

    def _hset(self, key: str, field: str, value: str) -> int:
        fields = self._typed(key, Hash)
        if fields is None:
            fields = self.data[key] = Hash()
        new = field not in fields
        fields[field] = value
        self.wrote(key)
        return int(new)

    def _hdel(self, key: str, field: str) -> int:
        fields = self._typed(key, Hash) or {}
        found = fields.pop(field, None) is not None
        if not fields:
            self.drop(key)
        self.wrote(key)
        return int(found)

    def _rpush(self, key: str, value: str) -> int:
        self._typed(key, list)
        self.data.setdefault(key, []).append(value)
        self.wrote(key)
        length = len(self.data[key])
        self.pushed(key)
        return length

    def _info(self, section: str) -> str:
        return self.info(section)

    def pop(self, key: str) -> str | None:
        """LPOP."""
        items = self.live(key)
        if not items:
            return None
        value: str = items.pop(0)
        if not items:
            self.drop(key)
        self.wrote(key)
        return value


_methods = {name[1:].upper(): name for name in vars(Model) if name[1] != "_"}


def _nothing(key: str) -> None:
    del key


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.17g}" if value % 1 else str(int(value))
    return str(value)


def _to_reply(value: Any) -> Any:
    if value is None or value is False:
        return None
    if value is True:
        return 1
    if isinstance(value, int | float):
        return int(value)
    if isinstance(value, str):
        return value.encode("latin-1")
    if value["err"] is not None:
        return RedisError(value["err"])
    return [_to_reply(value[index]) for index in range(1, len(value) + 1)]


def _pcall(name: str, *args: Any) -> Any:
    try:
        return _on[0].call(name, *args)
    except RedisError as error:
        return _lua.table_from({"err": str(error)})


_lua.globals().redis = _lua.table_from(
    {
        "call": lambda name, *args: _on[0].call(name, *args),  # noqa: PLW0108  (another model each time)
        "pcall": _pcall,
        "error_reply": lambda text: _lua.table_from({"err": text}),
        "sha1hex": lambda text: hashlib.sha1(text.encode("latin-1"), usedforsecurity=False).hexdigest(),
    }
)
