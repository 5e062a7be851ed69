"""What the bodies of tasks record for a test, and how long they last."""

import json
import os
import time
from pathlib import Path
from typing import Any

RECORDS = Path(os.environ["CELERY_RECORDS"])


def note(name: str, event: str, **facts: Any) -> None:
    """Write one line to the record of a test."""
    with (RECORDS / f"{name}.events").open("a") as log:
        log.write(json.dumps({"event": event, "pid": os.getpid(), "at": time.monotonic(), **facts}) + "\n")


UNTIL_GO = -1.0  # seconds of a body that lasts until the test calls go()


def last(name: str, seconds: float) -> None:
    """Sleep for `seconds`, or until the test calls go(), for a minute at most."""
    end = time.monotonic() + 60
    while seconds == UNTIL_GO and time.monotonic() < end and not (RECORDS / f"{name}.go").exists():
        time.sleep(0.01)
    time.sleep(max(seconds, 0))
