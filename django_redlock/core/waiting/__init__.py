"""Local queues: threads and tasks of one process that wait for the same lock queue behind one leader."""
