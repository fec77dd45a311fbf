"""A job each second: its sale and the mark that it is done commit together."""

import json
import os

from django.db import connection, transaction

from shop.models import Sale
from tenure import Run
from tenure.ext.django import scheduler


@scheduler.every("1s", overlap="allow")
def tick(run: Run) -> None:
    with transaction.atomic():
        Sale.objects.create(due=run.scheduled_for.timestamp())
        run.complete(connection)
    line = {
        "job": run.job,
        "due": run.scheduled_for.timestamp(),
        "pid": os.getpid(),
        "zone": str(run.scheduled_for.tzinfo),
    }
    with open(os.environ["LINES"], "a", encoding="utf-8") as file:  # noqa: PTH123
        file.write(json.dumps(line) + "\n")
