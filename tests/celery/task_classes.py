"""Tasks of the app `tests.celery.app` that are classes, or have a class as their base."""

from typing import Any

from celery import Task

from django_redlock.celery import single_instance_task
from tests.celery import bodies
from tests.celery.app import app, protected
from tests.celery.bodies import work
from tests.celery.records import RECORDS, note


class Hooked(Task):
    """A base class with hooks of its own."""

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        note(args[0], "before_start")

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        note(args[0], "on_success")

    def after_return(self, status: str, *args: Any) -> None:
        note(args[2][0], "after_return", status=status)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        note(args[0], "call")
        return self.run(*args, **kwargs)


class Tenant(Task):
    """A base class that adds a header to each message."""

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        headers = {**(options.pop("headers", None) or {}), "tenant": "one"}
        return super().apply_async(args, kwargs, headers=headers, **options)


class Unready(Task):
    """A base class whose hook fails the task before its body."""

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        note(args[0], "before_start")
        raise ValueError(args[0])


class Moody(Task):
    """A base class whose hook fails the task while the test says so."""

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        if (RECORDS / f"{args[0]}.fail").exists():
            raise ValueError(args[0])


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
protected("hooked", bodies.work, {"base": Hooked})
protected("unready", bodies.work, {"base": Unready}, ttl=60)
protected("next_moody", bodies.gated, {"base": Moody}, mode="until_and_while_executing", ttl=60)
protected("next_tenant", bodies.carried, {"base": Tenant}, mode="until_and_while_executing", ttl=60)
