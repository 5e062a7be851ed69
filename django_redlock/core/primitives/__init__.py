"""The kinds of locks (primitives). Each builds the requests that run its Lua scripts."""
