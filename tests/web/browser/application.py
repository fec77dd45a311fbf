"""One worker of the application that browsers look at: `application.py LABEL`."""

import sys

from tenure import Run, Scheduler

scheduler = Scheduler(
    application="shop", label=sys.argv[1], tz="Europe/Berlin", ttl=3, heartbeat_every=0.6, attempt_timeout=0.6
)


@scheduler.every("1s")
def sync_stock(run: Run) -> None:
    run.log("stock read")


@scheduler.cron("30 2 * * *")
def nightly(run: Run, shard: int = 1) -> None:
    run.log(f"shard {shard}")


@scheduler.job()
def fails(run: Run) -> None:
    raise RuntimeError("the shelf <b>broke</b>")


@scheduler.job()
def lasts(run: Run) -> None:
    run.wait(120)


if __name__ == "__main__":
    scheduler.run(lines=False)
