"""A Redis in memory that runs the real scripts in a real Lua, with only the commands that the scripts use.

The commands are implemented in Lua too, in ``redis_model.lua``, because calls between the languages are slow.
`test_redis_model` compares the model with a real Redis.
"""

import hashlib
import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from redis import ResponseError

from django_redlock.core.flow.requests import Fault
from django_redlock.core.flow.scripts import Script

PLAIN_KINDS = {int, bytes}  # types of replies that need no conversion


def _nothing(key: bytes) -> None:
    del key


class Lua:
    """A Lua interpreter with the commands, which contains the models."""

    def __init__(self) -> None:
        try:
            module = importlib.import_module("lupa.luajit21")
        except ImportError:  # not every machine has it; Redis' own is slower
            module = importlib.import_module("lupa.lua51")
        self._runtime = module.LuaRuntime(encoding=None)
        self.server: Any = self._runtime.execute(Path(__file__).with_suffix(".lua").read_bytes())
        self.run = self.server.run
        self.on: Any = None  # the model on which a script runs now
        self.functions: dict[bytes, Any] = {}  # sha -> compiled script
        self.tables: dict[Sequence[bytes], Any] = {}  # KEYS tables, cached because a few keys come often
        # Neither Python nor Lua collects cycles across both languages, so references from Lua would leak a server.
        hooks: Any = self.server.hooks
        hooks.info = lambda section: self.on.info(section)  # noqa: PLW0108  (another model each time)
        hooks.pushed = lambda key: self.on.pushed(key)  # noqa: PLW0108
        hooks.wrote = lambda changes: self.on.wrote(changes)  # noqa: PLW0108
        sha1 = lambda text: hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()  # noqa: E731
        self._runtime.globals().redis.sha1hex = sha1

    def compiled(self, script: Script) -> Any:
        source = b"return function(KEYS, ARGV)\n%b\nend" % script.source
        function = self.functions[script.sha] = self._runtime.execute(source)
        return function

    def words(self, keys: Sequence[bytes]) -> Any:
        table = self.tables[keys] = self.server.words(*keys)
        return table


lua = Lua()


class Model:
    """The data of one server. ``clock`` returns its time in µs, ``info`` the sections of INFO. ``pushed(key)`` is
    called for each push to a list, ``wrote(changes)`` for the writes of each script.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        info: Callable[[bytes], bytes],
        pushed: Callable[[bytes], None] = _nothing,
        wrote: Callable[[Any], None] | None = None,
    ) -> None:
        self.clock = clock
        self.info = info
        self.pushed = pushed
        self.wrote = wrote
        self._lua = lua
        self.flush()

    def flush(self) -> None:
        self._state = self._lua.server.new(self.wrote is not None)

    def run(self, script: Script, keys: Sequence[bytes], args: Sequence[bytes]) -> Any:
        lua = self._lua
        lua.on = self
        function, table = lua.functions.get(script.sha), lua.tables.get(keys)
        if function is None:
            function = lua.compiled(script)
        if table is None:
            table = lua.words(keys)
        return _reply(lua.run(self._state, self.clock(), function, table, *args))

    def texts(self, key: bytes) -> list[bytes]:
        """Returns a key's string, items or field names. Empty: there is no such key, or it has expired."""
        return list(self._lua.server.texts(self._state, self.clock(), key).values())

    def keys(self) -> set[bytes]:
        return set(self._state.data.keys())

    def pop(self, key: bytes) -> bytes | None:
        """Remove and return the first item of a list (LPOP). ``None``: the list is empty."""
        self._lua.on = self
        return cast("bytes | None", self._lua.server.pop(self._state, self.clock(), key))

    def apply(self, changes: Any) -> None:
        """Apply the changes that another model passed to ``wrote``."""
        self._lua.server.apply(self._state, changes)

    def copy(self) -> Any:
        return self._lua.server.copy(self._state)

    def load(self, copied: Any) -> None:
        self._lua.server.load(self._state, copied)


def _reply(value: Any) -> Any:
    kind = type(value)
    if kind is int or kind is bytes:
        return value
    if kind is tuple:
        return list(value) if PLAIN_KINDS.issuperset(map(type, value)) else [_reply(each) for each in value]
    if value is None or value is False:
        return None
    if isinstance(value, int | float):
        return int(value)
    return Fault(ResponseError(value.err.decode())) if value.err else [_reply(each) for each in value.values()]
