"""A program that sends its failures to Sentry: `with_sentry.py URL`. Prints each event, and what the ledger says of each run."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator

import sentry_sdk
from sentry_sdk.transport import Transport

import bodies
from tenure import Run, Scheduler

scheduler = Scheduler(sys.argv[1] if __name__ == "__main__" else None, ttl=6, heartbeat_every=0.3, label="web-1")


def tell(**words: object) -> None:
    """In one write: other threads tell something, too."""
    os.write(1, json.dumps(words, default=str).encode() + b"\n")


class Kept(Transport):
    """Prints what would be sent."""

    def capture_envelope(self, envelope: sentry_sdk.envelope.Envelope) -> None:
        for item in envelope.items:
            if (event := item.get_event()) is not None:
                tell(event="sent", what=event)
            elif (transaction := item.get_transaction_event()) is not None:
                tell(event="traced", what=transaction["transaction"])


def name_the_job(event: dict, hint: dict) -> dict:
    extra = event.get("extra", {})
    if "run_id" in extra:
        event["tags"] = {**event.get("tags", {}), "job": extra["job"], "node": extra["node"]}
    return event


@scheduler.around
def traced(run: Run) -> Iterator[None]:
    with sentry_sdk.isolation_scope() as scope:
        scope.set_tag("job", run.job)
        with sentry_sdk.start_transaction(op="task", name=run.job):
            yield


@scheduler.job
def in_a_thread() -> None:
    colour = "a local variable"  # noqa: F841
    raise ValueError("in a thread")


@scheduler.job
async def in_a_coroutine() -> None:
    await asyncio.sleep(0)
    raise KeyError("in a coroutine")


@scheduler.job(retries=1, backoff="10ms")
def twice(run: Run) -> None:
    raise ValueError(f"attempt {run.attempt}")


@scheduler.job(timeout="200ms")
def hangs(run: Run) -> None:
    run.wait("20s")


scheduler.job(process=True, name="in_a_process")(bodies.fails)

if __name__ == "__main__":
    sentry_sdk.init(
        dsn="http://key@localhost/1",
        transport=Kept,
        before_send=name_the_job,
        traces_sample_rate=1.0,
        auto_enabling_integrations=False,
    )
    with scheduler:
        for job in ("in_a_thread", "in_a_coroutine", "twice", "hangs", "in_a_process"):
            run = scheduler.run_now(job)
            while scheduler.find_run(run.id).state != "failed":
                time.sleep(0.02)
            tell(event="failed", job=job, run=run.id)
    sentry_sdk.flush()
    tell(event="end")
