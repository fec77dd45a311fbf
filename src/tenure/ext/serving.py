"""Which process serves, and taking part in it. A program is also imported by commands, reloaders and masters that fork: those must not."""

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
"""How long to wait for a database that does not answer."""
DEVELOPING = 1.0
"""How long a development server waits for what runs before it loads the program anew."""


def take_part(scheduler: Scheduler, drain: Duration | None = None) -> None:
    """Start, and stop when the process ends. A database that is away does not keep the program from serving: it is tried again."""
    atexit.register(scheduler.stop, drain)
    if not _tried(scheduler):
        threading.Thread(target=_try_until_started, args=(scheduler,), name="tenure-start", daemon=True).start()


def under_gunicorn() -> bool:
    """In one of gunicorn's processes, master or worker."""
    return "gunicorn.arbiter" in sys.modules and _called_from(lambda frame: _in(frame, "gunicorn."))


def when_gunicorn_serves(begin: Callable[[], None]) -> None:
    """Now, if this is a worker that loads the program; else (`--preload`) in every worker that the master forks."""
    if _called_from(lambda frame: _in(frame, "gunicorn.workers.")):
        begin()
        return

    green = _green()

    def forked() -> None:
        """Called inside `os.fork` of the child; a worker becomes itself (user, signals) later, and then loads the program."""
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - there is no other way to know who forks
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
                else:  # threads and locks from before would wait for each other for ever
                    logger.error(
                        "gevent has replaced threads after this program was loaded (--preload), so that no jobs run here. Leave out --preload, or "
                        "call gevent.monkey.patch_all() at the top of gunicorn.conf.py.",
                        extra={"action": "not_started"},
                    )

            worker.load_wsgi = load_and_begin

    os.register_at_fork(after_in_child=forked)


def called_from(*modules: str) -> bool:
    """One of these modules is on the way here."""
    return _called_from(lambda frame: frame.f_globals.get("__name__") in modules)


def _green() -> bool:
    """Whether gevent has put its greenlets in the place of threads."""
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
        logger.error("%s Trying again in %g s.", error, AGAIN, extra={"action": "not_started"})  # noqa: TRY400 - the sentence says it all
        return False
    return True


def _try_until_started(scheduler: Scheduler) -> None:
    pause = threading.Event()
    while not pause.wait(AGAIN) and not _tried(scheduler):
        pass
