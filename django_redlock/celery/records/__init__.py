"""The record of a task's lock: which calls are queued and which runs, kept in Redis or in memory."""
