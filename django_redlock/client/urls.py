"""Parses the setting LOCATION: creates the node for each location."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from redis.connection import AbstractConnection, Connection, SSLConnection, parse_url
from redis.exceptions import RedisError

from ..core.flow.replies import unavailable_error
from .existing_clients import called, client_node, pool_node
from .nodes.cluster import ClusterNode
from .nodes.node import Node
from .nodes.sentinel import SentinelNode
from .nodes.servers import Address, NodeOptions, Servers
from .pool import ServerPool
from .redact import redact


def _address(text: str, default_port: int) -> Address:
    """Parse ``host:port`` or ``host``, with ``default_port``. Raises ``ValueError`` for an invalid address."""
    host, _, port = text.rpartition(":") if re.search(r":\d+$", text) else (text, "", "")
    if not host:
        raise ValueError(f"expected host:port, not {text!r}")
    return _host(host.strip("[]")), int(port or default_port)


def _host(name: str) -> str:
    try:
        name.encode("idna")  # otherwise the look-up for the first acquire would raise the error
    except UnicodeError as error:
        raise ValueError(f"{name!r} is not a host name") from error
    return name


def canonical_url(location: Any) -> Any:
    """Return ``location`` with ``valkey…://`` replaced by ``redis…://``, the only scheme that redis-py knows.

    Any other value is returned unchanged.
    """
    return f"redis{location[6:]}" if isinstance(location, str) and _VALKEY.match(location) else location


def split_url(url: str) -> tuple[str, str, str]:
    """Split ``url`` into scheme, hosts with credentials, and path.

    ``urlsplit`` can't be used, because it rejects a list of hosts with an IPv6 address.
    """
    scheme, _, rest = url.partition("://")
    netloc, _, path = rest.partition("/")
    return scheme, netloc, path


_VALKEY = re.compile(r"valkeys?(\+sentinel|\+cluster)?://")
_REFUSED = {"retry_on_timeout", "retry_on_error", "retry"}
_SENTINEL_LOGIN = {"sentinel_username": "username", "sentinel_password": "password"}


def _servers(kind: type[AbstractConnection], settings: dict[str, Any], options: NodeOptions) -> Servers:
    """Return `Servers` with connections of the class ``kind``. Raises ``ValueError`` for a wrong setting."""
    if refused := _REFUSED & settings.keys():
        raise ValueError(
            f"{', '.join(sorted(refused))} is not for locks: what timed out on an idle connection is repeated "
            "once, and node_timeout says how long a server may take"
        )
    if needless := [name for name in settings if name.startswith("ssl_") and not issubclass(kind, SSLConnection)]:
        raise ValueError(f"{', '.join(needless)}: without TLS; the scheme with TLS is rediss")
    try:
        kind(**settings)  # does not connect, but raises for a wrong option before the first lock is acquired
    except (TypeError, RedisError) as error:
        raise ValueError(str(error).partition("() ")[2] or error) from error
    return Servers(kind, settings, options)


def _split(url: str, default_port: int) -> tuple[type[Connection], list[Address], str, dict[str, Any]]:
    """Split a URL with several hosts. Returns connection class, addresses, path, and connection settings."""
    url, _, query = url.partition("?")
    scheme, netloc, path = split_url(url)
    login, at, addresses = netloc.rpartition("@")
    hosts = [_address(each.strip(), default_port) for each in addresses.split(",")]
    settings = parse_url(f"redis://{quote(login, safe=':%')}{at}?{query}")  # with the types that redis-py gives them
    settings.pop("host", None)
    return SSLConnection if scheme.startswith("rediss") else Connection, hosts, path, settings


def _sentinel(url: str, options: NodeOptions) -> Node:
    kind, hosts, path, settings = _split(url, 26379)
    service, _, db = path.strip("/").partition("/")
    if not service:
        raise ValueError("redis+sentinel://host:port,host:port/SERVICE/DB needs the name of the service")
    if not re.fullmatch(r"\d*", db, re.ASCII):
        raise ValueError("the database after SERVICE/ must be a number")
    sentinel_login = {_SENTINEL_LOGIN[name]: settings.pop(name) for name in _SENTINEL_LOGIN if name in settings}
    masters = _servers(kind, {**settings, "db": int(db or 0), **options.credentials}, options)
    sentinel = {**sentinel_login, **options.sentinel_kwargs}
    with_tls = sentinel.pop("ssl", kind is SSLConnection)
    shared = {name: settings[name] for name in settings if name.startswith("ssl_") and with_tls}
    try:
        sentinels = _servers(SSLConnection if with_tls else Connection, {**shared, **sentinel}, options)
    except ValueError as error:
        raise ValueError(f"sentinel_kwargs: {error}") from error
    return SentinelNode(hosts, service, masters, sentinels)


def _cluster(url: str, options: NodeOptions) -> Node:
    kind, hosts, path, settings = _split(url, 7000)
    if not re.fullmatch(r"\d*/?", path, re.ASCII):
        raise ValueError("the database after the hosts must be a number, and only Valkey 9 has others than 0")
    database = {"db": int(path.strip("/"))} if path.strip("/0") else {}
    return ClusterNode(hosts, _servers(kind, {**settings, **database, **options.credentials}, options))


def _direct(url: str, options: NodeOptions) -> Node:
    scheme, _, path = split_url(url.partition("?")[0])
    if scheme != "unix" and not re.fullmatch(r"\d*/?", path, re.ASCII):  # redis-py would use database 0
        raise ValueError("the database after host:port/ must be a number")
    settings = {**parse_url(url), **options.credentials}
    _host(settings.get("host", ""))
    limit = settings.pop("max_connections", None)
    servers = _servers(settings.pop("connection_class", Connection), settings, options)
    pool = ServerPool(servers.kind, servers.settings, options.timeout, limit)
    return Node(pool, pool.where, pool.uses_tls)


def cache_pool(alias: str) -> Any:
    """Return the connection pool of Django's cache ``alias``. Opens no connection.

    The cache must be a cache of django-redis or django-valkey, or Django's ``RedisCache``, on one server. Raises
    ``ValueError`` for any other cache, with a message that suggests what to use.
    """
    from django.core.cache import InvalidCacheBackendError, caches  # the only use of Django here

    if alias not in caches.settings:
        known = ", ".join(map(repr, caches.settings)) or "none"
        raise ValueError(f"CACHES has no {alias!r} (it has {known})")
    backend = caches.settings[alias].get("BACKEND")
    try:
        cache = caches[alias]
        # `client` of django-redis and django-valkey, `_cache` of Django's RedisCache. All take `write`.
        client: Any = getattr(cache, "client", None) or getattr(cache, "_cache", None)
        pool = client.get_client(write=True).connection_pool if hasattr(client, "get_client") else None
    except InvalidCacheBackendError as error:
        extra = '. Install it with: pip install "django-redlock[django-redis]"' if "django_redis" in str(error) else ""
        raise ValueError(f"the cache {alias!r} can't be used: {error}{extra}") from error
    except (AttributeError, NotImplementedError):  # a client of several servers has no pool of its own
        pool = None
    except Exception as error:  # the cache's settings are wrong, and its library may raise anything
        raise ValueError(f"the cache {alias!r} can't be used: {error}") from error
    if pool is None:
        raise ValueError(
            f"the cache {alias!r} ({backend}) is not a cache on one Redis or Valkey server. Use a cache of "
            "django-redis, django.core.cache.backends.redis.RedisCache or django-valkey, or the URL as LOCATION"
        )
    return pool


def _cache(url: str, options: NodeOptions) -> Node:
    return pool_node(cache_pool(url.removeprefix("cache:")), options, url)


_SCHEMES: dict[str, Callable[[str, NodeOptions], Node]] = {
    "redis": _direct,
    "rediss": _direct,
    "unix": _direct,
    "redis+sentinel": _sentinel,
    "rediss+sentinel": _sentinel,
    "redis+cluster": _cluster,
    "rediss+cluster": _cluster,
    "cache": _cache,
}


def node_for(location: Any, options: NodeOptions) -> Node:
    """Return the node for ``location``, an entry of the setting LOCATION. Opens no connection.

    ``location``: a URL, ``cache:ALIAS``, a client of redis-py or valkey-py, or the dotted path of a function that
    returns a client. Raises ``ValueError`` for an unknown or invalid location, ``LockUnavailable`` when the process
    can't open more files.
    """
    location = canonical_url(location)
    scheme, colon, _ = location.partition(":") if isinstance(location, str) else ("", "", "")
    dotted = not colon and "." in scheme and all(map(str.isidentifier, scheme.split(".")))
    if isinstance(location, str) and not dotted and scheme not in _SCHEMES:
        known = ", ".join(f"{name}:" if name == "cache" else f"{name}://" for name in _SCHEMES)
        raise ValueError(f"LOCATION must begin with one of {known} (or valkey://), not {redact(location)!r}")
    make: Callable[[Any, NodeOptions], Node] = _SCHEMES.get(scheme, client_node)
    try:
        return make(called(location) if dotted else location, options)
    except ValueError as error:
        raise ValueError(f"LOCATION {redact(location)!r:.200}: {error}") from error
    except OSError as error:  # redis-py reads its own version from a file
        raise unavailable_error("", "the store is unavailable", {redact(location): error}) from error
