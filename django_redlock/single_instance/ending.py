"""Ends a task's body: releases its lease, and returns the message of a call that waits for the end of the body.

If the store refuses a call at its start, a worker can put the call off: the store keeps the call's message until a body
ends. The process that has ended the body then sends the message.
"""

from __future__ import annotations

from typing import Any

from ..core.events import logger
from ..core.flow.requests import Flow
from ..core.locks.lock import Lock
from ..errors import LockError
from .body import BodyLock
from .call import Ending


def end_flow(lock: Lock, ending: Ending) -> Flow[bytes | None]:
    """Return the flow that releases the lock of a task's body, as `message_flow` runs it.

    ``ending``: the effect on the record of the task.
    """
    if isinstance(lock, BodyLock):
        lock.ending = ending
    return message_flow(lock.release_flow())


def message_flow(flow: Flow[Any]) -> Flow[bytes | None]:
    """Run ``flow``, which ends a task's body. Returns the message of another call that waited for the end of the body.

    The caller must send this message now. Returns ``None`` if no call waited. The script that ends the body may reply
    ``[1, message]`` in place of 1. This function keeps the message, and passes 1 to ``flow``. A ``LockError`` is logged
    and not raised, because it must not change the outcome of the task, and the message must not be lost.
    """
    message: bytes | None = None
    try:
        request = next(flow)
        while True:
            reply = yield request
            if isinstance(reply, list) and reply[:1] == [1] and isinstance(reply[-1], bytes):
                message, reply = reply[1], 1
            request = flow.send(reply)
    except StopIteration:
        return message
    except LockError as error:
        logger.warning("%s", error)
        return message
    finally:
        flow.close()
