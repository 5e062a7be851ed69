"""Simulates the real flows and the real Lua scripts under random faults in virtual time."""
