"""`make demo`: the shop with everything it needs, and a flash sale over HTTP."""
