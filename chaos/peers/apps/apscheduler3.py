"""APScheduler 3: a scheduler on a job store that its neighbours share. `apscheduler3.py setup|worker`"""

import logging
import signal
import sys
from datetime import UTC

from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.blocking import BlockingScheduler
from lines import EVERY, JOBS, URL, work


def body(job: str) -> None:
    """A body is not told what it is due for.

    The function that calls it knows, so nothing of the peer has to be changed.
    """
    work(job, due=sys._getframe(1).f_locals["run_time"].timestamp())


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    url = URL.replace("postgresql:", "postgresql+psycopg:")
    store = SQLAlchemyJobStore(url, engine_options={"pool_pre_ping": True})
    settings = {"coalesce": False, "misfire_grace_time": None, "max_instances": 20}
    scheduler = BlockingScheduler(
        jobstores={"default": store}, job_defaults=settings, jobstore_retry_interval=1, timezone=UTC
    )
    if sys.argv[1] == "setup":
        store.start(scheduler, "default")
        return
    for job in JOBS:
        scheduler.add_job("apscheduler3:body", "cron", second=f"*/{EVERY}", args=[job], id=job, replace_existing=True)
    signal.signal(signal.SIGTERM, lambda *_: scheduler.shutdown())
    scheduler.start()


if __name__ == "__main__":
    main()
