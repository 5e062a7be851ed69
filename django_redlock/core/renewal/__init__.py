"""Background work on leases: extends leases before they end, and releases claims that no caller could release."""
