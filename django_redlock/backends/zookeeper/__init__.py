"""Locks in ZooKeeper."""

from .backend import ZooKeeperBackend

__all__ = ["ZooKeeperBackend"]
