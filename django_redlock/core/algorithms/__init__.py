"""Whose word counts: one node, a cluster, a majority, a primary with its replicas."""
