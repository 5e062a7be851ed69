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

from ..core.event_queue import EventRecord, event_queue
from ..core.flow.replies import UnreadableReply
from ..core.flow.requests import EvalScript, Fault
from .deadlines import read_replies, timed_out
from .discovery import Node
from .fast_reply import read_numbers, wait_readable
from .loop_deadlines import LoopDeadline
from .pool import ServerPool, socket_of
from .resp import encode_command, encode_eval

# An idle Redis looks at the time limits of blocked clients ten times a second only. Whatever arrives makes it look.
POKE = encode_command(b"PING")
BLOCK_GRACE = 0.002
CONFIRMED_BYTES = len(b":1700000000000000\r\n:1\r\n")  # bytes of the shortest answer that grants and confirms
WRONG_SERVER = (
    AskError,
    ClusterDownError,
    ReadOnlyError,
    TryAgainError,
)  # said by a server that isn't the right one (now)
NOT_SERVING = ClusterDownError, ReadOnlyError  # said by one that has lost its place, or the others
RELEASE_WINDOW = 60.0  # seconds for which a connection is kept for the release of what was asked for on it


class Request(NamedTuple):
    """Send ``payload``, read ``replies`` answers. ``block``: seconds that the server may take on purpose.

    ``blocks``: the number of the first answer for which it may. ``enough``: whether the answers so far make the others
    superfluous; the connection is then given up. ``woken``: to the letter, the first answer when it came before that.
    """

    node: Node
    key: bytes | None
    payload: bytes
    replies: int = 1
    block: float = 0.0
    compensation: Callable[[], EvalScript] | None = None
    pool: ServerPool | None = None
    enough: Callable[[list[Any]], bool] | None = None
    blocks: int = 0
    woken: bytes = b""


def fault_of(node: Node, error: Exception, connected: bool = False, where: str = "") -> Fault:
    """No usable answer.

    It is worth another try at once when the connection turned out to be closed, or when the server is a replica by now
    and the node may know a newer master.
    """
    late = timed_out(error)
    closed = connected and type(error) is RedisConnectionError and not late
    if late:
        error = _caused_by(error, TimeoutError("no answer in time"))
    if "unauthenticated" in str(error) or "NOAUTH" in str(error):
        # Redis takes a request as long as ours for an attack before it knows us: that tells nobody what is missing.
        error = _caused_by(error, AuthenticationError("it wants a password, and LOCATION has none"))
    if not connected and isinstance(error.__cause__, ConnectionResetError | BrokenPipeError):
        # It said why before it hung up; that is lost where we had written by then, as asyncio does.
        error = _caused_by(
            error, RedisConnectionError("it hung up at once, as one does that has reached its maxclients")
        )
    if "-READONLY" in str(error):  # said within a script, by servers before 7: redis-py does not know it
        error = _caused_by(error, ReadOnlyError(str(error)))
    refused = isinstance(error, ResponseError)
    if not refused or isinstance(error, NOT_SERVING):
        node.invalidate(error, where)
    event_queue.record(EventRecord(time.time(), "fault", node.label, reason=_kind_of(error, late)))
    elsewhere = not refused or isinstance(error, WRONG_SERVER) or str(error).startswith("BUSY ")
    passing = "UNBLOCKED" in str(error) or (node.fails_over and elsewhere)
    stale, moving = closed or isinstance(error, ReadOnlyError), isinstance(error, TryAgainError)
    _forget_frames(error)
    return Fault(error, stale, where or node.label, passing, migrating=moving, refused=refused)


def _forget_frames(error: BaseException | None) -> None:
    """An error is kept for a while, its frames would be with it, and the callers' locks: renewed and nobody's."""
    seen: set[int] = set()  # two may be each other's cause
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__, error = None, error.__cause__ or error.__context__


def check_reply(node: Node, run: EvalScript, reply: Any, where: str = "") -> Any:
    """A script's answer; a `Fault` for what none of ours says. Nothing is an answer too, but not to an acquire."""
    if type(reply) in (int, list) or (reply is None and run.compensation is None):
        return reply
    return fault_of(node, UnreadableReply(reply), where=where)


def _kind_of(error: Exception, late: bool) -> str:
    """What went wrong in one word, for those who count."""
    if late:
        return "timeout"
    kinds = {AuthenticationError: "authentication", ReadOnlyError: "read only", ResponseError: "refused"}
    return next((word for kind, word in kinds.items() if isinstance(error, kind)), "connection")


def _caused_by(cause: Exception, error: Exception) -> Exception:
    error.__cause__ = cause
    return error


def send(request: Request) -> list[Any] | Fault:
    """Send and receive, blocking."""
    node, key, payload, count, block, undoing, route, enough, blocks, woken = request
    connection, nudged, whole = None, 0, False
    try:
        route = route or node.known_pool(key) or node.find_pool(key)
        if block:
            route = route.blocking_pool
        connection = route.checkout()
        connection.send_packed_command((payload,), check_health=False)
        until = time.monotonic() + block + BLOCK_GRACE if block else 0.0
        replies: list[Any] = []
        sock = socket_of(connection)
        confirmed = blocks and undoing and block >= route.timeout  # an acquire: its time and then WAIT's number
        if not block or confirmed or (woken and wait_readable(sock, block + BLOCK_GRACE)):
            found = read_numbers(sock, count - bool(woken), woken, CONFIRMED_BYTES if confirmed else 0)
            if found is not None:
                whole = True
                return [woken, *found] if woken else found
        last = (until or time.monotonic()) + route.timeout  # for all that is to come, and not for each read
        if not (block or enough):
            replies, whole = read_replies(connection, count, last), True
            return replies
        while len(replies) < count + nudged:
            waits = block and not nudged and len(replies) >= blocks
            if waits and not connection.can_read(max(0.001, until - time.monotonic())):
                connection.send_packed_command((POKE,), check_health=False)
                nudged = 1
            replies += read_replies(connection, 1, last)
            if enough and enough(replies):
                return replies
        whole = True
        return replies[:count]
    except (RedisError, OSError) as error:
        return fault_of(node, error, connection is not None, route.where if route else "")
    finally:
        if connection is not None and route is not None:
            if whole:
                route.checkin(connection)
            else:
                route.discard(connection, undoing and encode_eval(undoing()))


def send_all(requests: Sequence[Request]) -> list[list[Any] | Fault]:
    """`send` with several servers at the same time, so that none waits for another."""
    replies: list[Any] = [None] * len(requests)

    def carry_out(index: int) -> None:
        replies[index] = send(requests[index])

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


def _poke(connection: Any, sent: list[bytes]) -> None:
    sent.append(POKE)
    connection._writer.write(POKE)


async def asend(request: Request) -> list[Any] | Fault:
    """Send and receive on the running event loop."""
    node, key, payload, count, block, undoing, route, enough, *_ = request
    connection, whole, timer = None, False, None
    nudges: list[bytes] = []
    try:
        route = route or node.known_pool(key) or await node.afind_pool(key)
        connection = await route.acheckout()
        async with LoopDeadline(block + route.timeout):
            await connection.send_packed_command((payload,), check_health=False)
            if block:
                timer = asyncio.get_running_loop().call_later(block + BLOCK_GRACE, _poke, connection, nudges)
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
        return fault_of(node, error, connection is not None, route.where if route else "")
    finally:
        if timer is not None:
            timer.cancel()
        if connection is not None and route is not None:
            if whole:
                await route.acheckin(connection)
            else:
                await route.adiscard(connection, undoing and encode_eval(undoing()))


def run_in_background(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Have it done in the background."""
    task = asyncio.create_task(work)
    _background.add(task)  # the loop itself keeps no hold of its tasks
    task.add_done_callback(_background.discard)
    return task


_background: set[asyncio.Task[None]] = set()
