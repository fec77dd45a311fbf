"""Small tools without knowledge of jobs or leases."""
