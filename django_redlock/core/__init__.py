"""Algorithms and handles. Uses the standard library only."""
