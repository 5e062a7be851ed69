"""Decorators that hold a lock during a call of a function or a view."""

from __future__ import annotations

from .functions import locked
from .idempotent import IdempotentRequest, idempotent
from .views import LockedRequest, StripedRequest, locked_view

__all__ = ["IdempotentRequest", "LockedRequest", "StripedRequest", "idempotent", "locked", "locked_view"]
