"""The record of a task's lock, in Redis or in memory. It lists the queued and the running calls."""
