"""Nodes at a fixed address, behind Sentinels and in a Redis Cluster. Each node finds the server that serves a key."""

from .cluster import ClusterNode, Redirection
from .fixed_address import DirectNode
from .sentinel import SentinelNode

__all__ = ["ClusterNode", "DirectNode", "Redirection", "SentinelNode"]
