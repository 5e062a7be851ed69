"""The order of the tests, and which of them stay together on one worker of pytest-xdist.

A long unit that begins last would keep one worker busy while the others are idle. So long units begin first, and units
of single tests fill the end.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

TESTS = Path(__file__).parent

# In these each test is a unit: its servers are those that any worker has, or start in no time.
SPREAD = (
    "conformance/test_cache.py",
    "conformance/test_cache_pools.py",
    "conformance/test_in_memory.py",
    "conformance/test_redis.py",
    "conformance/test_timestamp.py",
    "conformance/test_transports.py::TestOlderRedis",
    "conformance/test_transports.py::TestResp3",
    "conformance/test_transports.py::TestTls",
    "conformance/test_transports.py::TestUnixSocket",
)
# Seconds that a test takes on average. The longest name that a path begins with counts.
SECONDS = {
    "": 0.05,
    "backends/": 1,
    "backends/redlock/": 2,
    "backends/replica/": 2,
    "backends/test_bad_settings.py": 0.05,
    "backends/test_locmem.py": 0.05,
    "backends/zookeeper/": 2,
    "browser/": 2,
    "celery/": 2,
    "celery/beat/test_leader.py": 20,
    "conformance/": 0.2,
    "core/processes/test_interpreter_shutdown.py": 1,
    "django/management/test_run.py": 2,
    "faults/": 3,
    "fencing/test_paused.py": 4,
    "idempotency/test_killed.py": 10,
    "packaging/": 2,
    "simulation/": 1,
}

if gone := [name for name in (*SPREAD, *SECONDS) if not (TESTS / name.split("::")[0]).exists()]:
    raise FileNotFoundError(f"tests/schedule.py: {', '.join(gone)}")


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Units of tests in the order of `order`."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)


def unit(nodeid: str) -> str:
    """What a worker runs in one piece: a class or file, or one test with all its parameters."""
    test, _, _ = nodeid.partition("[")
    return test if _name(nodeid).startswith(SPREAD) else test.rpartition("::")[0]


def order(items: list[pytest.Item]) -> None:
    """Sort the tests by the time that their unit takes, the longest first."""
    needed: Counter[str] = Counter()
    for item in items:
        needed[unit(item.nodeid)] += _seconds(item.nodeid)
    items.sort(key=lambda item: -needed[unit(item.nodeid)])


def _name(nodeid: str) -> str:
    return nodeid.removeprefix(f"{TESTS.name}/")


def _seconds(nodeid: str) -> float:
    name = _name(nodeid)
    return SECONDS[max((begin for begin in SECONDS if name.startswith(begin)), key=len)]
