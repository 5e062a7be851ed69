"""The tiers of tests, by folder and by required servers.

- ``quick``, on each save: what needs memory or one Redis, and next to no time.
- ``test``, before a commit: whatever needs no more than a redis-server that all tests share.
- ``rest``: servers, workers and processes of a test's own, faults, a browser. With ``test`` it is everything.
"""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


class Tier(IntEnum):
    """In the order in which they run."""

    QUICK = 0
    TEST = 1
    REST = 2


# The longest name that a path begins with counts.
PLACES = {
    "core/": Tier.QUICK,
    "scripts/": Tier.QUICK,
    "conformance/test_in_memory.py": Tier.QUICK,
    "conformance/test_bad_settings.py": Tier.QUICK,
    "": Tier.TEST,
    "backends/zookeeper/": Tier.REST,
    "browser/": Tier.REST,
    "celery/test_beat_leader.py": Tier.REST,  # processes
    "celery/test_typing.py": Tier.REST,  # mypy once more
    "conformance/test_cache.py": Tier.REST,
    "conformance/test_cache_pools.py": Tier.REST,
    "conformance/test_unreadable_replies.py": Tier.REST,
    "conformance/test_several_servers.py": Tier.REST,
    "conformance/test_standard_library.py": Tier.REST,
    "conformance/test_transports.py": Tier.REST,
    "conformance/test_zookeeper.py": Tier.REST,
    "django/test_commands_closed_pipe.py": Tier.REST,  # processes
    "django/test_commands_leader.py": Tier.REST,  # processes
    "django/test_flash_sale.py": Tier.REST,
    "django/test_typing.py": Tier.REST,  # mypy and pyright
    "faults/": Tier.REST,
    "idempotency/test_killed.py": Tier.REST,  # servers
    "locks/test_hand_off.py": Tier.REST,  # processes
    "packaging/": Tier.REST,
    "packaging/test_exports.py": Tier.TEST,
    "packaging/test_structure.py": Tier.TEST,
    "simulation/": Tier.REST,  # `make simulate` plays; here the mistakes are that it must find
    "support_tests/": Tier.REST,
    "tasks/test_typing.py": Tier.REST,  # mypy once more
    "testing/test_plugin.py": Tier.REST,  # whole test runs
}
# Names of fixtures, and of parameters: a server besides the one Redis, or processes of the test's own.
NEEDS = frozenset({"start", "start_worker", "own_redis", "proxy", "workers", "tlsredis"})
NEEDS |= {"tls_redis", "sentinel", "cluster", "zookeeper", "rabbitmq", "postgres", "older-redis", "chromium"}
# A handful of tests that run a task in a real worker: one of them, shared.
ONE_WORKER = "celery/test_canvas.py"


if gone := [name for name in (*PLACES, ONE_WORKER) if not (TESTS / name).exists()]:
    raise FileNotFoundError(f"tests/tiers.py: {', '.join(gone)}")


def place(path: Path) -> Tier:
    """The tier of a file, before what its tests need. That of a folder is the lowest of what it may hold."""
    name = path.relative_to(TESTS).as_posix() + "/" * path.is_dir()
    inside = [PLACES[begin] for begin in PLACES if path.is_dir() and begin.startswith(name)]
    return min(PLACES[max((begin for begin in PLACES if name.startswith(begin)), key=len)], *inside, Tier.REST)


def tier(item: pytest.Item) -> Tier:
    """The tier of a test."""
    needed = NEEDS & {*getattr(item, "fixturenames", ()), *_parameters(item)}
    if item.path == TESTS / ONE_WORKER:
        needed -= {"workers", "start_worker"}
    return Tier.REST if needed else place(item.path)


def _parameters(item: pytest.Item) -> set[str]:
    callspec = getattr(item, "callspec", None)
    return {each.lower() for each in callspec._idlist} if callspec else set()


def ignored(path: Path, wanted: range) -> bool:
    """Whether nothing in this file or folder can be in one of these tiers: it is not even imported then."""
    inside = TESTS in path.parents and (path.suffix == ".py" or path.is_dir())
    return inside and place(path) >= wanted.stop


def select(config: pytest.Config, items: list[pytest.Item], wanted: range) -> None:
    """Keep the tests of these tiers."""
    tiers = [tier(item) for item in items]
    config.hook.pytest_deselected(items=[item for item, each in zip(items, tiers, strict=True) if each not in wanted])
    items[:] = [item for item, each in zip(items, tiers, strict=True) if each in wanted]
