"""Importers: they read the schedules of another program and write them as Python code, noting where their meaning
differs.

They change nothing where the schedules come from.

crontab      a file as cron reads it
systemd      timer units, with the services beside them
celery       the beat_schedule of a Celery app
apscheduler  the job store of APScheduler 3
"""

from __future__ import annotations

from tenure.importers.code import written
from tenure.importers.found import Found, Imported, Left

__all__ = ["Found", "Imported", "Left", "written"]
