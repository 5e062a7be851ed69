"""Leader election: of several candidates, the one that holds a lock leads."""
