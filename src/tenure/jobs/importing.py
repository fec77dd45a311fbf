"""Imports an application only to look at its definitions: nothing starts, and nothing asks the database.

`tenure check` and `tenure diff` do this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tenure.errors import ConfigurationError

_only_looking = False


@contextmanager
def only_looking() -> Iterator[None]:
    """Until the end of the block schedulers do not start, and their operations and queries are refused."""
    global _only_looking  # noqa: PLW0603 - it is about the process
    _only_looking = True
    try:
        yield
    finally:
        _only_looking = False


def is_only_looked_at() -> bool:
    """True while the application is imported only to look at it."""
    return _only_looking


def refuse_to_ask() -> None:
    """Refuse to ask the database while the application is imported only to look at it."""
    if _only_looking:
        raise ConfigurationError(
            "the application asks the database of its scheduler while it is imported. Do that in a function, or below "
            "if __name__ == '__main__'."
        )
