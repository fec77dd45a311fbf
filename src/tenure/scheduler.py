"""The scheduler as a program sees it: define jobs, take part in running them, change them, query them.

scheduler = Scheduler("sqlite:///jobs.db", tz="Asia/Seoul")

@scheduler.cron("0 3 * * *", timeout="20m", retries=2)
def daily_aggregate(run: Run) -> None:
    aggregate(day=run.scheduled_for.date())

scheduler.run()
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self, Unpack

from tenure.alerts.options import AlertOptions, AlertReceiver
from tenure.core.alerts import AlertLimits, AlertThresholds
from tenure.core.cluster import Cadence
from tenure.errors import ConfigurationError
from tenure.events import AnyEvent
from tenure.jobs.api import SchedulerApi
from tenure.jobs.decorators import Definitions
from tenure.jobs.listeners import Listener, Listening
from tenure.scheduling import console
from tenure.scheduling.engine_options import EngineOptions
from tenure.scheduling.health import Health
from tenure.scheduling.service import SchedulerService
from tenure.triggers.zones import Zone
from tenure.util.durations import Duration, positive
from tenure.util.names import named
from tenure.util.option_names import hinted

ELSEWHERE = {
    **dict.fromkeys(("timezone", "time_zone"), "Write tz={value!r}."),
    **dict.fromkeys(("max_workers", "workers", "concurrency", "threads", "pool_size"), "Write capacity={value!r}."),
    **dict.fromkeys(("name", "app", "app_name", "namespace", "prefix"), "Write application={value!r}."),
    **dict.fromkeys(
        ("database", "database_url", "db_url", "dsn", "broker", "store"), "Write the URL first: Scheduler({value!r})."
    ),
    **dict.fromkeys(("node", "node_name", "hostname", "worker_id"), "Write label={value!r}."),
    **dict.fromkeys(("shutdown_timeout", "graceful_timeout", "grace_period"), "Write drain={value!r}."),
    "queue": "Write queues=[{value!r}].",
    "version": "Write release={value!r}, a whole number.",
    "heartbeat": "Write heartbeat_every={value!r}.",
    "heartbeat_interval": "Write heartbeat_every={value!r}.",
    "jobstores": "All jobs are in the database of the URL: Scheduler('postgresql:///app').",
    "executors": "Write capacity= for how many bodies run at once, and process=True above what needs a process.",
    "job_defaults": "Write options where the job is defined: @scheduler.cron('0 3 * * *', max_running=1).",
}
"""What to write instead of the options of other schedulers."""


class Scheduler(SchedulerApi, Listening):
    """The jobs of one application on one store. Opens nothing before `with`, `start()`, `run()` or the first use."""

    _service: SchedulerService
    _service_type = SchedulerService

    @hinted(ELSEWHERE)
    def __init__(
        self,
        url: object = None,
        *,
        application: str = "default",
        tz: Zone = "UTC",
        capacity: int = 32,
        queues: Sequence[str] | None = None,
        release: int = 0,
        label: str | None = None,
        ttl: Duration = 30.0,
        heartbeat_every: Duration = 2.0,
        attempt_timeout: Duration = 2.0,
        drain: Duration = 30.0,
        keep_for: Duration = "7d",
        keep: int = 100,
        keep_keys: Duration = "90d",
        host_evidence: bool = True,
        session_evidence: bool = True,
        schema: str = "tenure",
        migrate: bool = True,
    ) -> None:
        definitions = Definitions(application, tz, _whole(release, "release"))
        options = EngineOptions(
            application=definitions.application,
            tz=definitions.tz,
            cadence=Cadence.of(ttl, heartbeat_every=heartbeat_every, attempt_timeout=attempt_timeout),
            capacity=_whole(capacity, "capacity"),
            queues=_queues(queues),
            release=definitions.release,
            label=label,
            keep_for=positive(keep_for, "keep_for"),
            keep=_whole(keep, "keep"),
            keep_keys=positive(keep_keys, "keep_keys"),
            host_evidence=host_evidence,
            session_evidence=session_evidence,
            schema=schema,
        )
        self._definitions = definitions
        self._service = self._service_type(url, definitions, options, drain=drain, migrate=migrate)

    def __repr__(self) -> str:
        return (
            f"<Scheduler {self.application!r} on {self._service.shown}, {'started' if self.started else 'not started'}>"
        )

    @property
    def started(self) -> bool:
        """True if this process takes part."""
        return self._service.started

    # Taking part

    def start(self) -> None:
        """Bring the jobs to the ledger and take part. Raises an error if something is wrong now; later failures are
        recovered from automatically."""
        self._service.start(None)

    def stop(self, drain: Duration | None = None) -> bool:
        """Claim no more, wait for what runs, and leave. True if everything had ended in time.

        Waits for a `start()` that is under way on another thread, and undoes it. A body that does not return keeps this
        node's heartbeat going until it does, or until the process ends, so that no other attempt of its run begins
        meanwhile. `health().waits_for` names it, `stop(drain=…)` waits for it again, and `start()` starts a new node.
        """
        return self._service.stop(drain)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        """Start, and run coroutine jobs on this loop."""
        await self._service.start_here()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._service.stop_here()

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """For ASGI: `FastAPI(lifespan=scheduler.lifespan)`, or `async with scheduler.lifespan(app):` in your own."""
        del app
        async with self:
            yield

    def run(self, *, lines: bool | None = None) -> None:
        """Start, and block until SIGTERM, SIGINT, SIGHUP or `stop()`. A second signal asks running bodies to end. On a
        terminal it prints what it is doing."""
        with self._service.staged(lines) as (stage, say):
            self.start()
            try:
                self._service.greet(say)
                console.serve(self._service, stage, say)
            except BaseException:
                self.stop()
                raise

    def alert_to(self, *told: AlertReceiver, **thresholds: Unpack[AlertThresholds]) -> None:
        """Tell these when something is wrong: `alert_to(Log(), Webhook(url))`, all in one call, before the start.

        `failing` is how many runs of a job in a row must have failed (default: 3). Durations say how long a job may be
        `paused` ("7d"), how long there may be `no_planner` ("30s"), and how long a job may be `orphaned` ("1m"). An
        alert opens after `open_after` checks in a row that find it (1), and closes after `close_after` that do not (1).
        Nodes check about every 15 seconds.
        """
        self._service.alert_to(AlertOptions.of(told, AlertLimits.of(**thresholds)))

    def _listen(self, kinds: tuple[type[AnyEvent], ...]) -> Callable[[Listener], Listener]:
        register = self._service.listeners.on(*kinds)

        def take(listener: Listener) -> Listener:
            if inspect.iscoroutinefunction(listener):
                raise ConfigurationError(
                    f"on(): {listener.__qualname__} is a coroutine function, which has no loop here. "
                    "Write a function, or use AsyncScheduler.on."
                )
            return register(listener)

        return take

    def health(self) -> Health:
        """The state of this node, without asking the database."""
        return self._service.health()


def service_of(scheduler: Scheduler) -> SchedulerService:
    """The service behind a scheduler, for tenure's own modules."""
    return scheduler._service  # noqa: SLF001 - the one way in


def _whole(value: object, what: str) -> int:
    if type(value) is not int or value < 0:
        raise ConfigurationError(f"{what}: {value!r} must be a whole number, 0 or more.")
    return value


def _queues(given: object) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigurationError(
            f"queues: {given!r} is not a list of names. Write queues=['reports'], or None for all."
        )
    return tuple(named(queue, "queues") for queue in given)
