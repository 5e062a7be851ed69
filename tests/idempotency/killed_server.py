"""A web server that kills itself (`kill -9`) at any point of a request, and a client that repeats it until an answer.

The server is a real process. Its parent has loaded Django, and forks another one when one has died. A point is a call
or return of a Python or C function, counted by the interpreter.
"""

import contextlib
import http.client
import json
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from django.http import JsonResponse
from django.urls import path

from testproject.processes import Child

LEASE = 0.3  # seconds for which the lock of a dead request stays
DEADLINE = 60.0  # seconds until a client must have its answer


# ── the server ───────────────────────────────────────────────────────────────────────────────


def charge(request):
    """Write a row, and respond with its key."""
    from tests.idempotency.models import Charge

    return JsonResponse({"charge": Charge.objects.create(order=request.idempotency_key).pk}, status=201)


def urlpatterns_for(options: dict[str, Any]) -> list[Any]:
    from django_redlock.decorators import idempotent

    decorator = idempotent(**options, ttl=LEASE, scope=lambda _request: "client")
    return [path("charge", decorator(charge))]


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at(point: int) -> Any:
    """Return a profile function that kills the process at call number `point`, and counts the calls in `calls`."""

    def profile(_frame: Any, _event: str, _argument: Any) -> None:
        profile.calls += 1
        if profile.calls == point:
            kill()

    profile.calls = 0
    return profile


def killing(application: Any) -> Any:
    """The application, which dies where the request says, or responds with the number of points of the request."""

    def call(environ: dict[str, Any], start_response: Any) -> Any:
        started: list[Any] = []
        point = int(environ.get("HTTP_X_KILL_AT", 0))
        profile = kill_at(point)
        sys.setprofile(profile)
        response = application(environ, lambda *given: started.append(given))
        body = b"".join(response)
        response.close()
        sys.setprofile(None)
        if point:
            kill()  # when all is done but the answer
        status, headers = started[0]
        size = ("Content-Length", str(len(body)))  # so that the client notices an answer that is cut off
        start_response(status, [*headers, size, ("X-Points", str(profile.calls))])
        return [body]

    return call


class Handler(WSGIRequestHandler):
    def log_message(self, *_args: Any) -> None:
        """Log nothing."""


def serve(fd: int, config: dict[str, Any]) -> None:
    """Run one process after another that answers requests on the listening socket."""
    import django
    from django.conf import settings
    from django.core.handlers.wsgi import WSGIHandler
    from django.db import connections

    from testproject import settings as base

    names = {name: getattr(base, name) for name in dir(base) if name.isupper()}
    redlock = {"BACKEND": "django_redlock.backends.redis.RedisBackend", "LOCATION": config["redis"]}
    names |= {
        "DATABASES": {"default": config["database"]},
        "REDLOCK": {"default": {**redlock, "OPTIONS": {"node_timeout": 5}}},
        "ROOT_URLCONF": "tests.idempotency.killed_server",
        "MIDDLEWARE": [],
    }
    settings.configure(**names)
    django.setup()
    sys.modules["tests.idempotency.killed_server"] = sys.modules[__name__]
    globals()["urlpatterns"] = urlpatterns_for(config["options"])
    application = killing(WSGIHandler())
    connections.close_all()
    while True:
        if (pid := os.fork()) == 0:
            server = WSGIServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
            server.socket.close()
            server.socket = socket.socket(fileno=fd)
            server.server_name, server.server_port = server.socket.getsockname()
            server.setup_environ()
            server.set_app(application)
            server.serve_forever()
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            raise SystemExit("the server has not been killed, it has ended")


# ── the client ───────────────────────────────────────────────────────────────────────────────


class Reply(NamedTuple):
    status: int
    content: dict[str, Any]
    points: int
    deaths: int = 0


class KilledServer:
    """The server as a child process. `options` are those of `idempotent()`."""

    def __init__(self, directory: Path, redis: str, database: dict[str, Any], options: dict[str, Any]) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.address = self.socket.getsockname()
        fd = self.socket.fileno()
        config = json.dumps({"redis": redis, "database": database, "options": options})
        command = [sys.executable, "-m", "tests.idempotency.killed_server", str(fd), config]
        self.child = Child(command, output=directory / "server.log", pass_fds=[fd])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.child.kill()
        self.socket.close()

    def send(self, key: str, kill_at: int = 0) -> Reply:
        """Send one request. Raises `ConnectionError` or `HTTPException` if the server has died."""
        headers = {"Idempotency-Key": f'"{key}"', "X-Kill-At": str(kill_at)}
        connection = http.client.HTTPConnection(*self.address, timeout=DEADLINE)
        try:
            connection.request("POST", "/charge", b"{}", headers)
            response = connection.getresponse()
            body = response.read()
            if "X-Points" not in response.headers:  # the last of the headers: the answer was cut off before it
                raise http.client.IncompleteRead(body)
            if response.status not in (201, 409, 503):  # 503: the lease has ended before its reply came
                raise AssertionError(f"{key} {kill_at}: {response.status} {body[:2000]!r}")
            return Reply(response.status, json.loads(body), int(response.headers["X-Points"]))
        finally:
            connection.close()

    def repeat(self, key: str, kills: list[int]) -> Reply:
        """Send a request until it is answered. The n-th time, the server dies at the n-th point of `kills`."""
        deadline, deaths, kills = time.monotonic() + DEADLINE, 0, list(kills)
        while True:
            assert self.child.alive, self.child.log()
            assert time.monotonic() < deadline, f"no answer to {key}; {self.child.log()}"
            try:
                reply = self.send(key, kills.pop(0) if kills else 0)
            except (ConnectionError, http.client.HTTPException):
                deaths += 1
                continue
            if reply.status in (201, 409) and reply.content.get("code") != "idempotency-key-in-use":
                return reply._replace(deaths=deaths)
            time.sleep(LEASE / 10)


def play(server: KilledServer, requests: int) -> Iterator[tuple[str, Reply]]:
    """Kill the server at evenly spread points of `requests` requests, and at a random one of the first repeat."""
    server.repeat("first", [])
    with contextlib.suppress(ConnectionError, http.client.HTTPException):
        server.send("second", 1)
    points = server.repeat("third", []).points  # by a process that has just begun, as after each death
    for number in range(requests):
        at = 1 + number * points // requests
        yield f"order-{number}", server.repeat(f"order-{number}", [at, random.randint(1, points)])


def judge(alias: str, replies: dict[str, Reply], in_doubt_allowed: bool) -> None:
    """Compare the responses with the rows: never two charges, never a lost one."""
    from tests.idempotency.models import Charge

    rows: dict[str, list[int]] = {}
    for row in Charge.objects.using(alias).all():
        rows.setdefault(row.order, []).append(row.pk)
    for key, reply in replies.items():
        done = rows.get(key, [])
        assert len(done) <= 1, f"{key} was charged {len(done)} times"
        if reply.status == 201:
            assert [reply.content["charge"]] == done, f"{key} was told of {reply.content}, the row is {done}"
        else:
            assert in_doubt_allowed, f"{key}: {reply}"


if __name__ == "__main__":
    serve(int(sys.argv[1]), json.loads(sys.argv[2]))
