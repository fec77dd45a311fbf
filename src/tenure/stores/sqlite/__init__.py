"""The store in a SQLite file: one host, any number of processes."""
