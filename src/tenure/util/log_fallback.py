"""Where the log goes if the application has not configured logging: to stderr, with time, level and name.

Python itself prints such records of WARNING and above, without any of these. This handler prints them instead, and is
silent as soon as any other handler would get them.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tenure.util.printable import spelt

_LOGGER = logging.getLogger("tenure")
_MUTEX = threading.Lock()


class _Fallback(logging.Handler):
    """What Python's handler of last resort would print."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if others_listen() or sys.stderr is None:
            return
        try:
            sys.stderr.write(spelt(self.format(record)) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):  # it was closed
            pass
        except Exception:
            self.handleError(record)


_FALLBACK = _Fallback()


def others_listen() -> bool:
    """Whether the application has configured logging: another handler gets our records, if only to drop them."""
    logger: logging.Logger | None = _LOGGER
    while logger is not None:
        if any(handler is not _FALLBACK for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def install() -> None:
    """Print warnings and errors from now on, unless the application configures logging."""
    with _MUTEX:
        if _FALLBACK not in _LOGGER.handlers:
            _LOGGER.addHandler(_FALLBACK)


@contextmanager
def verbose() -> Iterator[None]:
    """Print what is said at INFO, too, unless the application has configured logging."""
    install()
    if others_listen():
        yield
        return
    before = _FALLBACK.level, _LOGGER.level
    _FALLBACK.setLevel(logging.INFO)
    if _LOGGER.level == logging.NOTSET:
        _LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        _FALLBACK.setLevel(before[0])
        _LOGGER.setLevel(before[1])
