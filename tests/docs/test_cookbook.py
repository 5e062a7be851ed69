"""The recipes of the cookbook, as they stand in the page."""

from __future__ import annotations

import asyncio
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection, models
from django.test import RequestFactory
from django.test.utils import isolate_apps

from django_redlock import lock, locks, semaphore
from django_redlock.testing import assert_locked, assert_not_locked
from tests.docs.pages import DOCS, examples

PAGE = (DOCS / "howto" / "cookbook.rst").read_text()
POST = RequestFactory().post("/")

pytestmark = pytest.mark.usefixtures("redlock")


def recipe(title: str, body: str = "...", **names: Any) -> SimpleNamespace:
    """Run the code under the heading `title`, with `body` for its dots, and return what it defines."""
    section = re.split(r"\n.*\n---+\n", PAGE.partition(f"\n{title}\n---")[2])[0]
    [code] = [example.code for example in examples(section) if example.language == "python"]
    names["__name__"] = f"testproject.shop.{title}"  # a model belongs to this app
    exec(compile(code.replace("    ...", f"    {body}"), title, "exec"), names)  # noqa: S102
    return SimpleNamespace(**names)


@pytest.mark.django_db(transaction=True)
@isolate_apps("testproject.shop")
def test_webhook():
    """The second delivery does nothing. A delivery whose work fails is not recorded."""
    paid: list[str] = []

    def pay(event_id, amount):
        paid.append(event_id)
        if amount < 0:
            raise ValueError(event_id)

    shop = recipe(
        "A webhook that is delivered twice",
        verified_event=lambda request: request,
        Payment=SimpleNamespace(objects=SimpleNamespace(create=pay)),
    )
    assert issubclass(shop.WebhookEvent, models.Model)
    with connection.schema_editor() as editor:
        editor.create_model(shop.WebhookEvent)
    try:
        for _ in range(2):
            assert shop.webhook(SimpleNamespace(id="evt_1", amount=1)).status_code == 204
        assert paid == ["evt_1"]
        with pytest.raises(ValueError, match="evt_2"):
            shop.webhook(SimpleNamespace(id="evt_2", amount=-1))
        assert [event.id for event in shop.WebhookEvent.objects.all()] == ["evt_1"]
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(shop.WebhookEvent)


def test_one_import_for_each_supplier(redlock_tasks):
    """While an import runs, one more may be queued. Other suppliers run beside it."""
    meanwhile: list[bool] = []

    def work(supplier_id):
        if supplier_id == 7 and not meanwhile:
            meanwhile.extend(task.delay(7, reason).duplicate for reason in ("changed", "again"))

    task = recipe("One import for each supplier at a time", "work(supplier_id)", work=work).import_prices
    assert [task.delay(7).duplicate, task.delay(7, "again").duplicate, task.delay(8).duplicate] == [False, True, False]
    redlock_tasks.run_all()
    assert meanwhile == [False, True]


def test_three_calls_at_a_time(monkeypatch):
    """While three calls run, a fourth gets no permit."""
    three, go = Barrier(4, timeout=30), Event()

    def get(url, timeout):
        three.wait()
        assert go.wait(30)

    monkeypatch.setitem(sys.modules, "requests", SimpleNamespace(get=get))
    ask = recipe("At most three calls to an API at the same time").ask_the_api
    fourth = semaphore("carrier-api", limit=3)
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(ask, order) for order in range(3)]
        three.wait()
        assert not fourth.acquire(blocking=False)
        go.set()
        assert [call.result(30) for call in calls] == [None] * 3
    assert fourth.acquire(blocking=False)


def test_stock():
    """The stock is read and written under the lock. A buyer who can't be served gets 409."""
    row = SimpleNamespace(stock=2, save=lambda: assert_locked("stock:shoe"))

    def get(sku):
        assert_locked(f"stock:{sku}")
        return row

    buy = recipe("A stock with many buyers", Product=SimpleNamespace(objects=SimpleNamespace(get=get))).buy
    assert [buy(POST, sku="shoe").status_code for _ in range(3)] == [200, 200, 410]
    with lock("stock:shoe"):
        assert buy(POST, sku="shoe").status_code == 409


def test_view_and_task(redlock_tasks):
    """The lock is held from the view to the end of the task."""
    months = recipe("Start work in a view, finish it in a task")
    assert [months.close_month(POST, "5").status_code for _ in range(2)] == [202, 409]
    redlock_tasks.run_all()
    assert_not_locked("month:5")


def test_device(monkeypatch, redlock):
    """The second connection is refused. A lost lock closes the first one."""

    class Consumer:
        def __init__(self):
            self.scope = {"url_route": {"kwargs": {"pk": 3}}}
            self.said = []
            self.closed = asyncio.Event()

        async def accept(self):
            self.said.append("accepted")

        async def close(self, code="refused"):
            self.said.append(code)
            self.closed.set()

    websocket = SimpleNamespace(AsyncWebsocketConsumer=Consumer)
    monkeypatch.setitem(sys.modules, "channels.generic.websocket", websocket)
    device_class = recipe("One connection to a device, with Channels").Device

    async def connect():
        first, second = device_class(), device_class()
        await first.connect()
        await second.connect()
        await second.disconnect(1000)
        await locks["default"].aforce_release("device:3")
        redlock.advance(20)  # the next renewal notices
        await asyncio.wait_for(first.closed.wait(), 30)
        await first.disconnect(1000)
        return first.said, second.said

    assert asyncio.run(connect()) == (["accepted", 4410], ["refused"])


def test_work_that_may_be_skipped():
    done = []
    for _ in range(2):
        recipe("Work that may be skipped", refresh=lambda: done.append(1))
        with lock("refresh-exchange-rates"):
            recipe("Work that may be skipped", refresh=lambda: done.append("beside another"))
    assert done == [1, 1]


def test_every_five_minutes(redlock):
    mails = []
    for passed in (1, 1, 301):
        redlock.advance(passed)
        recipe("Do something, at most every five minutes", send_mail=mails.append)
    assert len(mails) == 2
