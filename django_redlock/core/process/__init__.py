"""Process-wide facilities: forks, background threads, mutexes, the clock, and the calling thread or task."""
