"""The end of a body: its lease is released, and the message of a call that was put off is handed to the caller."""

from __future__ import annotations

from typing import Any

from ..core.events import logger
from ..core.flow.requests import Flow
from ..core.locks.lock import Lock
from ..errors import LockError
from .body import BodyLock
from .call import Ending


def end_flow(lock: Lock, ending: Ending) -> Flow[bytes | None]:
    """Release the lock of a body. Returns the message of a call that was put off and is to be sent now.

    Errors are logged and not raised, because they must not change the outcome of the task.
    """
    if isinstance(lock, BodyLock):
        lock.ending = ending
    try:
        return (yield from message_flow(lock.release_flow()))
    except LockError as error:
        logger.warning("%s", error)
        return None


def message_flow(flow: Flow[Any]) -> Flow[bytes | None]:
    """Run ``flow``, which ends a body. Returns the message of a call that was put off and is to be sent now.

    Scripts that end a body reply ``[1, message]`` in place of 1. An error after such a reply is logged and not raised.
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
        if message is None:
            raise
        logger.warning("%s", error)
        return message
    finally:
        flow.close()
