"""`celery beat` on several machines: the scheduler ticks where its process leads, and the next leader goes on."""

import json
import signal
from datetime import datetime
from functools import partial
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest
from celery import Celery
from celery.beat import Scheduler
from celery.schedules import crontab, schedule
from celery.signals import before_task_publish
from django.core.exceptions import ImproperlyConfigured

from django_redlock import locks
from django_redlock.celery import single_instance_task
from django_redlock.celery.beat import LeaderScheduler
from django_redlock.celery.beat.runs import LeadEnded, Runs
from django_redlock.celery.beat.scheduler import RUN_HEADER
from tests.celery.conftest import start_celery
from tests.support.service import poll

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def messages(broker, unique):
    """`messages()`: the messages in the queue of this test, oldest first."""

    def read():
        with broker.client() as client:
            return [json.loads(each)["headers"] for each in reversed(client.lrange(unique, 0, -1))]

    return read


@pytest.fixture
def beat(broker, unique, tmp_path):
    """`beat(interval)`: a scheduler on a separate machine. The entry is due every `interval` seconds."""
    made = []

    def make(interval=0.05, **conf):
        app = Celery(unique, set_as_current=False, broker=broker.url)
        entry = {"task": "tests.tick", "schedule": interval, "options": {"queue": unique}}
        app.conf.update({"redlock_beat_name": unique, "beat_schedule": {"tick": entry}, **conf})
        made.append(LeaderScheduler(app=app, schedule_filename=str(tmp_path / f"{len(made)}")))
        return made[-1]

    yield make
    for each in made:
        each.close()
        each._options["app"].close()


def tick_until(beat, ready):
    """Call tick() until `ready` returns true."""
    poll(lambda: (beat.tick(), ready())[1], timeout=60, what="a tick")


def elected(beat):
    tick_until(beat, lambda: beat.schedule)
    return beat


def runs_of(name, token):
    """Return the last runs in the store for a leader with this fencing token."""
    return Runs(locks["default"], SimpleNamespace(name=name, fencing_token=token))


def test_only_the_leader_ticks(beat, messages):
    """A second scheduler sends nothing while the first leads, and continues with the next number afterwards."""
    first, second = beat(), beat()
    tick_until(first, lambda: len(messages()) >= 3)
    assert second.tick() == 0
    first.close()
    tick_until(second, lambda: len(messages()) >= 6)
    assert [each[RUN_HEADER] for each in messages()] == [*range(1, len(messages()) + 1)]
    assert len({each["id"] for each in messages()}) == len(messages())


@pytest.mark.parametrize("interval", [0.05, 3600], ids=["has run", "has not run"])
def test_last_run_is_kept(beat, messages, interval):
    """The next leader counts the interval from the last run in the store, or else from the first leader's start."""
    first = elected(beat(interval))
    tick_until(first, lambda: messages() or interval == 3600)
    last, sent = first.schedule["tick"].last_run_at, messages()
    first.close()
    second = elected(beat(3600))
    assert (second.schedule["tick"].last_run_at, messages()) == (last, sent)


@pytest.mark.parametrize(
    ("last", "now", "due"),
    [
        (datetime(2026, 10, 25, 0, 0, 1, tzinfo=BERLIN), datetime(2026, 10, 25, 23, 30, tzinfo=BERLIN), False),
        (datetime(2026, 3, 29, 0, 0, 1, tzinfo=BERLIN), datetime(2026, 3, 30, 0, 30, tzinfo=BERLIN), True),
    ],
    ids=["25 hours", "23 hours"],
)
@pytest.mark.parametrize(
    "daily", [partial(crontab, hour=0, minute=0), partial(schedule, 86400, relative=True)], ids=["crontab", "interval"]
)
def test_day_of_a_clock_change(beat, daily, last, now, due):
    """A recorded run has the time zone of its entry, so a daily entry is due after a day of 23 or 25 hours."""
    one = elected(beat(daily(nowfun=lambda: now), timezone=BERLIN.key, redlock_beat_scheduler="celery.beat:Scheduler"))
    runs = one._scheduler.runs
    runs.begin("tick", last)
    runs.mark_sent("tick", runs.last("tick"))
    assert one._scheduler.is_due(one.schedule["tick"]).is_due is due
    assert one.schedule["tick"].last_run_at == last


def test_run_that_was_not_sent(beat, messages):
    """A leader dies between record and message: the next one sends the message."""
    first = elected(beat(3600))
    first._scheduler.runs.begin("tick", first.schedule["tick"].last_run_at)
    first.close()
    second = beat(3600)
    tick_until(second, lambda: second.schedule and not second._scheduler.runs.unsent)
    assert [each[RUN_HEADER] for each in messages()] == [1]


def test_store_refuses_an_earlier_leader(beat, unique):
    """A leader that was paused after its check of the lease can't record a run when another leader has begun."""
    first = elected(beat(3600))
    paused = first._scheduler.runs
    paused.check = lambda: None  # it looked before the pause
    runs_of(unique, paused.token + 1)
    with pytest.raises(LeadEnded):
        paused.begin("tick", first.schedule["tick"].last_run_at)


def test_broker_that_restarts(beat, own_redis, unique):
    """A run whose message the broker did not accept is sent once, when the broker is back."""
    server = own_redis()
    one = beat(2.0, broker_url=server.url)
    tick_until(one, lambda: server.client().llen(unique) == 1)
    server.kill()
    tick_until(one, lambda: one._scheduler and one._scheduler.runs.unsent)
    server.start()
    tick_until(one, lambda: server.client().llen(unique) >= 1)
    assert json.loads(server.client().lindex(unique, -1))["headers"][RUN_HEADER] == 2


def test_arguments_that_cannot_be_sent(beat, messages, unique, caplog):
    """A task whose arguments can't be serialized is logged once for each run, and other tasks are sent."""
    entry = {"task": "tests.tick", "schedule": 0.05, "options": {"queue": unique}}
    one = beat(beat_schedule={"good": entry, "bad": {**entry, "args": [object()]}})
    tick_until(one, lambda: len(messages()) >= 3 and "Couldn't apply scheduled task bad" in caplog.text)
    assert one._scheduler.runs.unsent == []
    assert [each[RUN_HEADER] for each in messages()] == [*range(1, len(messages()) + 1)]


@pytest.mark.parametrize("on_conflict", ["raise", "wait"])
def test_refused_run_is_not_sent_later(beat, messages, unique, caplog, on_conflict):
    """A run whose task is refused with ``LockNotAcquired`` counts as sent, unlike a run that the broker refused."""
    one = beat()

    @one._options["app"].task(name="tests.tick", shared=False)
    @single_instance_task(key=f"of-{unique}", on_conflict=on_conflict, conflict_timeout=0.1)
    def tick(): ...

    first = tick.apply_async(queue=unique)
    tick_until(one, lambda: "Couldn't apply scheduled task tick" in caplog.text)
    assert one._scheduler.runs.unsent == []
    assert [each["id"] for each in messages()] == [first.id]


@pytest.mark.filterwarnings("ignore:.*Interrupted:pytest.PytestUnraisableExceptionWarning")
def test_signal_during_a_finalizer(beat, messages, caplog):
    """Python ignores the `SystemExit` of a signal handler there. The tick is finished, and the next one ends beat."""
    first = beat()
    closed = []

    class Interrupted:
        def __del__(self):
            first.close()  # as the signal handler of celery beat
            closed.append(True)
            raise SystemExit

    def interrupt(**_kwargs):
        if not closed:
            Interrupted()

    before_task_publish.connect(interrupt)
    tick_until(first, lambda: closed)
    assert len(messages()) == 1
    assert first._scheduler.runs.unsent == []
    with pytest.raises(SystemExit):
        first.tick()
    first.close()
    tick_until(beat(), lambda: len(messages()) == 2)
    assert "Message Error" not in caplog.text


class OwnTick(Scheduler):
    """A scheduler that sends in its own way, as RedBeat does."""

    def tick(self, *args, **kwargs):
        return 1.0


def test_what_is_refused_when_beat_starts(beat, settings):
    """A scheduler that sends past ``Scheduler.tick``, whose runs would not be recorded, and a store without runs."""
    with pytest.raises(ImproperlyConfigured, match=r"OwnTick has a tick\(\) of its own"):
        beat(redlock_beat_scheduler=f"{__name__}:OwnTick")
    settings.REDLOCK = {"default": {"BACKEND": "django_redlock.backends.locmem.LocMemBackend"}}
    with pytest.raises(ImproperlyConfigured, match="is a LocMemBackend: celery beat needs a RedisBackend"):
        beat()


class ForTenants(Scheduler):
    """A scheduler that sends each entry for two tenants, as that of tenant-schemas-celery does."""

    def apply_entry(self, entry, producer=None):
        for _ in range(2):
            self.apply_async(entry, producer=producer, advance=False)


def test_one_entry_for_many_tenants(beat, messages):
    """Each message of a run has its own id, and all have the number of the run."""
    tick_until(beat(redlock_beat_scheduler=f"{__name__}:ForTenants"), messages)
    first, second = messages()[:2]
    assert first["id"] != second["id"]
    assert first[RUN_HEADER] == second[RUN_HEADER] == 1


def test_settings(broker):
    """The settings of the Celery app choose the wrapped scheduler and the options of the election."""
    app = Celery(set_as_current=False, broker=broker.url)
    app.conf.update(redlock_beat_scheduler="celery.beat:Scheduler", redlock_beat_ttl=9, redlock_beat_stop_before=4)
    made = LeaderScheduler(app=app, lazy=True)
    assert made.info == "    . leader -> celery-beat, celery.beat.Scheduler"
    assert made._leader._lock.options.ttl == 9
    app.conf.redlock_beat_stop_before = 5
    with pytest.raises(ValueError, match="at most half of the ttl"):
        LeaderScheduler(app=app)


@pytest.fixture
def start_beat(records, unique, tmp_path):
    """`start_beat()`: ``celery beat`` in a separate process, with a task every second."""
    started = []
    conf = {
        "beat_scheduler": "django_redlock.celery.beat:LeaderScheduler",
        "redlock_beat_name": unique,
        "redlock_beat_ttl": 3,
        "beat_schedule": {"tick": {"task": "tests.tick", "schedule": 1.0, "options": {"queue": unique}}},
    }

    def start():
        words = "beat", "-l", "INFO", "--pidfile=", "-s", str(tmp_path / f"schedule-{len(started)}")
        log = tmp_path / f"log-{len(started)}"
        started.append(start_celery("tests.celery.app", *words, log=log, CELERY_CONF=json.dumps(conf)))
        return started[-1]

    yield start
    for child in started:
        child.kill()


def test_killed_and_paused(start_beat, held, unique, messages):
    """After one leader is killed and the next one is paused, no tick is missing. The last may come twice."""
    beats = {child.pid: child for child in [start_beat() for _ in range(3)]}

    def leader(other_than=None):
        found = []  # what was seen, because the lead may end at any moment

        def leads():
            found[:] = filter(None, [held(unique)])
            return found and found[0].owner.pid != other_than

        poll(leads, timeout=60, what="a leader")
        return found[0].owner.pid

    def sends():
        before = len(messages())
        poll(lambda: len(messages()) > before, timeout=60, what="a tick")

    for fate in (signal.SIGKILL, signal.SIGSTOP):
        pid = leader()
        sends()
        beats[pid].signal(fate)
        leader(other_than=pid)
        sends()
        if fate == signal.SIGSTOP:
            beats[pid].signal(signal.SIGCONT)
            sends()
        else:
            started = start_beat()
            beats[started.pid] = started
    for child in beats.values():
        child.stop(timeout=60)
    numbers = [each[RUN_HEADER] for each in messages()]
    assert sorted({*numbers}) == [*range(1, max(numbers) + 1)]
    assert len(numbers) - len({*numbers}) <= 1  # killed between message and mark
    assert [child.process.poll() for child in beats.values()].count(-signal.SIGKILL) == 1
    logs = [child.log(100_000) for child in beats.values()]
    assert [log for log in logs if any(word in log for word in ("ERROR/", "CRITICAL/", "Exception in thread"))] == []
