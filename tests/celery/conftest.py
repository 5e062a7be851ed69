"""Real workers on a real broker. One worker of each pool lasts for the session; tests that kill start their own."""

import contextlib
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from celery import Task
from celery.app.trace import build_tracer

from testproject.processes import Child, wait_until
from testproject.redis_server import RedisServer
from tests.support.forked import Forked
from tests.support.locks import redis_entry
from tests.support.overlap import overlaps, read
from tests.support.service import poll

ROOT = Path(__file__).parents[2]
RUNNING: list[Child] = []  # workers, whose logs a failed test shows
POOLS = {
    "prefork": ("-P", "prefork", "-c", "4"),
    "threads": ("-P", "threads", "-c", "4"),
    "solo": ("-P", "solo"),
    "gevent": ("-P", "gevent", "-c", "10"),
}


def pytest_collection_modifyitems(items):
    # Celery opens a connection to its result store for each thread that sends, and leaves closing it to the collector.
    ignore = pytest.mark.filterwarnings("ignore:.*(unclosed|<socket):pytest.PytestUnraisableExceptionWarning")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(ignore)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        report.sections += [(" ".join(child.process.args[-8:]), child.log(6000)) for child in RUNNING]
    return report


@pytest.fixture(scope="session")
def broker() -> Iterator[RedisServer]:
    """Broker, result store and lock store of the session."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def records(broker, tmp_path_factory) -> Path:
    """The folder where tasks record their events, and the environment that the app reads when it is imported."""
    folder = tmp_path_factory.mktemp("records")
    os.environ |= {
        "CELERY_RECORDS": str(folder),
        "CELERY_BROKER": broker.url,
        "CELERY_RESULTS": broker.url.replace("/0", "/1"),
        "CELERY_LOCKS": broker.url.replace("/0", "/2"),
    }
    return folder


@pytest.fixture(scope="session")
def start_worker(records):
    """`start_worker(pool, queue, **environment)`: a context with a worker of `app` that consumes that queue."""

    @contextlib.contextmanager
    def start(pool: str, queue: str, *extra: str, app: str = "tests.celery.app", **environment: str) -> Iterator[Child]:
        name = f"{queue}-{os.urandom(3).hex()}@test"
        words = ["worker", "-l", "INFO", "-Q", queue, "-n", name, "--without-mingle", *POOLS[pool], *extra]
        # gevent and tracing patch modules before Celery's worker imports them
        start = subprocess.Popen if pool == "gevent" or app.endswith("traced_app") else Forked
        child = start_celery(app, *words, log=Path(tempfile.mkdtemp(dir=records)) / "log", start=start, **environment)
        try:
            wait_until(lambda: " ready." in child.log(100_000), child=child, timeout=60, what="the worker")
            if "CELERY_BROKER" not in environment:  # what is said to one that doesn't listen yet is lost, revoke() too
                wait_until(lambda: listens(name), child=child, timeout=60, what="the worker's ear")
            RUNNING.append(child)
            child.name = name
            yield child
        finally:
            # A killed process saves no coverage.
            (child.stop if "COVERAGE_PROCESS_CONFIG" in os.environ else child.kill)()
            with contextlib.suppress(ValueError):
                RUNNING.remove(child)

    return start


def start_celery(app: str, *words: str, log: Path, start: object = Forked, **environment: str) -> Child:
    """Start `celery -A app …` in a process of its own."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {"PYTHONPATH": path, "TESTPROJECT_REDIS": os.environ["CELERY_LOCKS"], **environment}
    return Child([sys.executable, "-m", "celery", "-A", app, *words], output=log, env=env, start=start)


def listens(worker: str) -> bool:
    """Return whether the worker of that name replies to remote control."""
    from tests.celery import app

    return bool(app.app.control.ping(destination=[worker], timeout=0.2, limit=1))


@pytest.fixture(scope="session")
def workers(start_worker):
    """`workers(pool)`: the name of the queue that the session's worker of that pool consumes."""
    with contextlib.ExitStack() as ends:
        running: dict[str, Child] = {}

        def queue_of(pool: str) -> str:
            if pool not in running:
                running[pool] = ends.enter_context(start_worker(pool, f"of-{pool}"))
            return f"of-{pool}"

        queue_of.running = running
        yield queue_of


@pytest.fixture
def queue(workers) -> str:
    """The queue of the session's worker that has child processes."""
    return workers("prefork")


@pytest.fixture
def worker(workers, queue) -> Child:
    """The session's worker that has child processes."""
    return workers.running["prefork"]


@pytest.fixture
def own_queue(seen) -> str:
    """A queue that no worker consumes yet."""
    return f"q-{seen.name}"


@pytest.fixture
def take_over(tasks, worker, own_queue):
    """`take_over()`: deliver again what a worker of `own_queue` has left, to the session's worker."""

    def take_over() -> None:
        deliver_again(tasks.app)
        assert tasks.app.control.add_consumer(own_queue, destination=[worker.name], reply=True, timeout=20)

    return take_over


@pytest.fixture
def ignored(worker, seen):
    """`ignored(result)`: wait until the worker has ignored a copy of the call. Returns at once if it has run one."""

    def wait(result, starts: int = 1, times: int = 1) -> None:
        text = f"[{result.id}] was delivered again after it had ended"
        poll(
            lambda: worker.log(10_000_000).count(text) >= times or seen.count("start") > starts,
            timeout=100,  # the other copy may have to wait for the end of a lease
            what="the other copy of the message",
        )
        assert seen.count("start") == starts

    return wait


def deliver_again(app) -> None:
    """Make kombu requeue messages that were not acknowledged in time, as every worker does from time to time."""
    with app.connection_for_write() as connection:
        qos = connection.channel().qos
        with qos.channel.conn_or_acquire() as client:  # not restore_visible(): it gives up if another process is at it
            for tag in client.zrange(qos.unacked_index_key, 0, -1):
                qos.restore_by_tag(tag, client)


def logged(worker: Child, text: str, times: int = 1) -> None:
    """Wait until the worker has logged the text. A lease, which a message may have to wait for, lasts up to 30 s."""
    poll(lambda: worker.log(10_000_000).count(text) >= times, timeout=90, what=f"{text!r} in the worker's log")


def run_here(task: Task, name: str, *, retries: int = 0, **headers: object) -> None:
    """Run the body for a message with these headers in this process, as a worker does. Its id is `name`."""
    request = {"id": name, "retries": retries, "is_eager": False, "called_directly": False, "delivery_info": {}}
    request |= {"args": (name,), "kwargs": {}, **headers}
    build_tracer(task.name, task, app=task.app)(name, (name,), {}, request)


@pytest.fixture(scope="session")
def tasks(records):
    """The module with the tasks."""
    with pytest.MonkeyPatch.context() as patch:
        from tests.celery import app

        yield app
        gc.collect()  # results unsubscribe when they are collected: while there still is a broker
        app.app.close()
        del patch


@pytest.fixture(autouse=True, scope="module")
def collected():
    """Collect here what Celery leaves to the garbage collector: elsewhere, warnings about it are errors."""
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def locks_of_the_broker(broker, records, settings):
    """This process uses the same lock store as the workers."""
    settings.REDLOCK = {"default": redis_entry(os.environ["CELERY_LOCKS"])}


@pytest.fixture
def seen(records, unique):
    """The events that the tasks of this test have recorded; their argument `name` is `seen.name`."""

    def events(kind: str | None = None) -> list[dict]:
        file = records / f"{unique}.events"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [line for line in lines if kind in (None, line["event"])]

    def count(kind: str) -> int:
        return len(events(kind))

    def wait(kind: str, number: int = 1, timeout: float = 60) -> list[dict]:
        poll(lambda: count(kind) >= number, timeout=timeout, what=f"{number} {kind} in {events()}")
        return events(kind)

    def overlap() -> list:
        return overlaps(read(records / f"{unique}.beliefs"))

    return SimpleNamespace(name=unique, events=events, count=count, wait=wait, overlap=overlap)


@pytest.fixture
def started(tasks, seen):
    """`started(task, queue)`: submit a call whose body lasts until `go()`, and wait until it runs."""

    def start(task, queue, **options):
        result = task.apply_async((seen.name, tasks.UNTIL_GO), queue=queue, **options)
        seen.wait("start")
        return result

    return start


@pytest.fixture
def held(broker):
    """`held(name)`: the lock of that name, or `None`."""
    from django_redlock import locks

    return locks["default"].describe


@pytest.fixture
def free(held):
    """`free(name)`: wait until the lock is free."""
    return lambda name, timeout=30: poll(lambda: held(name) is None, timeout=timeout, what=f"{name} is {held(name)}")


@pytest.fixture
def go(records, seen):
    """`go()`: let the waiting bodies of this test end. They end with the test at the latest."""
    yield (records / f"{seen.name}.go").touch
    (records / f"{seen.name}.go").touch()
