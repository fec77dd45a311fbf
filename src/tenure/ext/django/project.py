"""The scheduler of a Django project, on the project's own database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.core import mail
from django.db import close_old_connections, connections

from tenure.errors import ConfigurationError
from tenure.scheduler import Scheduler
from tenure.scheduling.service import SchedulerService
from tenure.stores import Session, Store

OURS = {"URL", "DATABASE", "SERVE"}
"""Settings in `TENURE` besides the options of `Scheduler`, which are in capitals: {"RELEASE": 3, "TTL": "10s"}."""


class ProjectService(SchedulerService):
    """Its store is one of the project's databases, looked up at the first use: tests have their own databases."""

    @property
    def store(self) -> Store:
        if self._store is None and self._url is None:
            self._url = url_of(tenure_setting().get("DATABASE", "default"))
        return super().store

    @contextmanager
    def session(self) -> Iterator[Session]:
        with super().session() as session:
            yield session
        if hasattr(mail, "outbox"):  # a test: Django drops its database afterwards, so stay disconnected
            self.close()


class ProjectScheduler(Scheduler):
    """A scheduler on one of the project's databases."""

    _service_type = ProjectService


def tenure_setting() -> dict[str, Any]:
    """The `TENURE` setting."""
    return dict(getattr(settings, "TENURE", {}))


def url_of(alias: str) -> str:
    """The URL of a database of the project."""
    connection = connections[alias]
    if connection.vendor == "sqlite":
        name = str(connection.settings_dict["NAME"])
        if name == ":memory:" or name.startswith("file:"):
            return f"memory://{alias}"
        return f"sqlite:///{quote(name)}"
    if connection.vendor == "postgresql":
        from psycopg import conninfo, pq

        known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
        given = connection.get_connection_params()
        return conninfo.make_conninfo("", **{key: value for key, value in given.items() if key in known})
    raise ConfigurationError(
        f"database {alias!r} is {connection.display_name}, which tenure does not support. Write one on PostgreSQL or "
        "SQLite: TENURE = {'DATABASE': 'other'}, or TENURE = {'URL': 'postgresql://…'}."
    )


@contextmanager
def fresh_connections() -> Iterator[None]:
    """Close old connections around every body, as Django does around every request."""
    if _on_a_loop():  # the ORM's connections belong to other threads then
        yield
        return
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _made() -> ProjectScheduler:
    words = tenure_setting()
    options = {word.lower(): value for word, value in words.items() if word not in OURS}
    options.setdefault("tz", settings.TIME_ZONE or "UTC")
    return ProjectScheduler(words.get("URL"), **options)


scheduler = _made()
