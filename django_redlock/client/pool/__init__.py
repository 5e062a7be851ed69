"""Pools of connections to one server. The connections are redis-py's, with deadlines for connecting and for replies."""

from .borrowed_pool import AllInUse, BorrowedPool, LimitedPool
from .connection_kinds import portable_settings, socket_of
from .server_pool import ServerPool

__all__ = ["AllInUse", "BorrowedPool", "LimitedPool", "ServerPool", "portable_settings", "socket_of"]
