"""A repeat that arrives while the first request runs, and what the running request leaves behind."""

import contextlib

import pytest
from django.http import HttpResponse, StreamingHttpResponse

from django_redlock import locks
from django_redlock.backends.redis import RedisBackend
from django_redlock.core.background.work import background
from django_redlock.core.flow.requests import Fault
from django_redlock.decorators import idempotent, locked_view
from django_redlock.errors import LockNotSupported, LockUnavailable
from django_redlock.history.event_queue import event_queue
from django_redlock.idempotency.answers import AnswerNotStorable, Entry
from django_redlock.idempotency.request_lock import request_lock
from django_redlock.signals import lock_acquired
from django_redlock.testing import override_locks
from tests.idempotency.conftest import Paused, ask, code, replayed, send
from tests.support.locks import entry_of, redis_entry
from tests.support.service import poll


@pytest.fixture
def first_runs(pool):
    """`first_runs(view)`: a context in which the first request runs the view, a `Paused`. It yields the request."""

    @contextlib.contextmanager
    def run(view):
        paused = view.__wrapped__
        first = pool.submit(send, view)
        try:
            assert paused.entered.wait(60)
            yield first
        finally:
            paused.go.set()
        assert first.result(60).content == b"done"
        assert paused.calls == 1

    return run


def test_while_the_first_runs(options, first_runs):
    view = idempotent(**options, ttl=30)(Paused())
    with first_runs(view):
        refused = ask(view)
        assert code(refused) == (409, "idempotency-key-in-use")
        assert refused["Retry-After"] == "1"
    assert replayed(ask(view))


def test_a_repeat_waits(options, pool, first_runs):
    """With `wait` a repeat gets the answer when the first request ends, and 409 when the time is over."""
    paused = Paused()
    with first_runs(idempotent(**options, ttl=30)(paused)):
        assert code(ask(idempotent(**options, ttl=30, wait=0.2)(paused))) == (409, "idempotency-key-in-use")
        waiting = pool.submit(send, idempotent(**options, ttl=30, wait=60)(paused))
        assert not waiting.done()
    assert replayed(waiting.result(60))


def test_what_is_known_of_a_running_request(new_store, first_runs):
    """With Redis another request under its key is recognised, and live locks show its method and path."""
    view = idempotent(**new_store("default"))(Paused())
    with first_runs(view):
        assert code(ask(view, {"other": 1})) == (422, "idempotency-key-reused")
        [held] = locks["default"].held()
        assert held.name.startswith("idempotency:")
        assert held.owner.label == "POST /pay"
    assert locks["default"].held() == []


def test_the_lease_is_renewed(new_store):

    @idempotent(**new_store("default"), ttl=6)
    def view(_request):
        seen = []

        def renewed():
            seen.append(locks["default"].held()[0].remaining)
            return seen[-1] > min(seen) + 0.5

        poll(renewed, timeout=60, what="a renewal")
        return HttpResponse()

    assert ask(view).status_code == 200


def die(view, **more):
    """Leave the state of a process that has died in the view: a record without an answer, and an expired lease."""

    class Death(BaseException):
        pass

    def dying(request):
        raise Death

    with pytest.raises(Death):
        ask(view(dying), **more)
    [held] = locks["default"].held()
    assert locks["default"].force_release(held.name)


def answer_what_cannot_be_stored(decorate):
    with pytest.raises(AnswerNotStorable):
        ask(decorate(lambda _request: StreamingHttpResponse([b"x"])))


ends_in_doubt = pytest.mark.parametrize("end", [die, answer_what_cannot_be_stored])


@ends_in_doubt
def test_in_doubt(new_store, end):
    """After the death of a process, or without its answer, the outcome is unknown: a repeat is refused at once."""
    decorate = idempotent(**new_store("default"))
    end(decorate)
    view = decorate(lambda _request: HttpResponse())
    again = ask(view)
    assert code(again) == (409, "idempotency-outcome-unknown")
    assert "Retry-After" not in again
    assert code(ask(view, {"other": 1})) == (422, "idempotency-key-reused")
    assert locks["default"].held() == []


@ends_in_doubt
def test_in_doubt_run(new_store, end):
    decorate = idempotent(**new_store("default"), in_doubt="run")
    end(decorate)
    view = decorate(lambda _request: HttpResponse(b"again"))
    assert (ask(view).content, replayed(ask(view))) == (b"again", True)


@pytest.mark.parametrize("noticed", [False, True])
def test_a_lost_lease_forgets_nothing(new_store, noticed):
    """Whether the renewal notices that the lease is lost or not, a repeat is refused, and the answer is stored."""
    calls = []

    def view(_request):
        calls.append(1)
        if len(calls) == 1:
            (mine,) = set(background.renewals) - others
            locks["default"].force_release(locks["default"].held()[0].name)
            if noticed:
                known = lambda: {**background.renewals, **background.orphans}  # noqa: E731
                poll(lambda: mine not in known(), timeout=60, what="the end of the renewal")
            assert code(ask(decorated)) == (409, "idempotency-outcome-unknown")
        return HttpResponse(b"done")

    decorated, others = idempotent(**new_store("default"), ttl=6)(view), set(background.renewals)
    assert ask(decorated).content == b"done"
    assert replayed(ask(decorated))
    assert calls == [1]


@pytest.mark.parametrize("kind", ["default", "memory"])
@pytest.mark.parametrize("acquired", ["idempotency:", "stock"])
def test_interrupted_before_the_view(new_store, kind, acquired):
    """After an interrupt between the acquire of a lock and the view, a repeat runs the view."""

    def interrupt(event, **_):
        if event.name.startswith(acquired):
            raise KeyboardInterrupt

    view = idempotent(**new_store(kind))(locked_view("stock")(lambda _request: HttpResponse(b"done")))
    lock_acquired.connect(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            ask(view)
    finally:
        lock_acquired.disconnect(interrupt)
    poll(lambda: ask(view).status_code != 409, timeout=60, what="a release")
    assert replayed(ask(view))


def test_an_answer_is_kept_from_its_end_on(new_store, redis_server):
    """The answer of a view that runs for longer than `keep` is stored."""

    def view(_request):
        with redis_server.client() as redis:
            redis.delete(*redis.keys("*:answer"))
        return HttpResponse(b"done")

    view = idempotent(**new_store("default"))(view)
    assert ask(view).content == b"done"
    assert replayed(ask(view))
    assert code(ask(view, {"other": 1})) == (422, "idempotency-key-reused")


def test_store_is_down(stores):
    calls = []
    answer = ask(idempotent(using="broken")(calls.append))
    assert code(answer) == (503, "idempotency-store-unavailable")
    assert int(answer["Retry-After"]) > 0
    assert calls == []


def test_store_goes_down_in_between(settings, own_redis):
    server = own_redis()
    settings.REDLOCK = {"default": redis_entry(server.url)}

    def view(_request):
        server.kill()
        return HttpResponse(b"done")

    try:
        assert ask(idempotent()(view)).content == b"done"
    finally:
        event_queue.flush()
        locks.reset()


def test_an_extension_in_flight_does_not_lose_the_answer(proxy, redis_server, unique):
    """Neither release nor renewal gets a reply: the release in the background stores the answer."""
    backend = RedisBackend(proxy.url, node_timeout=2)
    lock = request_lock(backend, Entry(unique, "f", "POST /pay", 60), None)
    assert backend.drive(lock.begin_flow()) is None
    hold, mine = lock.hold, lock.token.encode()
    extension = hold.begin_renewal()
    proxy.drop("requests")
    lock.running.answer = b"done"
    with pytest.raises(LockUnavailable):
        backend.drive(lock.release_flow())
    hold.on_extended(extension, Fault(TimeoutError()))
    proxy.restore()
    poll(lambda: mine not in background.orphans, timeout=60, what="a release")
    with redis_server.client() as redis:
        assert redis.hget(lock.keys.lock + b":answer", "answer") == b"done"
    backend.close()


def test_several_nodes(settings):
    """A backend that can't run a script on both lock and record is refused by name."""
    nodes = [f"redis://127.0.0.1:{port}/0" for port in (1, 2, 3)]
    settings.REDLOCK = {"default": entry_of("redlock.RedlockBackend", nodes)}
    with pytest.raises(LockNotSupported, match="RedlockBackend"):
        ask(idempotent()(lambda _request: HttpResponse()))
    locks.reset()


# ── other servers, and tests of users ────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["cluster", "quarantine", "override"])
def test_other_stores(kind, settings, request, stores):
    """The decorator works on a Redis Cluster, under quarantine, and with `override_locks`."""
    entry = dict(settings.REDLOCK["default"])
    if kind == "cluster":
        entry["LOCATION"] = request.getfixturevalue("cluster").url
    if kind == "quarantine":
        entry["OPTIONS"] = {**entry["OPTIONS"], "quarantine": True}
    settings.REDLOCK = {"default": entry}
    locks["default"].arm()
    view = idempotent()(lambda _request: HttpResponse(b"done"))
    with override_locks() if kind == "override" else contextlib.nullcontext():
        assert [replayed(ask(view)) for _ in range(2)] == [False, True]
        assert code(ask(view, {"other": 1})) == (422, "idempotency-key-reused")
    locks.reset()
