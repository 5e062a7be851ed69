"""Bytes to and from Redis servers: connections, requests and replies. Nothing here knows what a lock is."""
