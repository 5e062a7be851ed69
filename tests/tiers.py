"""The tiers of tests, by folder and by required servers.

- ``quick``, on each save: tests that need memory or one Redis, and little time.
- ``test``, before a commit: tests that need no more than a redis-server that all tests share.
- ``rest``: tests with their own servers, workers and processes, faults, a browser. With ``test`` these are all
tests.
"""

import functools
from enum import IntEnum
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


class Tier(IntEnum):
    """A tier. The tiers are in the order in which they run."""

    QUICK = 0
    TEST = 1
    REST = 2


# The longest name that a path begins with counts.
PLACES = {
    "core/": Tier.QUICK,
    "scripts/": Tier.QUICK,
    "scripts/test_declared_keys.py": Tier.REST,  # the whole conformance suite
    "backends/test_bad_settings.py": Tier.QUICK,
    "backends/test_locmem.py": Tier.QUICK,
    "conformance/test_in_memory.py": Tier.QUICK,
    "": Tier.TEST,
    "core/processes/test_interpreter_shutdown.py": Tier.TEST,  # processes
    "core/processes/test_uwsgi.py": Tier.TEST,  # processes
    "backends/failures/test_unreadable_replies.py": Tier.REST,
    "backends/zookeeper/": Tier.REST,
    "browser/": Tier.REST,
    "celery/beat/test_leader.py": Tier.REST,  # processes
    "conformance/test_cache.py": Tier.REST,
    "conformance/test_cache_pools.py": Tier.REST,
    "conformance/test_several_servers.py": Tier.REST,
    "conformance/test_standard_library.py": Tier.REST,
    "conformance/test_transports.py": Tier.REST,
    "conformance/test_zookeeper.py": Tier.REST,
    "django/management/test_closed_pipe.py": Tier.REST,  # processes
    "django/management/test_process_group.py": Tier.REST,  # processes
    "django/management/test_run.py": Tier.REST,  # processes
    "django/management/test_run_leader.py": Tier.REST,  # processes
    "django/test_flash_sale.py": Tier.REST,
    "django/test_typing.py": Tier.REST,  # mypy and pyright
    "faults/": Tier.REST,
    "idempotency/test_killed.py": Tier.REST,  # servers
    "locks/test_hand_off.py": Tier.REST,  # processes
    "packaging/": Tier.REST,
    "packaging/test_exports.py": Tier.TEST,
    "packaging/test_structure.py": Tier.TEST,
    "simulation/": Tier.REST,  # `make simulate` plays; here the mistakes are that it must find
    "testing/test_plugin.py": Tier.REST,  # whole test runs
}
# Names of fixtures, and of parameters: a server besides the one Redis, or processes of the test's own.
NEEDS = frozenset({"start", "start_worker", "own_redis", "proxy", "workers", "tlsredis"})
NEEDS |= {"tls_redis", "sentinel", "cluster", "zookeeper", "rabbitmq", "postgres", "mariadb", "older-redis", "chromium"}
# A handful of tests that run a task in a real worker: one of them, shared.
ONE_WORKER = "celery/calls/test_canvas.py"


if gone := [name for name in (*PLACES, ONE_WORKER) if not (TESTS / name).exists()]:
    raise FileNotFoundError(f"tests/tiers.py: {', '.join(gone)}")


@functools.cache
def place(path: Path) -> Tier:
    """Return the tier of a file, before its tests' needs. That of a folder is the lowest that it may hold."""
    name = path.relative_to(TESTS).as_posix() + "/" * path.is_dir()
    inside = [PLACES[begin] for begin in PLACES if path.is_dir() and begin.startswith(name)]
    return min(PLACES[max((begin for begin in PLACES if name.startswith(begin)), key=len)], *inside, Tier.REST)


def tier(item: pytest.Item) -> Tier:
    """Return the tier of a test."""
    needed = NEEDS & {*getattr(item, "fixturenames", ()), *_parameters(item)}
    if item.path == TESTS / ONE_WORKER:
        needed -= {"workers", "start_worker"}
    return Tier.REST if needed else place(item.path)


def _parameters(item: pytest.Item) -> set[str]:
    """Return ids and values of the test's parameters. Parameters that are set together have one id, such as "a-b"."""
    callspec = getattr(item, "callspec", None)
    found = [*callspec._idlist, *callspec.params.values()] if callspec else []
    return {each.lower() for each in found if isinstance(each, str)}


def ignored(path: Path, wanted: range) -> bool:
    """Return whether no test of this file or folder is in one of these tiers. Such a file is not imported."""
    return TESTS in path.parents and (path.suffix == ".py" or path.is_dir()) and place(path) >= wanted.stop


def select(config: pytest.Config, items: list[pytest.Item], wanted: range) -> None:
    """Keep the tests of these tiers."""
    tiers = [tier(item) for item in items]
    config.hook.pytest_deselected(items=[item for item, each in zip(items, tiers, strict=True) if each not in wanted])
    items[:] = [item for item, each in zip(items, tiers, strict=True) if each in wanted]
