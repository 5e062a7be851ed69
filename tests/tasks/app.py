"""Tasks of ``django.tasks`` for the tests. The argument `name` is that of the test, and of the file with its events."""

import asyncio
import os
import time
from pathlib import Path

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

from django_redlock.tasks import single_instance_task


def write(name, event):
    with (Path(os.environ["TASKS_RECORDS"]) / f"{name}.events").open("a") as file:
        file.write(f"{event} {os.getpid()}\n")


def body(name, waits):
    """Run until the test says `go`."""
    write(name, "start")
    deadline = time.monotonic() + 60
    while waits and time.monotonic() < deadline and not (Path(os.environ["TASKS_RECORDS"]) / f"{name}.go").exists():
        time.sleep(0.01)
    write(name, "end")
    return name


@task
def without_a_lock(number): ...


@single_instance_task(key="until:{name}")
@task
def until(name, waits=False):
    return body(name, waits)


@single_instance_task(key="short:{name}", ttl=5)
@task
def short(name, waits=False):
    return body(name, waits)


@single_instance_task(key="while:{name}", mode="while_executing", on_conflict="log")
@task
def executing(name, waits=False):
    return body(name, waits)


@single_instance_task(key="until:{name}", mode="while_executing")
@task
def beside_until(name, waits=False):
    return body(name, waits)


@single_instance_task(key="waiting:{name}", mode="while_executing", on_conflict="wait", conflict_timeout=60)
@task
def waiting(name, waits=False):
    return body(name, waits)


@single_instance_task(key="strict:{name}", on_conflict="raise")
@task
def strict(name, waits=False):
    return body(name, waits)


@single_instance_task(unique_on="name")
@task
def failing(name, why=None):
    raise ValueError(why)


@single_instance_task(key="async:{name}")
@task
async def coroutine(name):
    await asyncio.sleep(0)
    write(name, "start")
    return name


@single_instance_task(key="context:{name}")
@task(takes_context=True)
def with_context(context, name):
    again = with_context.enqueue(name)
    return [context.task_result.id, again.id, getattr(again, "duplicate", False)]


@single_instance_task(key="own:{name}", using="down", on_store_error="run")
@task
def unprotected(name):
    return name


@single_instance_task(key="down:{name}", using="down")
@task
def protected(name):
    return name


@single_instance_task
@task
def plain(a, b=2, *, c=frozenset()):
    return [a, b]
