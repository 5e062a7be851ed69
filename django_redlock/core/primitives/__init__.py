"""The kinds of locks: the requests for the scripts of each."""
