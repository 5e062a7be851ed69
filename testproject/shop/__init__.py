"""A shop that holds a flash sale: few items, many buyers, all at once."""
