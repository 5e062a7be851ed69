"""Background work on leases: extend them before they end, and release those that nobody holds any more."""

from .registry import renewal
from .work import SLACK, Orphan

__all__ = ["SLACK", "Orphan", "renewal"]
