"""Checks the health of Redis servers: their settings, and whether they grant a lock."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..client.pool import ServerPool
from ..core.algorithms.retries import run_idempotent
from ..core.flow.replies import ENDLESS_MS, is_grant, unreadable
from ..core.flow.requests import Command, Fault, Flow, ListPools
from ..core.primitives.base import is_released

OLDEST = (6, 2)
CLOCKS_APART = 1.0  # seconds of clock difference from which "held for" in a listing is misleading
MAX_PROBES = 1000  # random names tried to find one in a slot of the server
ServerInfo = Mapping[str, str]


# By field of INFO: whether its value is a problem, and what is reported.
PROBLEMS: dict[str, tuple[Callable[[str, ServerInfo], bool], str]] = {
    "role": (lambda role, _: role != "master", "is a {}, which takes no writes"),
    "loading": (lambda loading, _: loading == "1", "is still reading its data from disk"),
    "maxmemory_policy": (
        lambda policy, info: policy != "noeviction" and info.get("maxmemory", "0") != "0",
        "maxmemory-policy is {}: when memory runs out Redis drops locks that are held; set noeviction",
    ),
    "redis_version": (
        lambda version, _: _numbers(version) < OLDEST,
        "is Redis {}; the oldest supported version is 6.2",
    ),
}

_POLLS = "it refuses BLPOP, or a proxy does: waiters poll, with pauses of up to half a second"
_WHY = "It may have forgotten a lock that is held. Only if it is new: redlock_check --arm"


def health(backend: Any, node: int) -> Flow[list[dict[str, Any]]]:
    """Return a dict for each server: ``node``, ``ok``, ``problems``, ``warnings`` and details, such as the version.

    Times in the dict are seconds. ``node``: the index of the node whose servers are checked.
    """
    pools = yield ListPools(node)
    if type(pools) is Fault:
        return [_unavailable(backend.nodes[node].label, pools)]
    rows = []
    for pool in pools:
        row = yield from _server(backend, node, pool)
        rows.append(row)
    return rows


def _unavailable(label: str, fault: Fault) -> dict[str, Any]:
    return {"node": label, "ok": False, "problems": [f"unavailable: {fault.error}"], "warnings": []}


def _fault(reply: Any) -> Fault:
    return reply if isinstance(reply, Fault) else unreadable(reply)


def _server(backend: Any, node: int, pool: ServerPool) -> Flow[dict[str, Any]]:
    asked, start = time.time(), time.perf_counter()
    reply = yield Command((b"TIME",), node, None, pool)
    round_trip, answered = time.perf_counter() - start, time.time()
    try:
        ahead = int(reply[0]) + int(reply[1]) / 1e6 - (asked + answered) / 2
    except (ValueError, TypeError, LookupError):
        return _unavailable(pool.where, _fault(reply))
    reply = yield Command((b"INFO",), node, None, pool)
    if type(reply) is not bytes and not (isinstance(reply, Fault) and reply.refused):
        return _unavailable(pool.where, _fault(reply))
    text = reply.decode(errors="replace") if type(reply) is bytes else ""
    info = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    save = yield Command((b"CONFIG", b"GET", b"save"), node, None, pool)
    values = {key: info[key] for key in PROBLEMS if key in info}
    problems = [PROBLEMS[key][1].format(value) for key, value in values.items() if PROBLEMS[key][0](value, info)]
    apart = f"its clock is {abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} this machine's"
    warnings = [apart] if abs(ahead) > CLOCKS_APART + (answered - asked) / 2 else []
    if isinstance(reply, Fault):
        warnings.append(f"it refuses INFO, so its settings can't be checked: {reply.error}")
    if not pool.can_block:
        warnings.append(_POLLS)
    if not problems:
        problems += yield from _probe(backend, node, pool)
    standing: dict[str, Any] = {}
    guard = backend.algorithm.quarantine
    if guard is not None and info.get("role", "master") == "master":  # a replica grants no locks anyway
        reply = yield from run_idempotent(guard.noop_request(node))  # starts a quarantine that is due
        standing = _quarantine(reply, backend.max_ttl, problems, warnings)
    return {
        "node": pool.where,
        "ok": not problems,
        "problems": problems,
        "warnings": warnings,
        "version": _version(info),
        "run_id": info.get("run_id", ""),
        "role": info.get("role", ""),
        "replicas": int(info.get("connected_slaves", 0)),
        "replica_lag": _lag(info),
        "maxmemory_policy": info.get("maxmemory_policy", ""),
        "memory": info.get("used_memory_human", ""),
        "persistence": _persistence(info, save),
        "uptime": int(info.get("uptime_in_seconds", 0)),
        "clients": int(info.get("connected_clients", 0)),
        "idle_connections": len(pool.idle_connections),
        "polls": not pool.can_block,
        "clock_difference": round(ahead, 3),
        "round_trip": round(round_trip, 6),
        **standing,
    }


def _probe(backend: Any, node: int, pool: ServerPool) -> Flow[list[str]]:
    """Acquire and release a lock with a random name on the server of ``pool``. Returns the problem, if any, as a list.

    INFO does not show missing permissions or a lack of memory. A quarantine is ignored.
    """
    asked, probes = backend.nodes[node], (backend.new_probe() for _ in range(MAX_PROBES))
    if asked.is_cluster:
        probes = (each for each in probes if asked.known_pool(each.keys.lock) is pool)
    if (lock := next(probes, None)) is None:
        return []
    claim = lock.new_claim()
    for request, succeeded in (
        (lock.primitive.acquire_request, is_grant),
        (lock.primitive.release_request, is_released),
    ):
        reply = yield from run_idempotent(request(claim, node=node))
        if isinstance(reply, Fault) or not succeeded(reply):
            return [f"grants no lock: {_fault(reply).error}"]
    return []


def _quarantine(reply: Any, max_ttl: float, problems: list[str], warnings: list[str]) -> dict[str, Any]:
    """Return two details of a server, and append messages to ``problems`` and ``warnings``.

    ``armed``: whether the server grants locks. ``quarantine``: the seconds until the server grants locks; ``None`` if
    it waits for replicas. ``reply``: the server's reply to a `Quarantine.noop_request`.
    """
    left = None
    match reply:
        case [1 | 5, *_]:  # 5: an acquire adopts the number of replicas
            return {"armed": True, "quarantine": 0.0}
        case [2, int(ms), *_] if ms < ENDLESS_MS:
            left = ms / 1000
            warnings.append(f"wait, nothing to do: grants no new locks for another {left:.1f} s. {_WHY}")
        case [2 | 4, *_]:
            warnings.append(f"start its replicas: grants no new locks until enough of them follow it. {_WHY}")
        case [3, int(theirs), *_]:
            others = f"its clients use max_ttl={theirs / 1000:g} s, this client {max_ttl:g} s"
            problems.append(f"{others}: all must use the same value")
        case _:
            problems.append(f"its marker can't be read: {reply.error if isinstance(reply, Fault) else reply!r:.100}")
    return {"armed": False, "quarantine": left}


def _version(info: ServerInfo) -> str:
    """Return the version of the server. For Valkey, ``redis_version`` is only the compatible version of Redis."""
    return f"Valkey {info['valkey_version']}" if "valkey_version" in info else info.get("redis_version", "")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _lag(info: ServerInfo) -> int | None:
    """Return the seconds since the last acknowledgement of the slowest replica; ``None`` without replicas."""
    slaves = [value for key, value in info.items() if key.startswith("slave")]
    lags = [int(found[1]) for value in slaves if (found := re.search(r"\blag=(-?\d+)", value))]
    return max(lags, default=None)


def _persistence(info: ServerInfo, save: Any) -> str:
    """Return ``"aof"``, ``"rdb"``, ``"off"``, or ``""`` if unknown. ``save``: the reply to CONFIG GET save."""
    if info.get("aof_enabled") == "1":
        return "aof"
    # The reply is a map in RESP 3, which a pool of a Django cache may use.
    setting = next(iter(save.items()), ()) if isinstance(save, dict) else save
    return "" if type(save) is Fault or not setting else "rdb" if setting[1] else "off"
