"""How to connect to the servers of a node: settings, and addresses that this client can reach (NAT)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, NamedTuple

from redis.connection import AbstractConnection
from redis.exceptions import RedisError

from ..pool import ServerPool

Address = tuple[str, int]
Remap = Callable[[Address], Address]


def as_reported(address: Address) -> Address:
    """Return ``address`` unchanged: the servers are reachable at the reported addresses."""
    return address


class NodeOptions(NamedTuple):
    """Options of a backend for the servers behind a location.

    ``timeout``: the longest time to connect, and to wait for each reply, in seconds. ``remap``: returns the address at
    which this client reaches a server, from the address that Sentinels or the Cluster report. ``credentials``: the
    connection setting ``credential_provider``, if there is one. ``sentinel_kwargs``: settings of connections to
    Sentinels, as in redis-py's ``Sentinel``.
    """

    timeout: float
    remap: Remap = as_reported
    credentials: Mapping[str, Any] = MappingProxyType({})
    sentinel_kwargs: Mapping[str, Any] = MappingProxyType({})


class Servers(NamedTuple):
    """The class and the settings of redis-py's connections to the servers of a node."""

    kind: type[AbstractConnection]
    settings: Mapping[str, Any]
    options: NodeOptions

    def pool_at(self, address: Address) -> ServerPool:
        """Return a new pool for the server at ``address``."""
        host, port = address
        return ServerPool(self.kind, {**self.settings, "host": host, "port": port}, self.options.timeout)


def remap_from(value: Any) -> Remap:
    """Return the function for the option ``address_remap``. The function checks its results.

    ``value``: ``None``; a function, or its dotted path, that gets and returns a pair of host and port (as redis-py's
    ``address_remap``); or a dict from reported to reachable addresses, each ``"host:port"`` or a pair. Addresses that
    are not in the dict stay as they are. Raises ``ValueError`` for any other value.
    """
    if value is None:
        return as_reported
    if isinstance(value, str):
        try:
            value = resolve_name(value)
        except (ImportError, AttributeError, ValueError) as error:
            raise ValueError(f"address_remap {value!r} can't be imported: {error}") from error
    if isinstance(value, Mapping):
        table = {_address(reported): _address(reachable) for reported, reachable in value.items()}
        return lambda address: table.get(address, address)
    if not callable(value):
        raise ValueError(f"address_remap must be a dict, a function or its dotted path, not {value!r}")

    def remap(address: Address) -> Address:
        try:
            return _address(value(address))
        except Exception as error:
            raise RedisError(f"address_remap has failed for {address!r}: {error!r}") from error

    return remap


def _address(value: Any) -> Address:
    """Return the host and the port of ``value``: ``"host:port"`` or a pair. Raises ``ValueError``."""
    try:
        host, port = value.rpartition(":")[::2] if isinstance(value, str) else value
        host, number = host.strip("[]"), int(port)
        host.encode("idna")
    except (AttributeError, UnicodeError, TypeError, ValueError):
        host, number = "", 0
    if not host or not 0 < number < 65536:
        raise ValueError(f"address_remap: expected 'host:port' or a pair of host and port, not {value!r}")
    return host, number
