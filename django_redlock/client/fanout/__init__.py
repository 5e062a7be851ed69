"""Sends one request to all nodes of a quorum, and later the releases that a node has missed."""
