"""How this package compares with its peers: ratios of what runs in one go, round by round, never times."""
