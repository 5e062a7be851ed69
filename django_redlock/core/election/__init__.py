"""Leader election: of several candidates, the one that holds the lock leads."""
