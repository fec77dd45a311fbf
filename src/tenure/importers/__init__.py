"""Schedules of elsewhere, read and written as code for tenure, with what differs in meaning. Nothing is changed where they come from.

crontab      a file as cron reads it
systemd      timer units, with the services beside them
celery       the beat_schedule of a Celery app
apscheduler  the job store of APScheduler 3
"""

from __future__ import annotations

from tenure.importers.code import written
from tenure.importers.found import Found, Imported, Left

__all__ = ["Found", "Imported", "Left", "written"]
