"""A task with a custom request class, as Celery's documentation shows it."""

from celery.worker.request import Request


class OwnRequest(Request):
    """A custom request class without changes."""
