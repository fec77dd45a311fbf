"""A beat for the entries of django-celery-beat: `celery -A app beat -S tenure.ext.celery.django:DatabaseScheduler`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery.utils.log import get_logger
from django.db import close_old_connections
from django.db.models import F
from django_celery_beat import schedulers
from django_celery_beat.clockedschedule import clocked

from tenure.errors import ConfigurationError
from tenure.ext.celery.beat import Shared
from tenure.run import Run
from tenure.triggers import Trigger, at

logger = get_logger("celery.beat")


class DatabaseScheduler(Shared, schedulers.DatabaseScheduler):  # type: ignore[misc]
    """Entries from Django's tables, followed as they change.

    `start_time`, `expires`, `enabled` and `one_off` are read before each message.
    """

    _logged: Mapping[str, str] = {}
    """The last message about each row that is left out."""

    def enabled_models_qs(self) -> Any:
        """All enabled entries: those that are not due for hours are jobs, too."""
        return self.Model.objects.enabled()

    def trigger(self, entry: Any) -> Trigger | None:
        """A row with an unsupported schedule is left out and logged once; the others go on."""
        if isinstance(entry.schedule, clocked):
            return at(entry.schedule.clocked_time)
        try:
            return super().trigger(entry)
        except ConfigurationError as error:
            if self._logged.get(entry.name) != str(error):  # all rows are read again whenever one of them changes
                logger.error("beat: %s", error)  # noqa: TRY400 - the message says it all
                self._logged = {**self._logged, entry.name: str(error)}
            return None

    def wanted(self, entry: Any, run: Run) -> bool:
        """True if its row wants this due time now."""
        try:
            row = self.Model.objects.filter(pk=entry.model.pk, enabled=True).first()
        finally:
            close_old_connections()
        if row is None:
            return False
        begun = row.start_time is None or run.scheduled_for >= row.start_time
        return begun and (row.expires is None or run.scheduled_for < row.expires)

    def sent(self, entry: Any, run: Run) -> None:
        """Record it where Django's admin shows it, and disable an entry that runs only once."""
        rows = self.Model.objects.filter(pk=entry.model.pk)
        try:
            rows.update(last_run_at=run.scheduled_for, total_run_count=F("total_run_count") + 1)
            if entry.model.one_off:
                rows.update(enabled=False, total_run_count=0)
                self.Changes.update_changed()
        finally:
            close_old_connections()
