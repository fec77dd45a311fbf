"""The APScheduler program that people write first, with nothing but the import line changed.

`SECONDS` is the period of its heartbeat.
"""

import os

from fastapi import FastAPI
from notebook import note

from tenure.ext.apscheduler import BackgroundScheduler

sched = BackgroundScheduler(timezone="Asia/Seoul")


@sched.scheduled_job("cron", hour=3, minute=0, id="daily-aggregate")
def daily_aggregate() -> None:
    note("daily-aggregate")


@sched.scheduled_job("interval", seconds=int(os.environ["SECONDS"]), id="heartbeat")
def heartbeat() -> None:
    note("heartbeat")


sched.start()

app = FastAPI()
