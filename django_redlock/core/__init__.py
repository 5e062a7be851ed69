"""Algorithms and handles. Uses the standard library only."""

from . import uwsgi_fork  # noqa: F401  (runs the handlers of `fork` after forks by uWSGI, too)
