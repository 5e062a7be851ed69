"""Decorators that hold a lock during a call of a function or a view."""

from __future__ import annotations

from .functions import locked
from .views import LockedRequest, StripedRequest, locked_view

__all__ = ["LockedRequest", "StripedRequest", "locked", "locked_view"]
