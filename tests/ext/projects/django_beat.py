"""django-celery-beat's tables under tenure's beat, in one process; what was sent, and what the tables say, as JSON."""

# ruff: noqa: E402 - Django wants its settings first

import json
import logging
import os
from datetime import timedelta

import django
from django.conf import settings

settings.configure(
    INSTALLED_APPS=["django_celery_beat"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["FILE"]}},
    USE_TZ=True,
    TIME_ZONE="UTC",
)
django.setup()

from celery import Celery
from django.core.management import call_command
from django.utils.timezone import now
from django_celery_beat.models import ClockedSchedule, IntervalSchedule, PeriodicTask, SolarSchedule

from tenure.ext.celery.django import DatabaseScheduler

app = Celery("site", broker="memory://")
app.conf.update(tenure_options={"ttl": 6, "heartbeat_every": 0.5, "attempt_timeout": 1}, result_expires=None)


class Refused(logging.Handler):
    """What the beat says at ERROR."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def sent() -> str:
    """The name of the entry of the next message."""
    with app.connection_for_read() as connection:
        queue = connection.SimpleQueue("celery")
        message = queue.get(timeout=20)
        message.ack()
        queue.close()
    return str(message.headers["periodic_task_name"])


def main() -> None:
    call_command("migrate", verbosity=0)
    second = IntervalSchedule.objects.create(every=1, period="seconds")
    always = IntervalSchedule.objects.create(every=0, period="seconds")
    soon = ClockedSchedule.objects.create(clocked_time=now() + timedelta(seconds=2))
    sun = SolarSchedule.objects.create(event="sunset", latitude=0, longitude=0)
    later = now() + timedelta(days=1)
    PeriodicTask.objects.create(name="tick", task="nothing", interval=second)
    PeriodicTask.objects.create(name="off", task="nothing", interval=second, enabled=False)
    PeriodicTask.objects.create(name="later", task="nothing", interval=second, start_time=later)
    PeriodicTask.objects.create(name="always", task="nothing", interval=always)
    PeriodicTask.objects.create(name="clocked", task="nothing", clocked=soon, one_off=True)
    refused = Refused()
    logging.getLogger("celery.beat").addHandler(refused)
    beat = DatabaseScheduler(app)
    beat.tick()
    first = []
    while "clocked" not in first or "tick" not in first:
        first.append(sent())
    PeriodicTask.objects.filter(name="tick").first().delete()
    row = PeriodicTask.objects.get(name="off")
    row.enabled = True
    row.save()
    beat._look()
    after = []
    while after.count("off") < 2:
        after.append(sent())
    beat.close()
    tables = {
        row.name: {"enabled": row.enabled, "count": row.total_run_count, "ran": row.last_run_at is not None}
        for row in PeriodicTask.objects.all()
    }
    print(json.dumps({"first": first, "after": after, "tables": tables, "refused": refused.said, "sun": sun.event}))


main()
