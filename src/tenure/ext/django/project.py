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
"""What `TENURE` may say beside the options of `Scheduler`, in capitals: {"RELEASE": 3, "TTL": "10s"}."""


class ProjectService(SchedulerService):
    """Its store is one of the project's databases, looked up when it is first used: tests have others."""

    @property
    def store(self) -> Store:
        if self._store is None and self._url is None:
            self._url = url_of(said().get("DATABASE", "default"))
        return super().store

    @contextmanager
    def session(self) -> Iterator[Session]:
        with super().session() as session:
            yield session
        if hasattr(
            mail, "outbox"
        ):  # in tests, at whose end Django drops their database: nothing may be connected to it then
            self.close()


class ProjectScheduler(Scheduler):
    """A scheduler on one of the project's databases."""

    _service_type = ProjectService


def said() -> dict[str, Any]:
    """What the settings say of tenure."""
    return dict(getattr(settings, "TENURE", {}))


def url_of(alias: str) -> str:
    """Where a database of the project is."""
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
        f"database {alias!r} is {connection.display_name}, on which tenure cannot keep its jobs. Name one on PostgreSQL or SQLite: "
        "TENURE = {'DATABASE': 'other'}, or TENURE = {'URL': 'postgresql://…'}."
    )


@contextmanager
def fresh_connections() -> Iterator[None]:
    """Around every body, as Django does around every request."""
    if _on_a_loop():  # the ORM's connections are in other threads then
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
    words = said()
    options = {word.lower(): value for word, value in words.items() if word not in OURS}
    options.setdefault("tz", settings.TIME_ZONE or "UTC")
    return ProjectScheduler(words.get("URL"), **options)


scheduler = _made()
