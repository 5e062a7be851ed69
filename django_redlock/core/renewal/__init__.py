"""Background work on leases: extends leases before they end, and releases claims for callers that could not."""
