"""Tasks of the app `tests.celery.app` that are classes, or have a class as their base."""

from typing import Any

from celery import Task

from django_redlock.celery import single_instance_task
from tests.celery.app import app, work
from tests.celery.records import note


class ByClass(Task):
    """A task as a class with its own `__call__` and its own requests."""

    name = f"{__name__}.by_class"
    Request = "tests.celery.custom_request:OwnRequest"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        note(args[0], "call")
        return self.run(*args, **kwargs)

    @single_instance_task(key="by_class:{name}", ttl=60)
    def run(self, name: str, seconds: float = 0.0) -> str:
        return work(self, name, seconds)


class ByHeir(ByClass):
    """A task that inherits from `ByClass`."""

    name = f"{__name__}.by_heir"


class UndecoratedHeir(ByClass):
    """A task that inherits from `ByClass`, with a `run` that is not decorated."""

    name = f"{__name__}.undecorated_heir"

    def run(self, name: str, seconds: float = 0.0, more: str = "") -> str:
        return work(self, name, seconds)


class ProtectedBase(Task):
    """A protected task that is the base of another."""

    name = f"{__name__}.protected_base"

    @single_instance_task(key="protected_base:{name}", ttl=60)
    def run(self, name: str) -> str:
        return work(self, name)


@app.task(bind=True, base=ProtectedBase)
def undecorated(self: Any, name: str, seconds: float = 0.0, more: str = "") -> str:
    """A task with a protected base."""
    return work(self, name, seconds)


by_heir = app.register_task(ByHeir())
by_class = app.register_task(ByClass())
protected_base = app.register_task(ProtectedBase())
undecorated_heir = app.register_task(UndecoratedHeir())
