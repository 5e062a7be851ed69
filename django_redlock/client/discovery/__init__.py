"""Nodes (a fixed address, a master behind Sentinels, or a Cluster): each node finds the server that serves a key."""

from .cluster import ClusterNode
from .fixed_address import DirectNode
from .redirection import Redirection
from .sentinel import SentinelNode

__all__ = ["ClusterNode", "DirectNode", "Redirection", "SentinelNode"]
