"""What the locks of one process share: forks, background threads, mutexes, and the calling thread or task."""
