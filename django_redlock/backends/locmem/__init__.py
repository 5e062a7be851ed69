"""A backend that keeps locks in the memory of one process."""

from .backend import LocMemBackend

__all__ = ["LocMemBackend"]
