"""Bodies whose processes have a real tracer: spans are kept in memory, and written into the file of SPANS as well."""

import os
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tenure import Run

memory = InMemorySpanExporter()
tracer = trace.get_tracer("the application")


def set_up() -> None:
    """As a program does at its start, once."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    if path := os.environ.get("SPANS"):
        lines = Path(path).open("a", buffering=1)  # noqa: SIM115 - as long as the process lives
        exporter = ConsoleSpanExporter(out=lines, formatter=lambda span: span.to_json(indent=None) + "\n")
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


set_up()


def carrier() -> dict[str, Any]:
    """What the body would send with what it dispatches."""
    from opentelemetry.propagate import inject

    headers: dict[str, Any] = {}
    inject(headers)
    return headers


def in_process(run: Run) -> None:
    with tracer.start_as_current_span("inside"):
        run.log(carrier()["traceparent"])


def fails_in_process(run: Run) -> None:
    raise ValueError(f"attempt {run.attempt} in the child")
