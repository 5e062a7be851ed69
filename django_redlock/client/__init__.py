"""Sends requests to Redis servers and reads the replies. No module of this package depends on locks."""
