"""Takes over what an application has: clients of redis-py or valkey-py, their pools, and credential providers."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any

from redis.connection import Connection, SSLConnection

from .connect import portable_settings
from .nodes.cluster import ClusterNode
from .nodes.node import Node
from .nodes.remap import Remap
from .nodes.sentinel import SentinelNode
from .pool import ServerPool

_OF_CLUSTER = "username", "password", "credential_provider", "client_name"


def client_node(client: Any, timeout: float, credentials: Mapping[str, Any], remap: Remap) -> Node:
    """Return the node for ``client``, a client of redis-py or valkey-py: its servers, settings and limit.

    Raises ``ValueError`` for anything else.
    """
    if (manager := getattr(client, "nodes_manager", None)) is not None:
        settings = manager.connection_kwargs
        hosts = [(node.host, node.port) for node in manager.startup_nodes.values()]
        kept = {name: settings[name] for name in settings if name in _OF_CLUSTER or name.startswith("ssl_")}
        kind = SSLConnection if settings.get("ssl") else Connection
        return ClusterNode(hosts, kind, {**kept, **credentials}, timeout, remap)
    pool = getattr(client, "connection_pool", None)
    if isinstance(client, type) or not hasattr(pool, "connection_kwargs"):
        raise ValueError("expected a redis.Redis or valkey.Valkey client, a URL, or the dotted path of a function")
    return pool_node(pool, timeout, credentials, remap)


def pool_node(pool: Any, timeout: float, credentials: Mapping[str, Any], remap: Remap, label: str = "") -> Node:
    """Return the node for the server of ``pool``, a connection pool of redis-py or valkey-py.

    ``credentials``: more connection settings. ``label`` names the node in messages.
    """
    kind, settings = portable_settings(pool)
    settings |= credentials
    manager = getattr(pool, "sentinel_manager", None)
    if manager is not None:  # the pool connects to the server that the Sentinels name
        places = [client.connection_pool.connection_kwargs for client in manager.sentinels]
        hosts = [(place["host"], place["port"]) for place in places]
        sentinel_kind, login = portable_settings(manager.sentinels[0].connection_pool)
        sentinels = sentinel_kind, {name: login[name] for name in login if name not in ("host", "port")}
        return SentinelNode(hosts, pool.service_name, (kind, settings), sentinels, timeout, remap)
    own = ServerPool(kind, settings, timeout, pool.max_connections)
    return Node(own, label or own.where, own.uses_tls)


def called(path: str) -> Any:
    """Return what the function at the dotted ``path`` returns. Raises ``ValueError`` with the reason if it fails."""
    try:
        return resolve_name(path)()
    except Exception as error:
        raise ValueError(f"{path!r} can't be called: {type(error).__name__}: {error}") from error


def credential_settings(provider: Any) -> dict[str, Any]:
    """Return the connection settings for ``provider``, the option ``credential_provider``: an object or dotted path.

    Raises ``ValueError`` for what provides no credentials.
    """
    if provider is None:
        return {}
    found = called(provider) if isinstance(provider, str) else provider
    if isinstance(found, type) or not hasattr(found, "get_credentials"):
        raise ValueError(f"{provider!r:.100} has no get_credentials()")
    return {"credential_provider": found}
