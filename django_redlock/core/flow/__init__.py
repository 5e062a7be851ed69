"""The language between algorithms and I/O: requests, replies, scripts, and the two drivers."""
