"""Sends one request to all nodes of a quorum, and retries releases that failed on a node."""
