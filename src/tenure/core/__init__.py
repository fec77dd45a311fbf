"""The rules, as pure functions and values: no I/O, no threads, no clock, no randomness."""
