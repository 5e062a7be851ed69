"""Nodes: a fixed address, Sentinel or a Cluster. Each finds the server that serves a key now."""

from .cluster import ClusterNode
from .node import DirectNode, Node
from .redirection import Redirection
from .sentinel import SentinelNode

__all__ = ["ClusterNode", "DirectNode", "Node", "Redirection", "SentinelNode"]
