"""Tasks with the base class ``SingleInstance``, defaults for a project, and options of other libraries."""

from functools import partial

import pytest
from celery import Celery, Task

from django_redlock.celery import SingleInstance, is_duplicate, single_instance_task
from django_redlock.errors import LockNotAcquired
from tests.support.locks import memory_entry


@pytest.fixture
def app(unique):
    with Celery(unique, broker="memory://", set_as_current=False) as app:
        app.task = partial(app.task, shared=False)  # a shared task is in each later app of this process, too
        yield app


@pytest.fixture(autouse=True)
def memory(settings, unique):
    """Locks in memory."""
    settings.REDLOCK = {"default": memory_entry(unique)}


def test_options_as_attributes_of_a_class(app):
    """A subclass sets the options, and its tasks may set others. A second call is a duplicate."""

    class Once(SingleInstance):
        abstract = True
        key = "once:{number}"
        on_conflict = "raise"

    @app.task(base=Once)
    def charge(number, note=""): ...

    @app.task(base=Once, key="other:{number}", queue_ttl=5)
    def refund(number): ...

    charge.delay(1, note="a")
    with pytest.raises(LockNotAcquired):
        charge.delay(1, note="b")
    charge.delay(2)
    assert not is_duplicate(refund.delay(1))
    assert refund.redlock.options.queue_ttl == 5


def test_class_based_task(app):
    """A task class with its own ``run`` and ``apply_async`` has a lock, in the worker, too."""

    class Settle(SingleInstance):
        name = "settle"
        unique_on = "order"

        def apply_async(self, args=None, kwargs=None, **options):
            return super().apply_async(args, {**(kwargs or {}), "order": 7}, **options)

        def run(self, order):
            return is_duplicate(self.apply(kwargs={"order": order}))

    settle = app.register_task(Settle())
    assert settle.apply(kwargs={"order": 7}).get() is True
    first, second = settle.delay(), settle.delay()
    assert (first.duplicate, second.duplicate, second.id) == (False, True, first.id)


class Wrapping(Task):
    """A base class as projects have it, with an ``apply_async`` and a ``__call__`` of its own."""

    abstract = True

    def apply_async(self, args=None, kwargs=None, **options):
        return super().apply_async(args, kwargs, **options)

    def __call__(self, *args, **kwargs):
        return super().__call__(*args, **kwargs)


def test_beside_another_base_class(app):
    """The other base class may take most options of ``apply_async`` as ``**options``."""

    class Both(SingleInstance, Wrapping):
        abstract = True
        key = "both:{number}"

    @app.task(base=Both)
    def beside(number): ...

    assert not is_duplicate(beside.delay(1))
    assert is_duplicate(beside.delay(1))


def test_a_retry_sends_no_mark_of_the_running_body(app):
    """Celery's copy of the request has no header that would let the retry's body run without a lock."""

    @app.task(base=Wrapping, bind=True)
    @single_instance_task(mode="while_executing")
    def retried(self):
        return self.signature_from_request(self.request).options["headers"]

    assert not retried.apply().get()


def test_on_bound_without_super(app):
    """A task that Celery has bound without a lock raises an error when it is sent. It never runs unprotected."""

    class Wrong(SingleInstance):
        @classmethod
        def on_bound(cls, app): ...

    with pytest.raises(TypeError, match=r"task wrong has no lock: its on_bound\(\) must call super"):
        app.task(name="wrong", base=Wrong)(unprotected).delay()


@pytest.mark.parametrize("name", ["once", "raise_on_duplicate", "lock_expiry"])
def test_options_of_other_libraries(app, name):
    """Options of celery-once and celery-singleton are refused in a call and on a task, with the option to use."""

    @app.task
    @single_instance_task
    def work(): ...

    with pytest.raises(TypeError, match=rf"apply_async\(\) has no option '{name}': use .* on the task"):
        work.apply_async(**{name: 1})
    with pytest.raises(TypeError, match=f"task old has no option '{name}': use"):
        app.task(name="old", base=SingleInstance, **{name: 1})(unprotected).delay()


def test_defaults_of_the_project(app, settings):
    """``REDLOCK_TASKS`` has defaults for all tasks. A wrong name is refused."""
    settings.REDLOCK_TASKS = {"mode": "while_executing", "queue_ttl": 60, "on_conflict": "raise"}

    @app.task
    @single_instance_task(queue_ttl=5)
    def work(): ...

    options = work.redlock.options
    assert (options.mode, options.queue_ttl, options.actions) == ("while_executing", 5, ("raise", "raise"))
    settings.REDLOCK_TASKS = {"key": "a"}
    with pytest.raises(TypeError, match=r"REDLOCK_TASKS\(\) has no option 'key'"):
        single_instance_task(lambda: None)


def unprotected(): ...


class Tenant(Task):
    """A base class that sends the tenant in a header."""

    abstract = True
    current = "one"

    def apply_async(self, args=None, kwargs=None, **options):
        headers = {**(options.pop("headers", None) or {}), "tenant": self.current}
        return super().apply_async(args, kwargs, headers=headers, **options)


@pytest.mark.parametrize("key", ["{headers[tenant]}:{number}", lambda number, headers: f"{headers['tenant']}:{number}"])
def test_key_of_a_tenant(app, key):
    """The key sees headers that the base class adds, so two tenants do not exclude each other."""

    @app.task(base=Tenant)
    @single_instance_task(key=key)
    def work(number): ...

    def is_refused(tenant):
        Tenant.current = tenant
        return is_duplicate(work.delay(1))

    assert [is_refused(tenant) for tenant in ("one", "two", "one")] == [False, False, True]


def test_duplicate_with_results_by_rpc(app):
    """With ``rpc://``, ``get()`` of a duplicate raises at once: the result goes to the sender of the first call."""
    app.conf.result_backend = "rpc://"

    @app.task
    @single_instance_task
    def work(): ...

    work.delay()
    with pytest.raises(NotImplementedError, match="never arrives with rpc://"):
        work.delay().get()


@pytest.mark.parametrize(("mode", "where"), [("until_executed", "submit"), ("while_executing", "start")])
def test_an_eager_duplicate_gets_the_word_of_the_check_that_refuses_it(app, mode, where):
    """``apply()`` uses the word of the submit where a worker's call is refused there, else the word of the start."""
    words = []

    @app.task(bind=True)
    @single_instance_task(mode=mode, on_conflict=(lambda c: words.append(c.where), lambda c: words.append(c.where)))
    def work(self, depth):
        return depth and self.apply((depth,)).duplicate

    assert work.apply((1,)).get() is True
    assert words == [where]
