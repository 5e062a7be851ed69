"""The tasks that `celery_tasks` sends: the same empty body, protected in each mode."""

import os
from typing import Any

import django
from celery import Celery

from django_redlock.celery import single_instance_task

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
django.setup()

BROKER, LOCKS = os.environ["CELERY_BROKER"], os.environ["TESTPROJECT_REDIS"]
app = Celery("bench", broker=BROKER, backend=BROKER.replace("/0", "/1"))
app.conf.update(
    worker_prefetch_multiplier=100,
    broker_connection_retry_on_startup=True,
    ONCE={"backend": "celery_once.backends.Redis", "settings": {"url": LOCKS, "default_timeout": 3600}},
    singleton_backend_url=LOCKS,
)


def body(number: int) -> int:
    """Do as little as possible."""
    return number


def _named(name: str) -> Any:
    def function(number: int) -> int:
        return number

    function.__name__ = function.__qualname__ = name
    return function


TASKS: dict[str, Any] = {"plain": app.task(_named("plain"))}
for mode in ("while_executing", "until_executed", "until_executing", "until_and_while_executing"):
    TASKS[mode] = app.task(single_instance_task(mode=mode, key=f"{mode}:{{number}}")(_named(mode)))
try:
    from celery_once import QueueOnce

    TASKS["celery-once"] = app.task(base=QueueOnce)(_named("once"))
except ImportError:
    pass
try:
    from celery_singleton import Singleton

    TASKS["celery-singleton"] = app.task(base=Singleton)(_named("singleton"))
except ImportError:
    pass


@app.task
def mark() -> None:
    """Run after all earlier tasks."""
