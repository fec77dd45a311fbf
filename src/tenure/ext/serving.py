"""Starts the scheduler in processes that serve requests.

A web application is also imported by commands, reloaders and masters that fork; those must not run jobs.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable
from types import FrameType

from tenure.errors import StoreUnavailable
from tenure.scheduler import Scheduler
from tenure.util.durations import Duration

logger = logging.getLogger("tenure")

AGAIN = 5.0
"""Seconds between two attempts to start while the database does not answer."""
DEVELOPING = 1.0
"""Seconds that a development server waits for running jobs before it reloads the program."""


def take_part(scheduler: Scheduler, drain: Duration | None = None) -> None:
    """Start, and stop when the process ends.

    If the database is away, the program serves anyway and the start is retried.
    """
    atexit.register(scheduler.stop, drain)
    if not _tried(scheduler):
        threading.Thread(target=_try_until_started, args=(scheduler,), name="tenure-start", daemon=True).start()


def under_gunicorn() -> bool:
    """True in gunicorn's processes, master or worker."""
    return "gunicorn.arbiter" in sys.modules and _called_from(lambda frame: _in(frame, "gunicorn."))


def when_gunicorn_serves(begin: Callable[[], None]) -> None:
    """Begin now in a worker that loads the program; else (`--preload`) in every worker that the master forks."""
    if _called_from(lambda frame: _in(frame, "gunicorn.workers.")):
        begin()
        return

    green = _green()

    def forked() -> None:
        """Called in the child inside `os.fork`.

        Later the worker sets its user and signals, and then loads the program.
        """
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - there is no other way to know which code forks
        while frame is not None and _in(frame, "gevent."):
            frame = frame.f_back
        worker = None if frame is None else frame.f_locals.get("worker")
        if (
            frame is not None
            and worker is not None
            and _in(frame, "gunicorn.arbiter")
            and frame.f_code.co_name == "spawn_worker"
        ):
            load = worker.load_wsgi

            def load_and_begin() -> None:
                load()
                if _green() == green:
                    begin()
                else:  # threads and locks made before that would deadlock
                    logger.error(
                        "gevent replaced threads after this program was loaded (--preload), so no jobs run here. "
                        "Remove --preload, or call gevent.monkey.patch_all() at the top of gunicorn.conf.py.",
                        extra={"action": "not_started"},
                    )

            worker.load_wsgi = load_and_begin

    os.register_at_fork(after_in_child=forked)


def called_from(*modules: str) -> bool:
    """True if one of these modules is on the call stack."""
    return _called_from(lambda frame: frame.f_globals.get("__name__") in modules)


def _green() -> bool:
    """True if gevent has replaced threads by greenlets."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def _called_from(found: Callable[[FrameType], bool]) -> bool:
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        if found(frame):
            return True
        frame = frame.f_back
    return False


def _in(frame: FrameType, prefix: str) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(prefix)


def _tried(scheduler: Scheduler) -> bool:
    try:
        scheduler.start()
    except StoreUnavailable as error:
        # The message says it all: no traceback.
        logger.error("%s Trying again in %g s.", error, AGAIN, extra={"action": "not_started"})  # noqa: TRY400
        return False
    return True


def _try_until_started(scheduler: Scheduler) -> None:
    pause = threading.Event()
    while not pause.wait(AGAIN) and not _tried(scheduler):
        pass
