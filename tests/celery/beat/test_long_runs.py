"""A schedule whose runs take longer than its interval."""

import json

import pytest

from tests.celery.conftest import start_celery
from tests.support.service import poll


@pytest.mark.parametrize("kind", ["executed", "running", "running_plain"])
def test_a_body_longer_than_the_interval(tasks, start_worker, own_queue, records, seen, kind):
    """With a body longer than the interval beat logs no error and runs don't overlap; without the decorator they do."""
    log = records / f"{seen.name}.log"
    tick = {"task": getattr(tasks, kind).name, "schedule": 1.0, "args": [seen.name, 2], "options": {"queue": own_queue}}
    words = "beat", "-l", "INFO", "--pidfile=", "-s", str(records / seen.name)
    beat = start_celery("tests.celery.app", *words, log=log, CELERY_CONF=json.dumps({"beat_schedule": {"tick": tick}}))
    try:
        with start_worker("prefork", own_queue) as worker:
            seen.wait("end", 2, timeout=60)
            if kind == "running_plain":  # the first two follow each other if beat is late
                poll(seen.overlap, timeout=60, what="an overlap")
            assert "Traceback" not in beat.log(100_000) + worker.log(100_000)
    finally:
        beat.kill()
    assert bool(seen.overlap()) == (kind == "running_plain")
