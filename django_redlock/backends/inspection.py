"""Lists, describes and force-releases locks in Redis."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from ..client.pool import ServerPool
from ..core.algorithms.retries import run_idempotent
from ..core.flow.replies import fault_error, parse_reply, unavailable_error
from ..core.flow.requests import Batch, Command, EvalScript, Fault, Flow, ListPools
from ..core.flow.scripts import script
from ..core.keys import keys_beside, lock_name_of, scan_pattern
from ..core.lock_info import Listing, LockInfo, by_trouble, read_lock_info
from ..core.primitives.base import describe_request, is_released, names_waiters, wake_request
from ..errors import LockUnavailable

SCAN_COUNT = 1000  # keys in one step of SCAN: about 0.3 ms of the server's time
LOCKS_IN_PIPELINE = 100  # locks described in one pipeline: about 0.3 ms of the server's time
_WAITERS = b":waiters"


class FoundKeys(NamedTuple):
    """The keys that a SCAN has found. The fields besides ``keys`` are as in `Listing`."""

    keys: list[bytes]
    scanned: int
    complete: bool
    unanswered: dict[str, Exception]


def listing(prefix: str, pattern: str, limit: int | None, max_keys: int | None, node: int = 0) -> Flow[Listing]:
    """Return up to ``limit`` live locks whose names match the glob ``pattern``, on the node with index ``node``.

    Without ``max_keys``, the SCAN stops when it has found ``limit`` locks. With ``max_keys``, the SCAN stops after
    about ``max_keys`` keys, and the result contains the ``limit`` locks with the most waiters.

    Costs one request for every 1,000 keys read, and one for every 100 locks described. Raises ``LockUnavailable`` if no
    server is available.
    """
    like, bounded = scan_pattern(prefix, pattern), max_keys is not None
    # Bounded, the scan also finds the keys of waiters, which tell whose locks are listed first.
    found = yield from find_keys(f"{like}*" if bounded else like, None if bounded else limit, max_keys, pattern, node)
    waited_for, others = _by_waiters(found.keys)
    keys = waited_for + (others if limit is None else others[: max(0, limit - len(waited_for))])
    complete = found.complete and (limit is None or len(waited_for) + len(others) <= limit)
    named = [
        (name, describe_request(keys_beside(key), True, node))
        for key in keys
        if (name := lock_name_of(prefix.encode(), key)) is not None
    ]
    return (yield from describe_found(found._replace(complete=complete), named, pattern, limit, bounded, node))


def describe_found(
    found: FoundKeys,
    named: Sequence[tuple[str, EvalScript]],
    pattern: str,
    limit: int | None,
    sort: bool,
    node: int = 0,
) -> Flow[Listing]:
    """Describe the locks ``named``, and return up to ``limit`` of them that are live.

    ``found``: the result of the SCAN, for the other fields of the `Listing`. ``named``: pairs of a lock's name and the
    request that describes the lock. ``pattern``: the glob, for error messages. ``sort``: whether the locks with the
    most waiters come first.
    """
    locks: list[LockInfo] = []
    unanswered = dict(found.unanswered)
    for first in range(0, len(named), LOCKS_IN_PIPELINE):
        page = named[first : first + LOCKS_IN_PIPELINE]
        replies = yield Batch([request for _, request in page], node)
        if faults := [reply for reply in replies if type(reply) is Fault]:
            if len(faults) == len(page):
                raise fault_error(pattern, faults[0])
            unanswered |= {fault.where: fault.error for fault in faults}
        for (name, _), reply in zip(page, replies, strict=True):
            if reply and type(reply) is not Fault:  # an empty reply: the lock was released meanwhile
                locks.append(parse_reply(name, partial(read_lock_info, name), reply))
    if sort:
        locks.sort(key=by_trouble)
    complete = found.complete and not unanswered and (limit is None or len(locks) <= limit)
    return Listing(locks[:limit], found.scanned, complete, unanswered)


def _by_waiters(keys: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Return the keys of locks among ``keys`` as two lists: locks with waiters, locks without."""
    waited_for = {key.removesuffix(_WAITERS) for key in keys if key.endswith(_WAITERS)}
    held = [key for key in keys if key.endswith(b"}")]
    return [key for key in held if key in waited_for], [key for key in held if key not in waited_for]


def find_keys(keys_like: str, limit: int | None, max_keys: int | None, pattern: str, node: int = 0) -> Flow[FoundKeys]:
    """Find the keys that match the glob ``keys_like``, with SCAN on all servers of the node with index ``node``.

    Stops after more than ``limit`` keys were found, or about ``max_keys`` keys were read. ``pattern``: for error
    messages.
    """
    pools = yield from _pools(node, pattern)
    found = yield from _scan(pools, keys_like, limit, max_keys, pattern, node)
    if found.unanswered:
        now = yield from _pools(node, pattern)
        if {pool.where for pool in now} != {pool.where for pool in pools}:  # other servers serve now
            pools, found = now, (yield from _scan(now, keys_like, limit, max_keys, pattern, node))
    if len(found.unanswered) == len(pools):
        raise unavailable_error(pattern, "the store is unavailable", found.unanswered)
    return found


def _pools(node: int, pattern: str) -> Flow[list[ServerPool]]:
    pools = yield ListPools(node)
    if type(pools) is Fault:
        raise fault_error(pattern, pools)
    return cast("list[ServerPool]", pools)


def _scan(
    pools: list[ServerPool], keys_like: str, limit: int | None, max_keys: int | None, pattern: str, node: int
) -> Flow[FoundKeys]:
    keys: dict[bytes, None] = {}  # SCAN may name a key twice
    unanswered: dict[str, Exception] = {}
    scanned = 0
    for pool in pools:
        cursor = None
        while cursor != b"0":
            if (limit is not None and len(keys) > limit) or (max_keys is not None and scanned >= max_keys):
                return FoundKeys(list(keys), scanned, False, unanswered)
            words = (b"SCAN", cursor or b"0", b"MATCH", keys_like.encode(), b"COUNT", b"%d" % SCAN_COUNT)
            reply = yield Command(words, node, None, pool)
            if type(reply) is Fault:
                unanswered[pool.where] = reply.error
                break
            cursor, found = parse_reply(pattern, _step, reply)
            keys.update(dict.fromkeys(found))
            scanned += SCAN_COUNT
    return FoundKeys(list(keys), scanned, not unanswered and (limit is None or len(keys) <= limit), unanswered)


def _step(reply: Any) -> tuple[bytes, list[bytes]]:
    cursor, found = reply
    return b"%d" % int(cursor), list(found)


class NodeView(NamedTuple):
    """The reply of one node about one lock.

    ``held``: the lock as this node knows it; ``None`` if the node has no key for the lock, or did not reply.
    ``round_trip``: seconds from the request to the reply. ``error``: why the node did not reply; ``""`` if it replied.
    """

    node: str
    held: LockInfo | None
    round_trip: float
    error: str


def describe_on_each_node(name: str, backend: Any) -> Flow[list[NodeView]]:
    """Return the reply of each node of ``backend`` about the lock ``name``."""
    seen = []
    for index, node in enumerate(backend.nodes):
        start = time.perf_counter()
        reply = yield from run_idempotent(describe_request(backend.keys_of(name), False, index))
        taken, held, error = time.perf_counter() - start, None, str(reply.error) if type(reply) is Fault else ""
        if reply and not error:
            try:
                held = parse_reply(name, partial(read_lock_info, name, node=node.label), reply)
            except LockUnavailable as failure:
                error = failure.reason
        seen.append(NodeView(node.label, held, taken, error))
    return seen


def force_release(name: str, keys: Any, digest: str, node: int = 0) -> Flow[bool]:
    """Carry out `Backend.force_release` on the node with index ``node``. ``name``: for error messages."""
    call = EvalScript(script("force_release"), keys.of_queue, (digest.encode(),), node)
    reply = yield from run_idempotent(call)
    if type(reply) is Fault:
        raise fault_error(name, reply)
    if names_waiters(reply):
        yield wake_request(keys, reply, node)
    return is_released(reply)
