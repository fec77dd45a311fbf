"""tenure in Django: `INSTALLED_APPS = [..., "tenure.ext.django"]`, and in the `jobs.py` of any app

from tenure.ext.django import scheduler

@scheduler.cron("0 3 * * *")
def daily_aggregate(run: Run) -> None:
    with transaction.atomic():
        aggregate(day=run.scheduled_for.date())
        run.complete(connection)

`manage.py tenure start` runs jobs, in as many processes as you like; `TENURE = {"SERVE": True}` runs them in the
processes that serve requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenure.ext.django.project import ProjectScheduler

    scheduler: ProjectScheduler

__all__ = ["scheduler"]


def __getattr__(name: str) -> Any:
    """The scheduler of the project, made at its first use, because it needs Django's settings."""
    if name == "scheduler":
        from tenure.ext.django.project import scheduler

        return scheduler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
