"""Leader election: the candidate that holds a lock is the leader."""
