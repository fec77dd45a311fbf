"""OpenTelemetry: a span for each attempt (`pip install 'tenure[opentelemetry]'`).

from tenure.ext.opentelemetry import instrument

instrument(scheduler)

A span begins a trace of its own and is linked to the span that requested the run (`run_now`, `run_at`, `retry`,
`backfill`), if there was one. It is the current span in the body, whether that runs in a thread, on the loop or in a
process, so what the body calls and sends continues the trace. Spans go wherever your program sends its spans. There is
no convention for jobs yet: if there is one day, only this module changes.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from tenure.async_scheduler import AsyncScheduler, threaded_of
from tenure.core.planning import retry_in
from tenure.errors import NotYet
from tenure.run import Run, RunControl, control_of
from tenure.scheduler import Scheduler, service_of
from tenure.scheduling.attempt import OUT_OF_TIME
from tenure.util.version import __version__

FLUSH = 1000
"""Milliseconds that a process of tenure's gives its exporter after a span: it may be killed when it is idle."""

_PROPAGATOR = TraceContextTextMapPropagator()


def instrument(scheduler: Scheduler | AsyncScheduler) -> None:
    """Make a span for each attempt, from the next one on, and remember the current span with each run that is requested
    through this scheduler.

    For bodies with `process=True`, the module that defines them has to set up the SDK, because the process imports it.
    """
    threaded = threaded_of(scheduler)
    threaded.around(attempt_span)
    service = service_of(threaded)
    service.operations.traceparent = _traceparent
    service.definitions.registry.wants_traceparents = True


def attempt_span(run: Run) -> Iterator[None]:
    """The span of one attempt. It is put around bodies by `instrument`."""
    control = control_of(run)
    tracer = trace.get_tracer("tenure", __version__)
    with tracer.start_as_current_span(
        f"run {run.job}",
        context=Context(),
        kind=SpanKind.INTERNAL,
        attributes=_attributes(run, control),
        links=_links(control),
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except BaseException as error:
            _note_error(span, control, error)
            raise
        if control.cancelled_because.startswith(OUT_OF_TIME):  # its thread went on, and came to an end
            _note_failure(span, control, "TimeoutError", control.cancelled_because)
    _flush()


def _attributes(run: Run, control: RunControl) -> dict[str, AttributeValue]:
    claimed, found = control.claimed, dict[str, AttributeValue]()
    if control.began_at is not None:
        found["tenure.run.lateness"] = max(control.began_at - claimed.due_at, 0.0)
    return {
        "job.system": "tenure",
        "code.function.name": claimed.function,
        "tenure.job.name": run.job,
        "tenure.run.id": run.id,
        "tenure.run.key": run.key,
        "tenure.run.attempt": run.attempt,
        "tenure.run.kind": run.kind,
        "tenure.run.scheduled_for": run.scheduled_for.isoformat(),
        **found,
    }


def _links(control: RunControl) -> list[Link]:
    """To the span that requested the run."""
    context = _PROPAGATOR.extract({"traceparent": control.claimed.traceparent}, Context())
    asked = trace.get_current_span(context).get_span_context()
    return [Link(asked, {"tenure.run.link": "requested by"})] if asked.is_valid else []


def _note_error(span: Span, control: RunControl, error: BaseException) -> None:
    if isinstance(error, NotYet):
        span.add_event("not yet", {"tenure.run.reason": str(error)})
        return
    span.record_exception(error)
    if control.cancelled_because.startswith(OUT_OF_TIME):
        _note_failure(span, control, "TimeoutError", control.cancelled_because)
    elif control.lost_because or control.cancelled_because:
        span.set_attribute("tenure.run.reason", control.lost_because or control.cancelled_because)
    elif not control.completed:
        _note_failure(span, control, _name(error), str(error))


def _note_failure(span: Span, control: RunControl, kind: str, text: str) -> None:
    """Mark the span as an error only if the run is not retried: a retry may still succeed."""
    span.set_attribute("error.type", kind)
    if retry_in(control.claimed.rules, control.claimed.failures + 1, 0.0) is None:
        span.set_status(Status(StatusCode.ERROR, text))


def _name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _flush() -> None:
    if multiprocessing.parent_process() is not None:
        flush = getattr(trace.get_tracer_provider(), "force_flush", None)
        if flush is not None:
            flush(FLUSH)


def _traceparent() -> str:
    """The current span, '' if there is none."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier.get("traceparent", "")
