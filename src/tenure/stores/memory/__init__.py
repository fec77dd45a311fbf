"""The store in memory: the readable reference, for tests and programs of one process."""
