"""Bytes out, replies in: the one step that exists in two colours."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from redis import ConnectionError as RedisConnectionError
from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from ..core.pulse import Moment, pulse
from ..core.replies import Nonsense
from ..core.requests import Fault, Run
from .limits import Limit
from .nodes import Node
from .patience import answers, timed_out
from .peeking import numbers, readable
from .routes import Route, socket_of
from .wire import spelled_out, words

# An idle Redis looks at the time limits of blocked clients ten times a second only. Whatever arrives makes it look.
NUDGE = words(b"PING")
GRACE = 0.002
CONFIRMED = len(b":1700000000000000\r\n:1\r\n")  # bytes of the shortest answer that grants and confirms
ELSEWHERE = AskError, ClusterDownError, ReadOnlyError, TryAgainError  # said by a server that isn't the right one (now)
NOT_SERVING = ClusterDownError, ReadOnlyError  # said by one that has lost its place, or the others
LINGER = 60.0  # seconds for which a connection is kept for the release of what was asked for on it


class Exchange(NamedTuple):
    """Send ``payload``, read ``replies`` answers. ``block``: seconds that the server may take on purpose.

    ``blocks``: the number of the first answer for which it may. ``enough``: whether the answers so far make the others
    superfluous; the connection is then given up. ``woken``: to the letter, the first answer when it came before that.
    """

    node: Node
    key: bytes | None
    payload: bytes
    replies: int = 1
    block: float = 0.0
    undoing: Callable[[], Run] | None = None
    route: Route | None = None
    enough: Callable[[list[Any]], bool] | None = None
    blocks: int = 0
    woken: bytes = b""


def fault(node: Node, error: Exception, connected: bool = False, where: str = "") -> Fault:
    """No usable answer.

    It is worth another try at once when the connection turned out to be closed, or when the server is a replica by now
    and the node may know a newer master.
    """
    late = timed_out(error)
    closed = connected and type(error) is RedisConnectionError and not late
    if late:
        error = _because(error, TimeoutError("no answer in time"))
    if "unauthenticated" in str(error) or "NOAUTH" in str(error):
        # Redis takes a request as long as ours for an attack before it knows us: that tells nobody what is missing.
        error = _because(error, AuthenticationError("it wants a password, and LOCATION has none"))
    if not connected and isinstance(error.__cause__, ConnectionResetError | BrokenPipeError):
        # It said why before it hung up; that is lost where we had written by then, as asyncio does.
        error = _because(error, RedisConnectionError("it hung up at once, as one does that has reached its maxclients"))
    if "-READONLY" in str(error):  # said within a script, by servers before 7: redis-py does not know it
        error = _because(error, ReadOnlyError(str(error)))
    refused = isinstance(error, ResponseError)
    if not refused or isinstance(error, NOT_SERVING):
        node.rethink(error, where)
    pulse.put(Moment(time.time(), "fault", node.label, reason=_kind_of(error, late)))
    elsewhere = not refused or isinstance(error, ELSEWHERE) or str(error).startswith("BUSY ")
    passing = "UNBLOCKED" in str(error) or (node.fails_over and elsewhere)
    stale, moving = closed or isinstance(error, ReadOnlyError), isinstance(error, TryAgainError)
    _forget_frames(error)
    return Fault(error, stale, where or node.label, passing, moving=moving, refused=refused)


def _forget_frames(error: BaseException | None) -> None:
    """An error is kept for a while, its frames would be with it, and the callers' locks: renewed and nobody's."""
    seen: set[int] = set()  # two may be each other's cause
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__, error = None, error.__cause__ or error.__context__


def judged(node: Node, run: Run, reply: Any, where: str = "") -> Any:
    """A script's answer; a `Fault` for what none of ours says. Nothing is an answer too, but not to an acquire."""
    if type(reply) in (int, list) or (reply is None and run.undoing is None):
        return reply
    return fault(node, Nonsense(reply), where=where)


def _kind_of(error: Exception, late: bool) -> str:
    """What went wrong in one word, for those who count."""
    if late:
        return "timeout"
    kinds = {AuthenticationError: "authentication", ReadOnlyError: "read only", ResponseError: "refused"}
    return next((word for kind, word in kinds.items() if isinstance(error, kind)), "connection")


def _because(cause: Exception, error: Exception) -> Exception:
    error.__cause__ = cause
    return error


def exchange(request: Exchange) -> list[Any] | Fault:
    """Send and receive, blocking."""
    node, key, payload, count, block, undoing, route, enough, blocks, woken = request
    connection, nudged, whole = None, 0, False
    try:
        route = route or node.known(key) or node.find(key)
        if block:
            route = route.for_waiting
        connection = route.take()
        connection.send_packed_command((payload,), check_health=False)
        until = time.monotonic() + block + GRACE if block else 0.0
        replies: list[Any] = []
        sock = socket_of(connection)
        confirmed = blocks and undoing and block >= route.timeout  # an acquire: its time and then WAIT's number
        if not block or confirmed or (woken and readable(sock, block + GRACE)):
            found = numbers(sock, count - bool(woken), woken, CONFIRMED if confirmed else 0)
            if found is not None:
                whole = True
                return [woken, *found] if woken else found
        last = (until or time.monotonic()) + route.timeout  # for all that is to come, and not for each read
        if not (block or enough):
            replies, whole = answers(connection, count, last), True
            return replies
        while len(replies) < count + nudged:
            waits = block and not nudged and len(replies) >= blocks
            if waits and not connection.can_read(max(0.001, until - time.monotonic())):
                connection.send_packed_command((NUDGE,), check_health=False)
                nudged = 1
            replies += answers(connection, 1, last)
            if enough and enough(replies):
                return replies
        whole = True
        return replies[:count]
    except (RedisError, OSError) as error:
        return fault(node, error, connection is not None, route.where if route else "")
    finally:
        if connection is not None and route is not None:
            if whole:
                route.give(connection)
            else:
                route.drop(connection, undoing and spelled_out(undoing()))


def exchanges(requests: Sequence[Exchange]) -> list[list[Any] | Fault]:
    """`exchange` with several servers at the same time, so that none waits for another."""
    replies: list[Any] = [None] * len(requests)

    def carry_out(index: int) -> None:
        replies[index] = exchange(requests[index])

    threads = []
    for index in range(1, len(requests)):
        thread = threading.Thread(target=carry_out, args=(index,), name="redlock-exchange", daemon=True)
        try:
            thread.start()
            threads.append(thread)
        except RuntimeError:  # there may be no more threads, or the interpreter is shutting down
            carry_out(index)
    if requests:
        carry_out(0)
    for thread in threads:
        thread.join()
    return replies


def _nudge(connection: Any, sent: list[bytes]) -> None:
    sent.append(NUDGE)
    connection._writer.write(NUDGE)


async def aexchange(request: Exchange) -> list[Any] | Fault:
    """Send and receive on the running event loop."""
    node, key, payload, count, block, undoing, route, enough, *_ = request
    connection, whole, timer = None, False, None
    nudges: list[bytes] = []
    try:
        route = route or node.known(key) or await node.afind(key)
        connection = await route.atake()
        async with Limit(block + route.timeout):
            await connection.send_packed_command((payload,), check_health=False)
            if block:
                timer = asyncio.get_running_loop().call_later(block + GRACE, _nudge, connection, nudges)
            replies: list[Any] = []
            while len(replies) < count + len(nudges):
                try:
                    replies.append(await connection.read_response(disable_decoding=True, disconnect_on_error=False))
                except ResponseError as error:
                    replies.append(error.with_traceback(None))  # its frames would hold it, and the callers their locks
                if enough and enough(replies):
                    return replies
        whole = True
        return replies[:count]
    except (RedisError, OSError, ValueError) as error:  # the last: a number that is none
        return fault(node, error, connection is not None, route.where if route else "")
    finally:
        if timer is not None:
            timer.cancel()
        if connection is not None and route is not None:
            if whole:
                await route.agive(connection)
            else:
                await route.adrop(connection, undoing and spelled_out(undoing()))


def later(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Have it done in the background."""
    task = asyncio.create_task(work)
    _background.add(task)  # the loop itself keeps no hold of its tasks
    task.add_done_callback(_background.discard)
    return task


_background: set[asyncio.Task[None]] = set()
