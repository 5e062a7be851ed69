"""Nodes: a server at a fixed address, a master behind Sentinels, a Redis Cluster. A node finds the server for a key."""
