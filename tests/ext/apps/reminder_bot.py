"""A bot that reminds people, as it is written for APScheduler: reminders are added when somebody asks, and are in the
store. Only the import line was changed. Its chat is stdin: {"in": 2.5, "who": "ann", "what": "tea"}.
"""

import json
import sys
from datetime import datetime, timedelta
from pathlib import Path

from tenure.ext.apscheduler import BackgroundScheduler, SQLAlchemyJobStore

URL, RECORD = sys.argv[1], Path(sys.argv[2])


def remind(who: str, what: str) -> None:
    with RECORD.open("a") as record:
        record.write(f"{who} {what}\n")


def clean_up() -> None:
    pass


scheduler = BackgroundScheduler(
    jobstores={"default": SQLAlchemyJobStore(url=URL)}, job_defaults={"misfire_grace_time": 3600}
)
scheduler.add_job(clean_up, "interval", hours=1, id="clean up", replace_existing=True)
scheduler.start()
print("ready", flush=True)

for line in sys.stdin:
    asked = json.loads(line)
    when = datetime.now() + timedelta(seconds=asked["in"])
    scheduler.add_job(remind, "date", run_date=when, args=[asked["who"], asked["what"]])
    print("noted", asked["what"], flush=True)
scheduler.shutdown()
