"""The harness of the suite: sync and async clients, actors, fixtures."""
