"""Plays that hurt real clusters of schedulers for longer than tests may take."""
