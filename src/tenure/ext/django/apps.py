"""The Django app: finds the jobs of the project and, if the settings say so, runs them in the processes that serve."""

from __future__ import annotations

import os
import sys

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules

from tenure.ext.serving import DEVELOPING, called_from, take_part, under_gunicorn, when_gunicorn_serves
from tenure.ext.wrapping import put_around


class TenureConfig(AppConfig):  # type: ignore[misc]
    """`INSTALLED_APPS = [..., "tenure.ext.django"]`."""

    name = "tenure.ext.django"
    label = "tenure"
    default = True

    def ready(self) -> None:
        """Import the `jobs.py` of every app."""
        from tenure.ext.django.project import fresh_connections, scheduler, tenure_setting

        put_around(scheduler, fresh_connections)
        autodiscover_modules("jobs")
        if not tenure_setting().get("SERVE", False):
            return
        if under_gunicorn():
            when_gunicorn_serves(lambda: take_part(scheduler))
        elif called_from("django.core.wsgi", "django.core.asgi"):
            take_part(scheduler)
        elif sys.argv[1:2] == ["runserver"] and ("--noreload" in sys.argv or os.environ.get("RUN_MAIN") == "true"):
            take_part(scheduler, DEVELOPING)
