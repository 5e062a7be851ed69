"""The harness of the suite: clients of a lock store, threads and tasks that execute commands, and pytest fixtures."""
