"""Locks around functions and views."""

from __future__ import annotations

from .functions import locked
from .views import locked_view

__all__ = ["locked", "locked_view"]
