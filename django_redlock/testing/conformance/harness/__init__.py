"""What the cases of the suite stand on: sync and async clients, actors, fixtures."""
