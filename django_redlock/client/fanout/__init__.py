"""One request to all nodes of a quorum: threads and asyncio, and the releases that a node has missed."""
