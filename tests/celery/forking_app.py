"""The app of a worker whose main process builds its lock backend only when a child has died."""

import os
import sys
import time
from pathlib import Path

from celery import Celery, signals
from celery.concurrency.asynpool import AsynPool
from django.conf import settings

BACKEND = "tests.celery.slow_backend"
settings.configure(
    REDLOCK={
        "default": {
            "BACKEND": f"{BACKEND}.SlowBackend",
            "LOCATION": os.environ["CELERY_LOCKS"],
            "OPTIONS": {"node_timeout": 5},
        }
    },
    USE_TZ=True,
)

from django_redlock.backend_registry import locks  # noqa: E402
from django_redlock.celery import single_instance_task  # noqa: E402  (Django is set up first)

app = Celery("forking", broker=os.environ["CELERY_BROKER"], backend=os.environ["CELERY_RESULTS"])
app.conf.update(broker_connection_retry_on_startup=True, worker_prefetch_multiplier=1, worker_hijack_root_logger=False)

AsynPool.timers = property(lambda pool: {pool.maintain_pool: 0.1})  # else it sees some deaths only after five seconds


@app.task
@single_instance_task(key="long", ttl=60)
def long(record: str) -> None:
    """Record the process id, and wait to be killed."""
    Path(record).write_text(str(os.getpid()))
    time.sleep(60)


@signals.task_received.connect
def unbuild(**_kwargs: object) -> None:
    """Make the next use of a lock in the main process import and build the backend again."""
    locks.reset()
    sys.modules.pop(BACKEND, None)
