"""Sends requests to Redis servers and reads the replies. No module of this package imports a lock (``core.locks``)."""
