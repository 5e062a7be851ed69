"""Flows are generators that yield requests. Here are the requests, Lua scripts, replies, and drivers of flows."""
