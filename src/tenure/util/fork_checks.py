"""Refuses forks that a started node would not survive."""

from __future__ import annotations

import sys

from tenure.errors import ConfigurationError


def refuse_before_fork(what: str) -> None:
    """Refuse to start in a uWSGI process that is about to fork its workers.

    It forks in C, while our threads may hold Python's locks; the workers would wait for threads that they do not have.
    Every other fork is noticed, and survived.
    """
    uwsgi = sys.modules.get("uwsgi")
    if uwsgi is None or not hasattr(uwsgi, "worker_id"):
        return
    if uwsgi.worker_id() == 0 and (uwsgi.masterpid() or uwsgi.numproc > 1):
        raise ConfigurationError(
            f"{what} cannot be started yet: uWSGI has loaded this program before it forks its workers, and they would "
            "hang. Set lazy-apps = true, or call start() in a function under @uwsgidecorators.postfork."
        )
