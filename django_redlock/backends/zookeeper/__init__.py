"""A backend that keeps locks in ZooKeeper."""

from .backend import ZooKeeperBackend

__all__ = ["ZooKeeperBackend"]
