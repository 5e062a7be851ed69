"""A shop with a flash sale: few items and many concurrent buyers."""
