"""Nodes: a fixed address, a master that Sentinels name, a Redis Cluster. Each finds the server that serves a key."""
