"""django-celery-beat's entries: `celery -A app beat -S tenure.ext.celery.django:DatabaseScheduler`."""

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
    """Entries from Django's tables, with what is changed there. `start_time`, `expires`, `enabled` and `one_off` are looked at before each message."""

    _told: Mapping[str, str] = {}
    """What was said of rows that are left out."""

    def enabled_models_qs(self) -> Any:
        """All of them: those that are not due for hours are jobs, too."""
        return self.Model.objects.enabled()

    def trigger(self, entry: Any) -> Trigger | None:
        """A row that cannot be understood is left out, and said so once; the others go on."""
        if isinstance(entry.schedule, clocked):
            return at(entry.schedule.clocked_time)
        try:
            return super().trigger(entry)
        except ConfigurationError as error:
            if self._told.get(entry.name) != str(error):  # all rows are read again whenever one of them is changed
                logger.error("beat: %s", error)  # noqa: TRY400 - the sentence says it all
                self._told = {**self._told, entry.name: str(error)}
            return None

    def wanted(self, entry: Any, run: Run) -> bool:
        """What its row says now."""
        try:
            row = self.Model.objects.filter(pk=entry.model.pk, enabled=True).first()
        finally:
            close_old_connections()
        if row is None:
            return False
        begun = row.start_time is None or run.scheduled_for >= row.start_time
        return begun and (row.expires is None or run.scheduled_for < row.expires)

    def sent(self, entry: Any, run: Run) -> None:
        """Note it where Django's admin shows it. What runs only once is not enabled any more."""
        rows = self.Model.objects.filter(pk=entry.model.pk)
        try:
            rows.update(last_run_at=run.scheduled_for, total_run_count=F("total_run_count") + 1)
            if entry.model.one_off:
                rows.update(enabled=False, total_run_count=0)
                self.Changes.update_changed()
        finally:
            close_old_connections()
