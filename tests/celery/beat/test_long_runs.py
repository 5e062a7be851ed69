"""A schedule whose runs take longer than its interval."""

import json

from tests.celery.conftest import start_celery
from tests.support.overlap import overlaps, read
from tests.support.service import poll

KINDS = "executed", "running", "running_plain"


def test_bodies_longer_than_their_interval(tasks, start_worker, own_queue, records, unique):
    """Beat logs no error and runs don't overlap; without the decorator they do."""
    names = {kind: f"{unique}-{kind}" for kind in KINDS}
    schedule = {
        kind: {"task": getattr(tasks, kind).name, "schedule": 1.0, "args": [name, 2], "options": {"queue": own_queue}}
        for kind, name in names.items()
    }
    words = "beat", "-l", "INFO", "--pidfile=", "-s", str(records / unique)
    conf = json.dumps({"beat_schedule": schedule})
    beat = start_celery("tests.celery.app", *words, log=records / f"{unique}.log", CELERY_CONF=conf)

    def ended(kind):
        file = records / f"{names[kind]}.events"
        return file.exists() and file.read_text().count('"end"') >= 2

    def overlap(kind):
        return overlaps(read(records / f"{names[kind]}.beliefs"))

    try:
        with start_worker("prefork", own_queue, "-c", "8") as worker:
            poll(lambda: all(map(ended, KINDS)), timeout=60, what="two runs of each task")
            poll(
                lambda: overlap("running_plain"), timeout=60, what="an overlap"
            )  # not of the first two if beat is late
            assert "Traceback" not in beat.log(100_000) + worker.log(100_000)
    finally:
        beat.kill()
    assert [kind for kind in KINDS if overlap(kind)] == ["running_plain"]
