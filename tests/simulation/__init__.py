"""The real flows and the real Lua under random faults, in virtual time."""
