"""The kinds of locks, each with the requests for its scripts."""
