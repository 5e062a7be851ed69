"""Local queues: the threads and tasks of one process that wait for the same lock.

Only the leader, the first of them, waits in the store.
"""
