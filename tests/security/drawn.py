"""One profile for everything that is drawn: bounded, and the same every time."""

from hypothesis import HealthCheck, settings

bounded = settings(
    max_examples=300, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
