"""Compares this package with other libraries. Results are ratios of interleaved rounds, never times."""
