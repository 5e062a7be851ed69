"""Protected tasks for type checkers. Each ignored error must occur (`tests/django/test_typing.py`)."""

from typing import assert_type

from django_tasks import task
from django_tasks.base import Task

from django_redlock.tasks import Conflict, single_instance_task


@single_instance_task
@task
def bare(order_id: int, force: bool = False) -> str:
    return f"{order_id} {force}"


def decide(conflict: Conflict) -> str:
    return "raise" if conflict.state == "running" else "skip"


@single_instance_task(mode="while_executing", key="settle:{order_id}", on_conflict=("skip", "wait"), ttl=30, limit=3)
@task()
def named(order_id: int) -> int:
    return order_id


single_instance_task(on_conflict=decide)
assert_type(bare, Task[[int, bool], str])  # type: ignore[assert-type]  # the names of the arguments are part of the type
assert_type(bare.enqueue(1, force=True).return_value, str | None)
assert_type(bare.using(priority=3).enqueue(1).return_value, str | None)
bare.enqueue("1")  # type: ignore[arg-type]
single_instance_task(mode="sometimes")  # type: ignore[call-overload]
single_instance_task(time=3)  # type: ignore[call-overload]
