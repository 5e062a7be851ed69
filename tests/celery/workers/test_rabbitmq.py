"""Redelivery on RabbitMQ, which redelivers as soon as the worker has disconnected."""

import pytest

from tests.support.service import poll


@pytest.fixture
def rabbit(tasks, rabbitmq, start_worker, seen):
    """`rabbit(task, *args)` sends via RabbitMQ; `rabbit.worker()` is a worker on it."""
    queue = f"q-{seen.name}"
    with tasks.app.connection_for_write(rabbitmq.url) as connection:

        def send(task, *args, **options):
            return task.apply_async(args, queue=queue, connection=connection, **options)

        send.worker = lambda: start_worker("prefork", queue, CELERY_BROKER=rabbitmq.url)
        yield send


def test_one_of_many_is_sent_and_run(tasks, rabbit, seen, free):
    results = [rabbit(tasks.executed, seen.name, 0.2) for _ in range(20)]
    assert [result.duplicate for result in results].count(False) == 1
    with rabbit.worker():
        assert results[-1].get(timeout=60) == seen.name
        free(f"executed:{seen.name}")
        assert rabbit(tasks.retries, seen.name).get(timeout=60) == seen.name
        free(f"retries:{seen.name}")
    assert seen.overlap() == []


def test_reject_with_requeue(tasks, rabbit, seen, free):
    """A message that RabbitMQ requeues after Reject is granted to the owner."""
    with rabbit.worker():
        assert rabbit(tasks.requeues, seen.name).get(timeout=60) == seen.name
        free(f"requeues:{seen.name}")
    assert seen.count("start") == 2


@pytest.mark.parametrize("kind", ["brief_late", "brief_late_running"])
def test_killed_worker(tasks, rabbit, seen, go, kind):
    """The message of a killed worker is delivered to another worker, which waits for the end of the dead
    one's lease.
    """
    with rabbit.worker() as first, rabbit.worker():
        result = rabbit(getattr(tasks, kind), seen.name, tasks.UNTIL_GO)
        seen.wait("start")
        first.kill()  # or the other one: then nothing happened, and the result is there all the same
        go()
        assert result.get(timeout=60) == seen.name
    assert seen.count("end") == 1
    assert seen.overlap() == []


def test_put_off_while_the_lease_of_the_dead_lasts(tasks, rabbit, seen, go):
    """A redelivery within the lease of the killed worker is postponed, and runs once."""
    with rabbit.worker() as first:
        result = rabbit(tasks.brief_late, seen.name, tasks.UNTIL_GO)
        seen.wait("start")
        first.kill()
    go()
    with rabbit.worker() as second:
        assert result.get(timeout=60) == seen.name
        poll(lambda: seen.count("end") == 1, timeout=20, what=second.log())
