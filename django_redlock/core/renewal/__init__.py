"""Background work on leases: extends leases before they end, and releases claims that no caller releases any more."""
