"""A program that sends spans: `with_spans.py URL`. Prints what its in-memory exporter has, and what the bodies would send on."""

import asyncio
import json
import os
import sys
import time

from opentelemetry.trace import format_span_id, format_trace_id

import traced_bodies
from tenure import AsyncScheduler, Run, Scheduler
from tenure.errors import NotYet
from tenure.ext.opentelemetry import instrument

scheduler = Scheduler(sys.argv[1] if __name__ == "__main__" else None, ttl=6, heartbeat_every=0.3, label="web-1")
instrument(scheduler)
instrument(scheduler)  # twice is once


def tell(**words: object) -> None:
    os.write(1, json.dumps(words, default=str).encode() + b"\n")


@scheduler.job
def in_thread(run: Run) -> None:
    with traced_bodies.tracer.start_as_current_span("inside"):
        run.log(traced_bodies.carrier()["traceparent"])


@scheduler.job
async def on_loop(run: Run) -> None:
    await asyncio.sleep(0)
    with traced_bodies.tracer.start_as_current_span("inside"):
        await asyncio.sleep(0)
        run.log(traced_bodies.carrier()["traceparent"])


@scheduler.job(retries=1, backoff="10ms")
def twice(run: Run) -> None:
    raise ValueError(f"attempt {run.attempt}")


@scheduler.job
def not_yet(run: Run) -> None:
    if run.attempt == 1:
        raise NotYet("10ms", "file not there")


@scheduler.job(timeout="300ms")
def hangs(run: Run) -> None:
    run.wait("20s")
    run.check()


@scheduler.job(timeout="300ms")
def ignores(run: Run) -> None:
    time.sleep(0.6)


@scheduler.job
def retried(run: Run) -> None:
    if run.attempt == 1:
        raise ValueError("not yet mended")


@scheduler.every("1s")
def due() -> None: ...


@scheduler.every("1h", missed="skip")
def hourly() -> None: ...


scheduler.job(process=True)(traced_bodies.in_process)
scheduler.job(process=True)(traced_bodies.fails_in_process)
ENDS = {"succeeded", "failed", "lost", "cancelled"}


def ended(run: object) -> object:
    while (found := scheduler.find_run(run.id)).state not in ENDS:  # type: ignore[attr-defined]
        time.sleep(0.02)
    return found


async def asked_by_a_coroutine() -> int:
    with traced_bodies.tracer.start_as_current_span("coroutine"):
        return (await AsyncScheduler(scheduler).run_now("in_thread", key="by a coroutine")).id


if __name__ == "__main__":
    with scheduler:
        for job in ("in_thread", "on_loop", "in_process", "twice", "not_yet", "hangs", "ignores", "fails_in_process"):
            with traced_bodies.tracer.start_as_current_span("request"):
                asked = scheduler.run_now(job)
            found = ended(asked)
            while job in ("in_thread", "on_loop", "in_process") and not scheduler.log(asked.id):
                time.sleep(0.05)  # what a body logs may follow its ending
            tell(event="ended", job=job, run=asked.id, key=asked.key, state=found.state, log=scheduler.log(asked.id))  # type: ignore[attr-defined]
        ended(scheduler.find_run(asyncio.run(asked_by_a_coroutine())))
        ended(scheduler.run_now("in_thread", key="by none"))
        failed = ended(scheduler.run_now("retried"))
        with traced_bodies.tracer.start_as_current_span("retry"):
            again = scheduler.retry(failed.id)  # type: ignore[attr-defined]
        ended(again)
        with traced_bodies.tracer.start_as_current_span("backfill"):
            scheduler.backfill("hourly", "-3h", "-1s", dry_run=False, at_once=1, even_forgotten=True)
        while scheduler.backfills()[0].state != "done":
            time.sleep(0.05)
        while not scheduler.runs("due", state="succeeded"):
            time.sleep(0.05)
    for span in traced_bodies.memory.get_finished_spans():
        tell(
            event="span",
            name=span.name,
            kind=span.kind.name,
            trace=format_trace_id(span.context.trace_id),
            span=format_span_id(span.context.span_id),
            parent=None if span.parent is None else format_span_id(span.parent.span_id),
            attributes=dict(span.attributes),
            links=[[format_trace_id(one.context.trace_id), format_span_id(one.context.span_id)] for one in span.links],
            status=span.status.status_code.name,
            text=span.status.description,
            events=[[one.name, dict(one.attributes)] for one in span.events],
        )
    tell(event="end")
