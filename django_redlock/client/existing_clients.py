"""Copies servers and settings from an application's objects: redis-py and valkey-py clients, credential providers."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any

from redis.connection import AbstractConnection, Connection, SSLConnection

from .connect import CONNECTION_KINDS, PARAMETERS
from .nodes.cluster import ClusterNode
from .nodes.node import Node
from .nodes.sentinel import SentinelNode
from .nodes.servers import NodeOptions, Servers
from .pool import ServerPool

_PORTABLE = {
    *("host", "port", "path", "socket_type", "socket_keepalive", "socket_keepalive_options", "health_check_interval"),
    *("db", "username", "password", "client_name", "credential_provider", "redis_connect_func"),
}
_OF_CLUSTER = "username", "password", "credential_provider", "client_name"


def client_node(client: Any, options: NodeOptions) -> Node:
    """Return the node for ``client``, a redis-py or valkey-py client, with its servers, settings and connection limit.

    Raises ``ValueError`` for anything else.
    """
    if (manager := getattr(client, "nodes_manager", None)) is not None:
        settings = manager.connection_kwargs
        hosts = [(node.host, node.port) for node in manager.startup_nodes.values()]
        kept = {name: settings[name] for name in settings if name in _OF_CLUSTER or name.startswith("ssl_")}
        kind = SSLConnection if settings.get("ssl") else Connection
        return ClusterNode(hosts, Servers(kind, {**kept, **options.credentials}, options))
    pool = getattr(client, "connection_pool", None)
    if isinstance(client, type) or not hasattr(pool, "connection_kwargs"):
        raise ValueError("expected a redis.Redis or valkey.Valkey client, a URL, or the dotted path of a function")
    return pool_node(pool, options)


def pool_node(pool: Any, options: NodeOptions, label: str = "") -> Node:
    """Return the node for the server of ``pool``, a connection pool of redis-py or valkey-py.

    ``label``: the name of the node in messages.
    """
    kind, settings = _portable_settings(pool)
    settings |= options.credentials
    manager = getattr(pool, "sentinel_manager", None)
    if manager is not None:  # the pool connects to the server that the Sentinels name
        places = [client.connection_pool.connection_kwargs for client in manager.sentinels]
        hosts = [(place["host"], place["port"]) for place in places]
        sentinel_kind, login = _portable_settings(manager.sentinels[0].connection_pool)
        sentinels = Servers(sentinel_kind, login, options)
        return SentinelNode(hosts, pool.service_name, Servers(kind, settings, options), sentinels)
    own = ServerPool(kind, settings, options.timeout, pool.max_connections)
    return Node(own, label or own.where, own.uses_tls)


def _portable_settings(pool: Any) -> tuple[type[Any], dict[str, Any]]:
    """Return the class of connections to use in place of those of ``pool``, and the settings that apply to them.

    The class is that of ``pool`` if it is a redis-py class or a subclass; subclasses keep their added settings. A
    valkey-py class is replaced with the redis-py class of the same name. Raises ``ValueError`` for connections without
    sockets, such as fakeredis'.
    """
    kind, settings = pool.connection_class, pool.connection_kwargs
    if not isinstance(kind, type) or kind.__module__.partition(".")[0] == "fakeredis":
        raise ValueError(
            "its connections have no sockets, as those of fakeredis: in tests use "
            "django_redlock.testing.override_locks, or fakeredis' TcpFakeServer"
        )
    own: set[str] = set()
    if not issubclass(kind, AbstractConnection) or hasattr(kind, "connect_to"):  # connect_to: Sentinel's connections
        names = {each.__name__ for each in kind.__mro__}
        kind = next((kind for kind in CONNECTION_KINDS if kind.__name__ in names), Connection)
    elif kind not in CONNECTION_KINDS:
        own = settings.keys() - PARAMETERS
    return kind, {name: settings[name] for name in settings if name in _PORTABLE | own or name.startswith("ssl_")}


def called(path: str) -> Any:
    """Call the function at the dotted ``path``, and return its result. Raises ``ValueError`` if this fails."""
    try:
        return resolve_name(path)()
    except Exception as error:
        raise ValueError(f"{path!r} can't be called: {type(error).__name__}: {error}") from error


def credential_settings(provider: Any) -> dict[str, Any]:
    """Return the connection settings for the option ``credential_provider``: an object or a dotted path.

    Raises ``ValueError`` if ``provider`` provides no credentials.
    """
    if provider is None:
        return {}
    found = called(provider) if isinstance(provider, str) else provider
    if isinstance(found, type) or not hasattr(found, "get_credentials"):
        raise ValueError(f"{provider!r:.100} has no get_credentials()")
    return {"credential_provider": found}
