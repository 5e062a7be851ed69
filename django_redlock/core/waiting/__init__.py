"""Threads and tasks of one process that wait for the same lock."""
