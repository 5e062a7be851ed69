"""The lock algorithms: one node, a Redis Cluster, a majority of nodes (Redlock), and a primary with replicas."""
