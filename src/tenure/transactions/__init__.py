"""Decisions inside the caller's own transaction: fences (G1), effects (G5), and changes of jobs."""
