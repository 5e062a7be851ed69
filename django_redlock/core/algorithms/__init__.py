"""The algorithms: one node, a Redis Cluster, a majority of nodes (Redlock), a primary with replicas."""
