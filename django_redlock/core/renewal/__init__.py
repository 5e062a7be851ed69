"""Background work on leases: extends leases before they end, and releases claims whose caller has gone."""

from .registry import renewal
from .work import SLACK, Orphan

__all__ = ["SLACK", "Orphan", "renewal"]
