"""tenure in Flask.

scheduler = Scheduler("postgresql:///app")

def create_app() -> Flask:
    app = Flask(__name__)
    init_app(app, scheduler)
    return app
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any

import click
from flask import Flask
from flask.cli import ScriptInfo, run_command
from flask.helpers import get_debug_flag
from werkzeug.serving import is_running_from_reloader

from tenure.ext.serving import DEVELOPING, take_part, under_gunicorn, when_gunicorn_serves
from tenure.ext.wrapping import put_around
from tenure.scheduler import Scheduler


def init_app(app: Flask, scheduler: Scheduler, *, start: bool = True) -> None:
    """Run jobs in the application context, in every process that serves; never in other `flask` commands.

    Under `flask run`, `app.run()` and gunicorn the scheduler starts when the process begins to serve; under other
    servers with the first request, unless `app.testing`. `start=False` leaves the start to you.
    """
    put_around(scheduler, app.app_context)
    app.extensions["tenure"] = scheduler
    if not start:
        return
    context = click.get_current_context(silent=True)
    if context is not None and context.find_object(ScriptInfo) is not None:
        if context.command is run_command and _serves(context.params["reload"]):
            take_part(scheduler, DEVELOPING)
    elif under_gunicorn():
        when_gunicorn_serves(lambda: take_part(scheduler))
    else:
        begin = _once(functools.partial(take_part, scheduler))
        _at_run(app, begin)
        _at_first_request(app, begin)


def _serves(reload: bool | None) -> bool:
    """True in the process that serves: the reloader runs the program in two processes, and its child serves."""
    return is_running_from_reloader() or not (get_debug_flag() if reload is None else reload)


def _once(begin: Callable[..., None]) -> Callable[..., None]:
    mutex, left = threading.Lock(), [begin]

    def first(*args: Any) -> None:
        with mutex:
            while left:
                left.pop()(*args)

    return first


def _at_run(app: Flask, begin: Callable[..., None]) -> None:
    run = app.run

    @functools.wraps(run)
    def run_and_begin(
        host: str | None = None, port: int | None = None, debug: bool | None = None, *args: Any, **options: Any
    ) -> None:
        if _serves(options.get("use_reloader", app.debug if debug is None else debug)):
            begin(DEVELOPING)
        run(host, port, debug, *args, **options)

    app.run = run_and_begin  # type: ignore[method-assign]


def _at_first_request(app: Flask, begin: Callable[..., None]) -> None:
    serve = app.wsgi_app

    def begin_and_serve(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if not app.testing:
            begin()
        return serve(environ, start_response)

    app.wsgi_app = begin_and_serve  # type: ignore[method-assign]
