"""Pictures of the admin for README and docs, taken from the running test project."""

import contextlib
import json
import math
import random
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from django_redlock.backends.redis import RedisBackend  # noqa: E402
from django_redlock.history.event_queue import EventRecord  # noqa: E402
from django_redlock.history.minutes import write  # noqa: E402
from testproject.demo.servers import LOGIN, running  # noqa: E402
from testproject.demo.showcase import keep_serving  # noqa: E402
from tests.browser.chromium import Browser, Chromium  # noqa: E402

PICTURES = ROOT / "docs" / "images"
LIST = "/admin/django_redlock/heldlock/"
# name, ttl, waiters, holder
WORK = [
    ("invoice:2041", 20, 0, {"label": "nightly billing"}),
    ("import:supplier-7", 60, 2, {"label": "price list", "user": "marta"}),
    ("report:2026-q3", 30, 1, {"label": "reports.build"}),
    ("mailing:welcome", 45, 0, None),
    ("payout:DE89 3704", 15, 0, {"label": "settlement", "batch": 311}),
]


def an_hour(backend: RedisBackend) -> list[EventRecord]:
    """Return events of the last hour, as a shop could have."""
    draw, last = random.Random(5), time.time() - 5
    holder = json.dumps({"host": "web-2", "pid": 711, "thread": "worker-1", "label": "price list"})
    record = partial(EventRecord, backend=backend, holder=holder)
    events = []
    for second in range(0, 3600, 5):
        at, name = last - second, draw.choice(["import:supplier-7", "invoice:2041"])
        if draw.random() < 0.6 + 0.4 * math.sin(second / 500):
            events += [record(at, "acquired", name, waited=draw.lognormvariate(-2.5, 1))]
            events += [record(at + 1, "released", name, held=draw.lognormvariate(0, 0.7))]
        if draw.random() < 0.1:
            events += [record(at, "refused", name, waited=5.0, reason="taken")]
        if draw.random() < 0.01:
            events += [record(at, "lost", name, held=31.0, reason="the lease ran out")]
    return events


@contextlib.contextmanager
def busy(url: str) -> Iterator[None]:
    """Hold locks, some with waiters."""
    with contextlib.ExitStack() as held:
        backend = RedisBackend(url)
        write(an_hour(backend))
        for name, ttl, waiters, owner in WORK:
            held.enter_context(backend.lock(name, ttl=ttl, owner=owner))
            for number in range(waiters):
                wait = RedisBackend(url).lock(name, owner=f"web {number + 1}").acquire
                threading.Thread(target=wait, kwargs={"timeout": 60}, daemon=True).start()
        yield


def log_in(browser: Browser) -> None:
    browser.open(LIST)
    browser.one("#id_username").send_keys(LOGIN)
    browser.one("#id_password").send_keys(LOGIN)
    browser.one("input[type=submit]").click()
    browser.until(lambda: len(browser.names()) > len(WORK))


def take(browser: Browser) -> None:
    """Take a picture of each page, and of the list in both themes."""
    browser.emulate("light")
    log_in(browser)
    browser.until(lambda: "2" in [cell.text for cell in browser.all("td.field-waiters")])
    browser.script("document.querySelectorAll('input.action-select')[1].click()")
    browser.picture(PICTURES / "admin-list.png")
    browser.emulate("dark")
    browser.picture(PICTURES / "admin-list-dark.png")
    browser.emulate("light")
    for name, path in {
        "detail": "default_3Aimport_3Asupplier-7/change/",
        "release": "default_3Aimport_3Asupplier-7/delete/",
        "health": "health/",
    }.items():
        browser.open(LIST + path)
        browser.picture(PICTURES / f"admin-{name}.png")
    browser.open(LIST + "default_3Aimport_3Asupplier-7/change/")
    browser.script("document.querySelector('.redlock-hour').scrollIntoView({block: 'center'})")
    for theme in ("light", "dark"):
        browser.emulate(theme)
        browser.picture(PICTURES / f"admin-hour-{theme}.png")


def main() -> None:
    import os

    PICTURES.mkdir(parents=True, exist_ok=True)
    with (
        running() as address,
        busy(os.environ["TESTPROJECT_REDIS"]),
        Chromium() as chromium,
        Browser(chromium, "http://{}:{}".format(*address)) as browser,
    ):
        threading.Thread(target=keep_serving, args=(address,), daemon=True).start()
        take(browser)
    print(*sorted(PICTURES.glob("admin-*.png")), sep="\n")


if __name__ == "__main__":
    main()
