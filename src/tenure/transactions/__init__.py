"""What happens inside the caller's own transaction: fences, effects, and changes of jobs."""
