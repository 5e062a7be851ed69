"""Real servers and real processes for tests: each starts on free loopback ports, and leaves nothing behind."""
