"""The Celery app of the tests' workers. Each task exists twice: protected, and unprotected for comparison."""

import json
import os
import time
from types import FunctionType
from typing import Any

import django
from celery import Celery, Task, current_task, group
from celery.contrib.django.task import DjangoTask
from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded
from celery.signals import before_task_publish

from django_redlock.celery import single_instance_task
from django_redlock.errors import LockError
from tests.celery.records import RECORDS, UNTIL_GO, last, note
from tests.support.overlap import believing

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
django.setup()

BROKER = os.environ["CELERY_BROKER"]

app = Celery("tests")
app.conf.update(
    broker_url=BROKER,
    result_backend=os.environ["CELERY_RESULTS"],
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": float(os.environ.get("CELERY_VISIBILITY", "3600"))}
    if BROKER.startswith("redis")
    else {},
    worker_prefetch_multiplier=int(os.environ.get("CELERY_PREFETCH", "4")),
    task_default_queue=os.environ.get("CELERY_QUEUE", "celery"),
    worker_lost_wait=0.5,
    task_publish_retry=False,
    result_expires=600,
    worker_hijack_root_logger=False,
    **json.loads(os.environ.get("CELERY_CONF", "{}")),
)


def work(self: Any, name: str, seconds: float = 0.0) -> str:
    with believing(RECORDS / f"{name}.beliefs", name, f"{os.getpid()}/{self.request.id}"):
        note(name, "start", id=self.request.id, retries=self.request.retries)
        last(name, seconds)
    note(name, "end", id=self.request.id)
    return name


def both(short: str, body: Any, task_options: dict[str, Any] | None = None, **options: Any) -> None:
    """Make a protected task and an unprotected one with the same body."""
    protect = single_instance_task(**{"key": f"{short}:{{name}}", "ttl": 10, **options})
    for name, decorate in ((short, protect), (f"{short}_plain", lambda function: function)):
        function = FunctionType(body.__code__, globals(), name, body.__defaults__)
        function.__qualname__, function.__annotations__ = name, body.__annotations__
        globals()[name] = app.task(**{"bind": True, "typing": False, **(task_options or {})})(decorate(function))


# Leases last at least 10 s, which a busy machine does not use up. Those whose end a test waits for are shorter.
LATE = {"acks_late": True, "reject_on_worker_lost": True}

both("executed", work)
both("executing", work, mode="until_executing")
both("running", work, mode="while_executing")
both("and_while", work, mode="until_and_while_executing")
both("expired", work, mode="until_expired", ttl=5)
both("three", work, mode="while_executing", limit=3)
both("late", work, LATE)
both("brief", work, ttl=4)
both("brief_late", work, LATE, ttl=3)
both("brief_late_running", work, LATE, mode="while_executing", ttl=3)
both("renewed", work, mode="while_executing", ttl=5)
both("unhurried", work, ttl=None)
both("lost_retry", work, {"retry_on_worker_lost": True, "default_retry_delay": 1}, ttl=60)
both("long", work, ttl=60)
both("rated", work, {"rate_limit": "1/h"}, ttl=60)
both("long_late", work, LATE, ttl=60)
both("less_late", work, LATE, ttl=20)
both("late_once", work, {"acks_late": True}, ttl=20)
both("late_running", work, LATE, mode="while_executing")
both("late_executing", work, LATE, mode="until_executing")
both("late_expired", work, LATE, mode="until_expired", ttl=20)
both("once_an_hour", work, mode="until_expired", ttl=3600)
both("raising", work, on_conflict="raise")


def undecided(conflict: Any) -> str:
    raise ArithmeticError(conflict.key)


both("undecided", work, mode="until_and_while_executing", on_conflict=("skip", undecided))


def gated(self: Any, name: str, seconds: float = 0.0) -> str:
    with believing(RECORDS / f"{name}.beliefs", name, f"{os.getpid()}/{self.request.id}"):
        note(name, "start", id=self.request.id)
        last(name, UNTIL_GO)
        last(name, float(seconds))
    note(name, "end", id=self.request.id)
    return name


both("next_one", gated, mode="until_and_while_executing", ttl=60)


def let_go(conflict: Any) -> str:
    """Let the body in the way end, and wait for its end."""
    (RECORDS / f"{conflict.key.partition(':')[2]}.go").touch()
    return "wait"


both("told_to_wait", gated, mode="while_executing", on_conflict=let_go, conflict_timeout=60, ttl=60)
both("told_to_log", gated, mode="while_executing", on_conflict=lambda _conflict: "log", ttl=60)
both("next_replacing", gated, mode="until_and_while_executing", on_conflict="replace", ttl=60)
both("next_after", gated, mode="until_and_while_executing", ttl=6)
both("next_retry", gated, mode="while_executing", on_conflict="retry", ttl=60)
both("next_once", gated, mode="while_executing", on_conflict="retry", conflict_retries=1, ttl=60)
both("next_late", gated, {"acks_late": True}, mode="while_executing", on_conflict="retry", ttl=20)
both("next_open", gated, mode="while_executing", on_conflict="retry", on_store_error="run", ttl=60)
both("waiting", work, mode="while_executing", on_conflict="wait")
both("retrying", work, mode="while_executing", on_conflict="retry")
both("starting_raises", work, mode="while_executing", on_conflict="raise")
both("replacing", work, on_conflict="replace")
both("open", work, on_store_error="run")
both("open_running", work, mode="while_executing", on_store_error="run")


def ending(self: Any, name: str, how: str, seconds: float = 0.0) -> str:
    note(name, "start", id=self.request.id, how=how)
    time.sleep(seconds)
    if how == "exception":
        raise ValueError(name)
    if how == "ignore":
        raise Ignore
    if how == "reject":
        raise Reject("no", requeue=False)
    if how == "exit":
        raise SystemExit(3)
    return name


both("ends", ending, ttl=60)
both("ends_late", ending, {"acks_late": True}, ttl=60)
both("ends_running", ending, mode="while_executing", ttl=60)
both("limited", ending, {"time_limit": 3}, ttl=60)


def soft(self: Any, name: str) -> str:
    try:
        note(name, "start", id=self.request.id)
        time.sleep(60)
    except SoftTimeLimitExceeded:
        note(name, "soft")
        raise
    return name


both("softly", soft, {"soft_time_limit": 5}, ttl=60)


def stubborn(self: Any, name: str, seconds: float) -> str:
    end = time.monotonic() + seconds
    try:
        note(name, "start", id=self.request.id)
        time.sleep(seconds)
    except SoftTimeLimitExceeded:
        note(name, "soft")
        time.sleep(max(end - time.monotonic(), 0))
    note(name, "end", id=self.request.id)
    return name


both("stubborn", stubborn, ttl=60)


def rejecting(self: Any, name: str) -> str:
    first = not (RECORDS / f"{name}.events").exists()
    note(name, "start", id=self.request.id)
    if first:
        raise Reject("later", requeue=True)
    return name


both("requeues", rejecting, {"acks_late": True}, ttl=60)


def exiting(self: Any, name: str) -> str:
    first = not (RECORDS / f"{name}.events").exists()
    note(name, "start", id=self.request.id)
    if first:
        raise SystemExit(1)
    last(name, UNTIL_GO)
    return name


both("exits", exiting, LATE, ttl=60)
both("too_long", work, ttl=400)


def flaky(self: Any, name: str, failures: int = 2, countdown: float = 0.5, seconds: float = 0.0) -> str:
    work(self, name, seconds)
    if self.request.retries < failures:
        raise self.retry(countdown=countdown, max_retries=10)
    return name


def going_on(self: Any, name: str, seconds: float = 60.0, countdown: float = 1.0) -> str:
    note(name, "start", id=self.request.id)
    if not self.request.retries:
        self.retry(countdown=countdown, throw=False)
        note(name, "retried")
        last(name, seconds)
    note(name, "end")
    return name


def autoflaky(self: Any, name: str, failures: int = 2, seconds: float = 0.0) -> str:
    work(self, name, seconds)
    if self.request.retries < failures:
        raise ConnectionError(name)
    return name


def hopeless(self: Any, name: str) -> str:
    note(name, "start", id=self.request.id)
    raise self.retry(countdown=0.1, max_retries=1, exc=ValueError(name))


both("retries", flaky, ttl=60)
both("retries_running", flaky, mode="while_executing")
both("retries_on", going_on, ttl=3)
both(
    "autoretries",
    autoflaky,
    {"autoretry_for": (ConnectionError,), "retry_kwargs": {"countdown": 0.3}, "max_retries": 5},
)
both("gives_up", hopeless, ttl=60)
PATIENT = {"autoretry_for": (LockError,), "retry_kwargs": {"countdown": 0.3}, "max_retries": 60}
both("patient", work, PATIENT)
both("patient_running", work, PATIENT, mode="while_executing", on_conflict="raise")
both("impatient", work, PATIENT | {"max_retries": 1}, mode="while_executing", on_conflict="raise")


def wandering(self: Any, name: str, other: str) -> str:
    note(name, "start", id=self.request.id)
    if name != other:
        raise self.retry(args=(other, other), countdown=1)
    last(name, UNTIL_GO)
    return name


def giving_way(self: Any, name: str, to: str, seconds: float = 0.0) -> Any:
    note(name, "start", id=self.request.id)
    if not to:
        return name
    queue = self.request.delivery_info["routing_key"]
    raise self.replace(app.tasks[f"{__name__}.{to}"].si(name, "" if to == "gives_way" else seconds).set(queue=queue))


def forwarding(self: Any, name: str, to: str) -> str:
    """Send another task with the headers of this one, as tracing middleware does."""
    headers, queue = self.request.headers, self.request.delivery_info["routing_key"]
    return str(app.send_task(f"{__name__}.{to}", (name,), headers=headers, queue=queue).id)


both("forwards", forwarding, ttl=60)


def giving_way_to_many(self: Any, name: str, parts: int, slowly: float = 0.0) -> Any:
    """Call `replace()` with a group of equal calls, and linger when they have been sent."""
    note(name, "start", id=self.request.id)
    if not parts:
        return name
    queue = self.request.delivery_info["routing_key"]
    members = group(self.s(name, 0).set(queue=queue) for _ in range(parts)) | collect.s().set(queue=queue)
    try:
        raise self.replace(members)
    finally:
        time.sleep(slowly)


both("gives_way_to_many", giving_way_to_many, ttl=60)
both("wanders", wandering, ttl=60)
both("gives_way", giving_way, ttl=60)


def itself(self: Any, name: str, depth: int = 1) -> Any:
    note(name, "start", id=self.request.id, depth=depth)
    inner = self.apply((name, depth - 1)) if depth else None
    return {"depth": depth, "inner": inner and inner.get(disable_sync_subtasks=False)}


both("nested", itself)
both("running_nested", itself, mode="while_executing")


def calling_itself(self: Any, name: str, depth: int = 1) -> Any:
    request, current = self.request, current_task.name if current_task else None
    found = {"current": current, "args": list(request.args or ()), "id": request.id}
    return found | {"inner": self(name, depth - 1) if depth else None}


both("recursive", calling_itself)


def values(self: Any, value: Any) -> str:
    return repr(value)


both("any_value", values, key=None)


class Hooked(Task):
    """A base class with hooks of its own."""

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        note(args[0], "before_start")

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        note(args[0], "on_success")

    def after_return(self, status: str, *args: Any) -> None:
        note(args[2][0], "after_return", status=status)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        note(args[0], "call")
        return self.run(*args, **kwargs)


class Tenant(Task):
    """A base class that adds a header to each message."""

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        headers = {**(options.pop("headers", None) or {}), "tenant": "one"}
        return super().apply_async(args, kwargs, headers=headers, **options)


def carried(self: Any, name: str, seconds: float = 0.0) -> str:
    request = self.request
    texts = {each: request.get(each) for each in ("tenant", "colour", "argsrepr", "kwargsrepr")}
    note(name, "carried", id=request.id, nested=request.headers.get("trace"), **texts)
    return gated(self, name, seconds)


class Unready(Task):
    """A base class whose hook fails the task before its body."""

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        note(args[0], "before_start")
        raise ValueError(args[0])


class Moody(Task):
    """A base class whose hook fails the task while the test says so."""

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        if (RECORDS / f"{args[0]}.fail").exists():
            raise ValueError(args[0])


both("next_moody", gated, {"base": Moody}, mode="until_and_while_executing", ttl=60)
both("next_tenant", carried, {"base": Tenant}, mode="until_and_while_executing", ttl=60)
both("hooked", work, {"base": Hooked})
both("unready", work, {"base": Unready}, ttl=60)
both("django_task", work, {"base": DjangoTask})


@before_task_publish.connect
def hold(body: Any, headers: dict[str, Any], **_: Any) -> None:
    """Keep a worker from sending the next step of a chain, if the test wants that."""
    if "CELERY_HOLD" in os.environ and headers["task"] == collect.name:
        note(body[0][0], "sending")
        last(body[0][0], UNTIL_GO)


@app.task
def collect(results: Any, name: str = "") -> Any:
    return results


from tests.celery.task_classes import (  # noqa: E402, F401  (it needs the app)
    by_class,
    by_heir,
    protected_base,
    undecorated,
    undecorated_heir,
)
