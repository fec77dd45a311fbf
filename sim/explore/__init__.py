"""Where histories come from: drawn faults, directed schedules and searches through all orders."""
