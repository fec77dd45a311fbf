"""procrastinate: workers that defer periodic tasks, and run them. `procrastinate_periodic.py setup|worker`"""

import logging
import sys

from lines import EVERY, JOBS, LOCK, URL, work
from procrastinate import App, JobContext, PsycopgConnector

app = App(connector=PsycopgConnector(conninfo=URL))
SECONDS = f"* * * * * */{EVERY}"


@app.task(name="body")
def body(timestamp: int, job: str) -> None:
    work(job, due=timestamp)


for name in JOBS:
    app.periodic(cron=SECONDS, periodic_id=name, task_kwargs={"job": name})(body)


@app.periodic(cron=SECONDS)
@app.task(name="retry_stalled_jobs", queueing_lock="retry_stalled_jobs", pass_context=True)
async def retry_stalled_jobs(_context: JobContext, timestamp: int) -> None:
    """As its documentation recommends, only more often."""
    del timestamp
    for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=LOCK):
        await app.job_manager.retry_job(job)


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    with app.open():
        if sys.argv[1] == "setup":
            app.schema_manager.apply_schema()
            return
    app.run_worker(concurrency=20, update_heartbeat_interval=1, stalled_worker_timeout=LOCK)


if __name__ == "__main__":
    main()
