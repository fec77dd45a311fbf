"""Real servers, real processes, broken networks and wrong clocks, for tests and benchmarks."""
