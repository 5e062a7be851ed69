"""`make demo` starts the shop with all its servers and holds a flash sale over HTTP."""
