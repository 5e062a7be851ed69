"""The harness of the suite: clients of a lock store, threads and tasks that execute commands, and pytest fixtures.

The modules ``hand_offs``, ``kinds`` and ``periods`` have cases of the suite.
"""
