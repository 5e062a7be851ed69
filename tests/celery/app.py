"""The Celery app of the tests' workers: the tasks, and how each is protected."""

import json
import os
from types import FunctionType
from typing import Any

import django
from celery import Celery
from celery.concurrency.asynpool import AsynPool
from celery.contrib.django.task import DjangoTask
from celery.signals import before_task_publish

from django_redlock.celery import single_instance_task
from django_redlock.errors import LockError
from tests.celery import bodies
from tests.celery.records import RECORDS, UNTIL_GO, last, note

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
django.setup()

BROKER = os.environ["CELERY_BROKER"]

app = Celery("tests")
app.conf.update(
    broker_url=BROKER,
    result_backend=os.environ["CELERY_RESULTS"],
    broker_connection_retry_on_startup=True,
    worker_lost_wait=0.5,
    task_publish_retry=False,
    result_expires=600,
    worker_hijack_root_logger=False,
    **json.loads(os.environ.get("CELERY_CONF", "{}")),
)

AsynPool.timers = property(lambda pool: {pool.maintain_pool: 0.1})  # else it sees some deaths only after five seconds

PLAIN = {"executed", "running", "late"}  # also exist unprotected, for comparison


def protected(short: str, body: Any, task_options: dict[str, Any] | None = None, **options: Any) -> None:
    """Make a task of this module with that body."""
    protect = single_instance_task(**{"key": f"{short}:{{name}}", "ttl": 10, **options})
    make = app.task(**{"bind": True, "typing": False, **(task_options or {})})
    globals()[short] = make(protect(renamed(body, short)))
    if short in PLAIN:
        globals()[f"{short}_plain"] = make(renamed(body, f"{short}_plain"))


def renamed(body: Any, name: str) -> FunctionType:
    """Return a copy of the function."""
    function = FunctionType(body.__code__, body.__globals__, name, body.__defaults__)
    function.__module__, function.__qualname__, function.__annotations__ = __name__, name, body.__annotations__
    return function


# ── modes ────────────────────────────────────────────────────────────────────────────────────

# Leases last at least 10 s, which a busy machine does not use up. Those whose end a test waits for are shorter.
LATE = {"acks_late": True, "reject_on_worker_lost": True}
WHILE, BOTH = {"mode": "while_executing"}, {"mode": "until_and_while_executing"}

protected("any_value", bodies.values, key=None)
protected("executed", bodies.work)
protected("executing", bodies.work, mode="until_executing")
protected("running", bodies.work, **WHILE)
protected("and_while", bodies.work, **BOTH)
protected("expired", bodies.work, mode="until_expired", ttl=5)
protected("once_an_hour", bodies.work, mode="until_expired", ttl=3600)
protected("three", bodies.work, limit=3, **WHILE)
protected("brief", bodies.work, ttl=4)
protected("renewed", bodies.work, ttl=5, **WHILE)
protected("unhurried", bodies.work, ttl=None)
protected("long", bodies.work, ttl=60)
protected("too_long", bodies.work, ttl=400)
protected("rated", bodies.work, {"rate_limit": "1/h"}, ttl=60)
protected("nested", bodies.itself)
protected("running_nested", bodies.itself, **WHILE)
protected("recursive", bodies.calling_itself)

# ── deliveries ───────────────────────────────────────────────────────────────────────────────

protected("late", bodies.work, LATE)
protected("late_running", bodies.work, LATE, **WHILE)
protected("late_executing", bodies.work, LATE, mode="until_executing")
protected("late_expired", bodies.work, LATE, mode="until_expired", ttl=20)
protected("late_waiting", bodies.work, LATE, on_conflict="wait", ttl=20, **WHILE)
protected("late_once", bodies.work, {"acks_late": True})
protected("brief_late", bodies.work, LATE, ttl=3)
protected("brief_late_running", bodies.work, LATE, ttl=3, **WHILE)
protected("less_late", bodies.work, LATE, ttl=20)
protected("long_late", bodies.work, LATE, ttl=60)
protected("requeues", bodies.rejecting, {"acks_late": True}, ttl=60)
protected("exits", bodies.exiting, LATE, ttl=60)
protected("lost_retry", bodies.work, {"retry_on_worker_lost": True, "default_retry_delay": 1}, ttl=60)

# ── conflicts ────────────────────────────────────────────────────────────────────────────────


def undecided(conflict: Any) -> str:
    raise ArithmeticError(conflict.key)


def let_go(conflict: Any) -> str:
    """Let the body in the way end, and wait for its end."""
    (RECORDS / f"{conflict.key.partition(':')[2]}.go").touch()
    return "wait"


protected("raising", bodies.work, on_conflict="raise")
protected("replacing", bodies.work, on_conflict="replace")
protected("undecided", bodies.work, on_conflict=("skip", undecided), **BOTH)
protected("waiting", bodies.work, on_conflict="wait", **WHILE)
protected("retrying", bodies.work, on_conflict="retry", **WHILE)
protected("starting_raises", bodies.work, on_conflict="raise", **WHILE)
protected("told_to_wait", bodies.gated, on_conflict=let_go, conflict_timeout=60, ttl=60, **WHILE)
protected("told_to_log", bodies.gated, on_conflict=lambda _conflict: "log", ttl=60, **WHILE)
protected("open", bodies.work, on_store_error="run")
protected("open_running", bodies.work, on_store_error="run", **WHILE)

# ── calls that are put off ───────────────────────────────────────────────────────────────────

STARTED = {"track_started": True}
protected("next_one", bodies.gated, STARTED, ttl=60, **BOTH)
protected("next_after", bodies.gated, ttl=6, **BOTH)
protected("next_replacing", bodies.gated, on_conflict="replace", ttl=60, **BOTH)
protected("next_retry", bodies.gated, STARTED, on_conflict="retry", ttl=60, **WHILE)
protected("next_once", bodies.gated, on_conflict="retry", conflict_retries=1, ttl=60, **WHILE)
protected("next_open", bodies.gated, on_conflict="retry", on_store_error="run", ttl=60, **WHILE)

# ── ends and retries ─────────────────────────────────────────────────────────────────────────

AUTO = {"autoretry_for": (ConnectionError,), "retry_kwargs": {"countdown": 0.3}, "max_retries": 5}
PATIENT = {"autoretry_for": (LockError,), "retry_kwargs": {"countdown": 0.3}, "max_retries": 60}

protected("ends", bodies.ending, ttl=60)
protected("ends_late", bodies.ending, {"acks_late": True}, ttl=60)
protected("ends_running", bodies.ending, ttl=60, **WHILE)
protected("limited", bodies.ending, {"time_limit": 3}, ttl=60)
protected("softly", bodies.soft, {"soft_time_limit": 5}, ttl=60)
protected("stubborn", bodies.stubborn, ttl=60)
protected("retries", bodies.flaky, ttl=60)
protected("retries_running", bodies.flaky, **WHILE)
protected("retries_on", bodies.going_on, ttl=3)
protected("autoretries", bodies.autoflaky, AUTO)
protected("gives_up", bodies.hopeless, ttl=60)
protected("wanders", bodies.wandering, ttl=60)
protected("patient", bodies.work, PATIENT)
protected("patient_running", bodies.work, PATIENT, on_conflict="raise", **WHILE)
protected("impatient", bodies.work, PATIENT | {"max_retries": 1}, on_conflict="raise", **WHILE)
protected("gives_way", bodies.giving_way, ttl=60)
protected("gives_way_to_many", bodies.giving_way_to_many, ttl=60)
protected("forwards", bodies.forwarding, ttl=60)
protected("django_task", bodies.work, {"base": DjangoTask})


@before_task_publish.connect
def hold(body: Any, headers: dict[str, Any], **_: Any) -> None:
    """Keep a worker from sending the next step of a chain, if the test wants that."""
    if "CELERY_HOLD" in os.environ and headers["task"] == collect.name:
        note(body[0][0], "sending")
        last(body[0][0], UNTIL_GO)


@app.task
def collect(results: Any, name: str = "") -> Any:
    return results


from tests.celery.task_classes import *  # noqa: E402, F403  (it needs the app)
