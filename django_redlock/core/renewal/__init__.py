"""Background work on leases: extends leases before they end, and releases claims whose caller has gone."""
