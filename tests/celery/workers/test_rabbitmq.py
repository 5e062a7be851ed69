"""Redelivery on RabbitMQ, which redelivers as soon as the worker has disconnected."""

import pytest


@pytest.fixture
def rabbit(tasks, rabbitmq, start_worker, own_queue, seen):
    """`rabbit(task, *args)` sends via RabbitMQ; `rabbit.worker()` is a worker on it."""
    with tasks.app.connection_for_write(rabbitmq.url) as connection:

        def send(task, *args, **options):
            return task.apply_async(args, queue=own_queue, connection=connection, **options)

        send.worker = lambda: start_worker("prefork", own_queue, CELERY_BROKER=rabbitmq.url)
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
    with rabbit.worker():
        assert rabbit(tasks.requeues, seen.name).get(timeout=60) == seen.name
        free(f"requeues:{seen.name}")
    assert seen.count("start") == 2


@pytest.mark.parametrize("kind", ["brief_late", "brief_late_running"])
def test_killed_worker(tasks, rabbit, seen, go, kind):
    """The message of a killed worker is delivered to another, which waits for the end of the dead one's lease."""
    with rabbit.worker() as first, rabbit.worker():
        result = rabbit(getattr(tasks, kind), seen.name, tasks.UNTIL_GO)
        seen.wait("start")
        first.kill()  # or the other one: then nothing happened, and the result is there all the same
        go()
        assert result.get(timeout=60) == seen.name
    assert seen.count("end") == 1
    assert seen.overlap() == []
