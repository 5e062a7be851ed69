"""Finds out whether the message of a scheduled run was sent, if the process died before it recorded the sending."""

from __future__ import annotations

from typing import Any

from ...core.events import logger
from ..missing_messages import BrokerUnreadable, message_ids


def was_sent(app: Any, task_id: str) -> bool:
    """Return whether the task ``task_id`` has a message in a queue or with a worker, or a state in the result store.

    Also returns ``False`` if the broker or the result store can't be read. The caller then sends the message again
    under the same id.
    """
    try:
        return _has_result(app, task_id) or task_id in message_ids(app) or _has_result(app, task_id)
    except BrokerUnreadable as error:
        logger.warning("beat: %s", error)
    except Exception:
        logger.exception("beat: the result store or the broker is unavailable for task %s", task_id)
    return False


def _has_result(app: Any, task_id: str) -> bool:
    try:
        return bool(app.AsyncResult(task_id).state != "PENDING")
    except (AttributeError, NotImplementedError):  # no result store
        return False
