"""The last hour of each lock: counters by the minute, and where they are kept."""
