"""A worker's request of a task's own, as Celery's documentation has it."""

from __future__ import annotations

from celery.worker.request import Request


class OwnRequest(Request):
    """One that is like any other."""
