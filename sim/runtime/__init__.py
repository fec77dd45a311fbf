"""Virtual time: processes, threads, hosts and networks that the simulator moves, and production's modules running on
them."""
