"""Looking at a Redis from outside: which locks live there, and how it is doing."""

from __future__ import annotations

from typing import Any

from ..core.held import Held, read_held
from ..core.keys import keys_for, name_of, scan_pattern
from ..core.replies import trouble
from ..core.requests import Batch, Command, Fault, Flow, Run
from ..core.scripts import all_scripts, script
from .base import Listing
from .redis_io import Routes
from .routes import Route

SCAN_COUNT = 1000  # keys in one step of SCAN: some 0.3 ms of the server's time
PAGE = 100  # locks described in one pipeline, likewise
_DESCRIBE = script("describe")


def listing(prefix: str, pattern: str, limit: int | None, max_keys: int | None, node: int = 0) -> Flow[Listing]:
    """Find locks by SCAN and describe them page by page. Raises ``LockUnavailable``.

    Costs one request for every 1,000 keys of the database, and one for every 100 locks.
    """
    routes = yield Routes(node)
    if type(routes) is Fault:
        raise trouble(pattern, routes)
    found: dict[bytes, Held] = {}
    scanned = 0
    for route in routes:
        cursor = b"0"
        while True:
            reply = yield _scan(cursor, scan_pattern(prefix, pattern), node, route)
            if type(reply) is Fault:
                raise trouble(pattern, reply)
            cursor = reply[0]
            scanned += SCAN_COUNT
            fresh = [key for key in reply[1] if key not in found]
            yield from _describe(prefix.encode(), fresh if limit is None else fresh[: limit - len(found)], found, node)
            if limit is not None and len(found) >= limit:
                return Listing(list(found.values()), scanned, cursor == b"0" and route is routes[-1])
            if cursor == b"0":
                break
            if max_keys is not None and scanned >= max_keys:
                return Listing(list(found.values()), scanned, False)
    return Listing(list(found.values()), scanned, True)


def _scan(cursor: bytes, pattern: str, node: int, route: Route) -> Command:
    return Command((b"SCAN", cursor, b"MATCH", pattern.encode(), b"COUNT", b"%d" % SCAN_COUNT), node, None, route)


def _describe(prefix: bytes, keys: list[bytes], found: dict[bytes, Held], node: int) -> Flow[None]:
    for first in range(0, len(keys), PAGE):
        page = [(key, name) for key in keys[first : first + PAGE] if (name := name_of(prefix, key)) is not None]
        replies = yield Batch([Run(_DESCRIBE, (key, key + b":waiters"), (b"0",), node) for key, _ in page], node)
        for (key, name), reply in zip(page, replies, strict=True):
            if type(reply) is Fault:
                raise trouble(name, reply)
            if reply:
                found[key] = read_held(name, reply)


def force_release(name: str, keys: Any, digest: str, node: int = 0) -> Flow[bool]:
    """Delete the lock's key and wake a waiter; whether it was held (by the one with ``digest``)."""
    reply = yield Run(script("force_release"), (keys.lock, keys.waiters, keys.wake), (digest.encode(),), node)
    if type(reply) is Fault:
        raise trouble(name, reply)
    return bool(reply == 1)


def health(label: str, node: int = 0) -> Flow[list[dict[str, Any]]]:
    """One row for each server of a node: reachable or not, version, role, and what would endanger locks."""
    routes = yield Routes(node)
    if type(routes) is Fault:
        return [{"node": label, "ok": False, "problems": [f"unreachable: {routes.error}"]}]
    rows = []
    for route in routes:
        rows.append((yield from _server(node, route)))
    return rows


def _server(node: int, route: Route) -> Flow[dict[str, Any]]:
    reply = yield Command((b"INFO",), node, None, route)
    if type(reply) is Fault:
        return {"node": route.where, "ok": False, "problems": [f"unreachable: {reply.error}"]}
    info = dict(line.split(":", 1) for line in reply.decode(errors="replace").splitlines() if ":" in line)
    shas = [each.sha for each in all_scripts()]
    loaded = yield Command((b"SCRIPT", b"EXISTS", *shas), node, None, route)
    problems = []
    if info.get("role") != "master":
        problems.append(f"is a {info.get('role')}, which takes no writes")
    if (policy := info.get("maxmemory_policy", "")) not in ("noeviction", "") and info.get("maxmemory", "0") != "0":
        problems.append(f"maxmemory-policy is {policy}: Redis may drop a lock that is held; use noeviction")
    return {
        "node": route.where,
        "ok": not problems,
        "problems": problems,
        "version": info.get("redis_version", ""),
        "role": info.get("role", ""),
        "replicas": int(info.get("connected_slaves", 0)),
        "maxmemory_policy": policy,
        "persistence": "aof" if info.get("aof_enabled") == "1" else "rdb",
        "scripts": f"{sum(loaded) if isinstance(loaded, list) else 0}/{len(shas)}",
    }


def load_scripts(node: int, route: Route) -> Flow[None]:
    """Load every script into a server, so that the first acquire there needs no second try."""
    for each in all_scripts():
        yield Command((b"SCRIPT", b"LOAD", each.source), node, None, route)


__all__ = ["force_release", "health", "keys_for", "listing", "load_scripts"]
