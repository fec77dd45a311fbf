"""Small tools that know nothing of jobs or leases."""
