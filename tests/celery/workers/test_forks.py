"""A worker's main process forks new children while it releases the locks of dead ones."""

import os
import signal

from tests.support.service import poll

KILLS = 20


def test_successors_of_killed_children_can_lock(start_worker, own_queue, tasks, records, seen, held):
    """Children that replace killed ones can lock, even if the main process imports the backend while it forks them."""
    record = records / f"{seen.name}.pid"
    with start_worker("prefork", own_queue, "-c", "1", app="tests.celery.forking_app"):
        for number in range(KILLS):
            tasks.app.send_task("tests.celery.forking_app.long", (str(record),), queue=own_queue)
            poll(lambda: record.exists() and record.read_text(), timeout=60, what=f"child {number}")
            child = int(record.read_text())
            record.unlink()
            os.kill(child, signal.SIGKILL)
            poll(lambda: held("long") is None, timeout=60, what="the end of its lock")
