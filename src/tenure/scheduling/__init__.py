"""Planning and running jobs on a node."""
