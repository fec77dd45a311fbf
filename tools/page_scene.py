"""One worker of the shop in the pictures of the page: `page_scene.py LABEL`, with the database in TENURE_URL.

With SHOP_BROKEN set, it is a bad night: the bank is away, and a deploy has lost a job.
"""

import os
import sys
import time

from tenure import Run, Scheduler

BROKEN = bool(os.environ.get("SHOP_BROKEN"))
scheduler = Scheduler(
    application="shop",
    label=sys.argv[1],
    tz="Europe/Berlin",
    ttl=3,
    heartbeat_every=0.6,
    attempt_timeout=0.6,
    capacity=8,
)


@scheduler.every("5s", tags=("stock",))
def sync_stock(run: Run) -> str:
    run.log("4,211 articles compared")
    time.sleep(0.2)
    return "3 changed"


@scheduler.cron("*/1 * * * *", timeout="10m", tags=("orders",))
def import_orders(run: Run) -> None:
    for done in range(0, 841, 20):
        run.progress(done, 840, "orders from the marketplace")
        run.log(f"page {done // 20 + 1} of 43")
        run.wait(1)


@scheduler.cron("30 2 * * *", retries=2, timeout="20m", expect_within="1h", kwargs={"shards": 4})
def nightly_report(run: Run, shards: int) -> None:
    run.log(f"{shards} shards")


@scheduler.cron("0 8 * * 1-5", tags=("mail",))
def newsletter(run: Run) -> None:
    """Goes out on weekdays."""


@scheduler.after("nightly_report")
def send_report(run: Run) -> None:
    """Goes out after the report."""


@scheduler.every("10s", retries=1, queue="payments", tags=("money",))
def charge_cards(run: Run) -> None:
    run.log("12 cards due")
    if BROKEN:
        raise ConnectionError("bank.example: connection refused")


if not (BROKEN and sys.argv[1] != "web-0"):

    @scheduler.every("20s", tags=("money",))
    def settle_invoices(run: Run) -> None:
        """A bad deploy forgets to import its module."""


if __name__ == "__main__":
    scheduler.run(lines=False)
