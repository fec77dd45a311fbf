"""Being a node: the threads that keep a lease, stand in elections and notice the death of other nodes."""
