"""Flows (generators that yield requests): the requests, Lua scripts and replies, and the drivers that run flows."""
