"""The app of a worker whose locks are on nodes that vote, which keep no records of tasks."""

import os

from celery import Celery
from django.conf import settings

settings.configure(
    REDLOCK={
        "default": {
            "BACKEND": "django_redlock.backends.redlock.RedlockBackend",
            "LOCATION": os.environ["CELERY_NODES"].split(),
            "OPTIONS": {"node_timeout": 10, "quarantine": False},
        }
    },
    USE_TZ=True,
)

from django_redlock.celery import single_instance_task  # noqa: E402  (Django is set up first)
from tests.celery.records import UNTIL_GO, last, note  # noqa: E402

app = Celery("quorum", broker=os.environ["CELERY_BROKER"], backend=os.environ["CELERY_RESULTS"])
app.conf.update(broker_connection_retry_on_startup=True, worker_hijack_root_logger=False)


@app.task(bind=True, acks_late=True)
@single_instance_task(key="late:{name}", mode="while_executing", ttl=10)
def late(self: object, name: str) -> str:
    """Wait for the test's permission to end."""
    note(name, "start")
    last(name, UNTIL_GO)
    note(name, "end")
    return name
