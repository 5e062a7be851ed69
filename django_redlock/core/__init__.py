"""Lock algorithms and lock handles. This package uses only the standard library."""
