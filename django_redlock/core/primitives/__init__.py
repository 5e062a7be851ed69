"""What the scripts keep: one class for each kind of lock."""
