"""Bugs put back on purpose: each must be caught."""
