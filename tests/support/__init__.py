"""Real servers and real processes for tests. Each starts on free loopback ports and leaves nothing behind."""
