"""Background work on leases: extends leases before they end, releases what no caller released, and reports losses."""
