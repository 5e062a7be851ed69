"""The connections to one server: redis-py's own, kept open and bounded in time."""

from .borrowed import AllInUse, BorrowedPool, LimitedPool
from .connection_kinds import portable_settings, socket_of
from .server_pool import ServerPool

__all__ = ["AllInUse", "BorrowedPool", "LimitedPool", "ServerPool", "portable_settings", "socket_of"]
