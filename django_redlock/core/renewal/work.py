"""The work of a renewal thread: extends many leases in few requests, and releases orphaned claims."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ..contract import Extension, Orphan, Renewable
from ..events import logger
from ..flow.drivers import drive
from ..flow.requests import Fault
from ..primitives.base import Primitive
from ..values import Lease

BATCH = 256  # extensions in one pipeline: about 2 ms of a server's time


def serve(due: Mapping[bytes, Renewable | Orphan], served: set[bytes]) -> None:
    """Extend the lease of each lock in ``due``, and release each orphan in it. The keys of ``due`` are their tokens.

    Adds to ``served`` the tokens that need no further attempt.
    """
    locks = {target: token for token, target in due.items() if not isinstance(target, Orphan)}
    failed = extend_all(locks)
    served.update(token for lock, token in locks.items() if lock not in failed)
    orphans = {token: target for token, target in due.items() if isinstance(target, Orphan)}
    released = release_many(orphans)
    silent: set[str] = set()  # servers that did not reply: their further orphans are left for the next round
    for token, orphan in orphans.items():
        server = orphan.store.server_of(orphan.claim.keys)
        done = token in released or (server not in silent and _release(orphan))
        if not done:
            silent.add(server)
        if done or orphan.store.clock() >= orphan.until:
            served.add(token)


def release_many(orphans: Mapping[bytes, Orphan]) -> set[bytes]:
    """Release many orphans in few pipelines, because one pair of requests for each would delay the next renewals.

    Returns the tokens of the orphans that their store has served. The caller releases the other orphans one by one.
    """
    released: set[bytes] = set()
    # Orphans whose lock must stay taken for a time are released one by one: `cancel_many` releases at once.
    pairs = [(token, each) for token, each in orphans.items() if each.keep_until <= each.store.clock()]
    store = pairs[0][1].store if len(pairs) > 1 else None  # a renewal thread has one store
    cancel_many = store.algorithm.cancel_many if store else None
    if store is None or cancel_many is None:
        return released
    for first in range(0, len(pairs), BATCH):
        batch = pairs[first : first + BATCH]
        try:
            outcomes = drive(cancel_many([(each.primitive, each.claim) for _, each in batch]), store.perform)
        except Exception:  # noqa: BLE001  (any error: each is released by itself, or later)
            break
        released.update(token for (token, _), done in zip(batch, outcomes, strict=True) if done)
        if not any(outcomes):
            break
    return released


def _release(orphan: Orphan) -> bool:
    """Release one orphan. Returns whether its store has served the request."""
    try:
        drive(orphan.release_flow(), orphan.store.perform)
    except Exception:  # noqa: BLE001  (any error: the release is repeated until the ttl ends the lock)
        return False
    return True


def extend_all(locks: Iterable[Renewable]) -> set[Renewable]:
    """Extend the leases of ``locks``, or mark them as lost. Returns the locks for which an exception was raised."""
    failed: set[Renewable] = set()
    groups: defaultdict[tuple[int, str, Primitive], list[Renewable]] = defaultdict(list)
    for lock in locks:
        store = lock.store
        groups[id(store), store.server_of(lock.keys), lock.primitive].append(lock)
    for _, group in sorted(groups.items(), key=lambda item: item[0][:2]):
        failed |= _extend_group(group)
    return failed


def _extend_group(locks: list[Renewable]) -> set[Renewable]:
    failed: set[Renewable] = set()
    fault: Fault | None = None  # a fault of all leases of a batch: later batches are not sent to this server
    for first in range(0, len(locks), BATCH):
        begun: list[tuple[Renewable, Extension]] = []
        for lock in locks[first : first + BATCH]:
            try:
                extension = lock.begin_renewal()
            except BaseException as error:  # noqa: BLE001  (the renewal of the other locks goes on)
                _on_error(failed, lock, error)
            else:
                if extension is not None:
                    begun.append((lock, extension))
        outcomes = _extend(begun, fault)
        faults = [outcome for outcome in outcomes if isinstance(outcome, Fault)]
        if faults and len(faults) == len(outcomes):  # the fault of some locks says nothing about the other locks
            fault = faults[0]
        for (lock, extension), outcome in zip(begun, outcomes, strict=True):
            try:
                lock.on_extended(extension, outcome)
            except BaseException as error:  # noqa: BLE001  (the renewal of the other locks goes on)
                _on_error(failed, lock, error)
    return failed


def _extend(begun: list[tuple[Renewable, Extension]], fault: Fault | None) -> Sequence[Lease | Fault | None]:
    """Extend the leases in ``begun`` in one pipeline, and return an outcome for each, as `Algorithm.extend_many` does.

    If an earlier batch has ended with ``fault``, nothing is sent, and every outcome is this fault.
    """
    if not begun or fault is not None:
        return [fault] * len(begun)
    lock = begun[0][0]
    flow = lock.store.algorithm.extend_many(lock.primitive, [(each.lease, each.ttl) for _, each in begun])
    try:
        return drive(flow, lock.store.perform)
    except BaseException as error:  # a defect, perhaps of a custom backend: the leases are extended again later
        logger.exception("the renewal of locks failed")
        return [Fault(error if isinstance(error, Exception) else RuntimeError(repr(error)))] * len(begun)


def _on_error(failed: set[Renewable], lock: Renewable, error: BaseException) -> None:
    """Log the error of ``lock``, and add ``lock`` to ``failed``: an error must not stop the renewal of other locks."""
    failed.add(lock)
    logger.error("the renewal of lock %r failed", lock.name, exc_info=error)
