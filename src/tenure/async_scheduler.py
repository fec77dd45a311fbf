"""The same scheduler, async: operations and queries as coroutines, thin bridges over the threaded runtime.

async with AsyncScheduler("postgresql:///app") as scheduler:      # coroutine jobs run on this loop
    await scheduler.run_now("daily_aggregate", by="ops")
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Concatenate, Literal, Self, TypeVar, Unpack, overload

from tenure.alerts.options import AlertReceiver
from tenure.async_election import NodeOptions
from tenure.core.alerts import AlertThresholds
from tenure.core.backfills import DEFAULT_INCLUDE, Include
from tenure.core.job_options import Policy
from tenure.core.messages import JobChange, RunRequest
from tenure.core.records import IfWaiting
from tenure.events import AnyEvent
from tenure.jobs.calls import Additions, Call, NeedsNothing, P, PlainAdditions, WithRun, requested
from tenure.jobs.client import TRIES
from tenure.jobs.decorators import Decorators
from tenure.jobs.deferred_operations import DeferredOperation, Seen
from tenure.jobs.listeners import Listener, Listening
from tenure.jobs.operations import UNSET, ChangeNote, Later, Unset, retriable
from tenure.scheduler import Scheduler, service_of
from tenure.scheduling import console
from tenure.scheduling.health import Health
from tenure.triggers import Trigger
from tenure.triggers.zones import Zone
from tenure.util.async_bridge import LoopCaller, enter, undone
from tenure.util.durations import Duration
from tenure.views import AsyncRequestedRun, JobView, RequestedBackfill, RunView

R = TypeVar("R")


class SchedulerOptions(NodeOptions, total=False):
    """What `Scheduler` takes by name."""

    application: str
    tz: Zone
    capacity: int
    queues: Sequence[str] | None
    release: int
    heartbeat_every: Duration
    attempt_timeout: Duration
    drain: Duration
    keep_for: Duration
    keep: int
    keep_keys: Duration


def _in_thread(
    method: Callable[Concatenate[Scheduler, P], R],
) -> Callable[Concatenate[AsyncScheduler, P], Coroutine[Any, Any, R]]:
    """The same method as a coroutine: it asks the database on a thread, so that the loop goes on."""

    @functools.wraps(method)
    async def call(self: AsyncScheduler, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(method, self._scheduler, *args, **kwargs)

    return call


class AsyncScheduler(Decorators, Listening):
    """A scheduler for coroutines. Give it what `Scheduler` takes, or a `Scheduler`."""

    def __init__(self, url: object = None, **options: Unpack[SchedulerOptions]) -> None:
        self._scheduler = url if isinstance(url, Scheduler) else Scheduler(url, **options)
        self._service = service_of(self._scheduler)
        self._definitions = self._service.definitions
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls = LoopCaller(lambda: self._loop)

    def __repr__(self) -> str:
        return repr(self._scheduler).replace("<Scheduler", "<AsyncScheduler")

    @property
    def application(self) -> str:
        """The application that the jobs belong to."""
        return self._scheduler.application

    @property
    def started(self) -> bool:
        """True if this process takes part."""
        return self._scheduler.started

    @property
    def label(self) -> str:
        """The human-readable name of this node."""
        return self._scheduler.label

    # Taking part

    async def start(self) -> None:
        """Take part, with coroutine jobs on this loop; see `Scheduler.start`. A cancelled start is undone first."""
        self._loop = asyncio.get_running_loop()
        await self._service.start_here()

    async def stop(self, drain: Duration | None = None) -> bool:
        """Claim no more, wait for what runs, and leave. True if everything had ended in time.

        If this is cancelled, the stop goes on by itself but no longer waits for running bodies; the exit of the process
        waits for that stop.
        """
        return await self._service.stop_here(drain)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """For ASGI: `FastAPI(lifespan=scheduler.lifespan)`, or `async with scheduler.lifespan(app):` in your own."""
        del app
        async with self:
            yield

    async def run(self, *, lines: bool | None = None) -> None:
        """Start, and go on until SIGTERM, SIGINT, SIGHUP or `stop()`. As `Scheduler.run`, on this loop."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def on_loop(what: Callable[[], object]) -> None:
            with suppress(RuntimeError):  # the loop is closed: nothing waits any more
                loop.call_soon_threadsafe(what)

        def serve() -> None:
            console.serve(self._service, stage, say)
            on_loop(ended.set)

        with self._service.staged(lines, nudge=lambda: on_loop(bool)) as (stage, say):
            await self.start()
            try:
                await asyncio.to_thread(self._service.greet, say)
                # A thread of its own: it waits for as long as this runs, and a loop has few for its coroutines.
                threading.Thread(target=serve, name="tenure serves", daemon=True).start()
                await ended.wait()
            except BaseException:  # a cancellation, for one
                await self.stop()  # which wakes the stage, and so ends the thread
                raise

    def alert_to(self, *told: AlertReceiver, **thresholds: Unpack[AlertThresholds]) -> None:
        """Tell these when something is wrong; see `Scheduler.alert_to`."""
        self._scheduler.alert_to(*told, **thresholds)

    def _listen(self, kinds: tuple[type[AnyEvent], ...]) -> Callable[[Listener], Listener]:
        register = self._service.listeners.on(*kinds)

        def take(listener: Listener) -> Listener:
            register(self._calls.bridged(listener) if inspect.iscoroutinefunction(listener) else listener)
            return listener

        return take

    # Operations

    @overload
    async def add(
        self,
        fn: Callable[..., object],
        trigger: None,
        *,
        name: str,
        conn: Any = None,
        by: str = "",
        **policy: Unpack[Policy],
    ) -> JobView: ...
    @overload
    async def add(
        self,
        fn: Call | NeedsNothing | str,
        trigger: Trigger | None,
        *,
        name: str,
        conn: Any = None,
        by: str = "",
        **policy: Unpack[Policy],
    ) -> JobView: ...
    @overload
    async def add(
        self,
        fn: Callable[..., object] | str,
        trigger: Trigger | None,
        *,
        name: str,
        kwargs: Mapping[str, Any] | None,
        conn: Any = None,
        by: str = "",
        **policy: Unpack[Policy],
    ) -> JobView: ...
    async def add(
        self,
        fn: Call | Callable[..., object] | str,
        trigger: Trigger | None,
        *,
        name: str,
        kwargs: Mapping[str, Any] | None = None,
        conn: Any = None,
        by: str = "",
        **policy: Unpack[Policy],
    ) -> JobView:
        """Add a job at run time; see `Scheduler.add`. `conn` may be sync or async."""
        operations = self._service.operations
        return await self._change(
            operations.add(fn, trigger, name, kwargs=kwargs, policy=policy, said=ChangeNote(by)), conn
        )

    @overload
    async def add_many(self, jobs: Additions, /, *, by: str = "", **policy: Unpack[Policy]) -> list[JobView]: ...
    @overload
    async def add_many(
        self, fn: Callable[..., object] | str, jobs: PlainAdditions, *, by: str = "", **policy: Unpack[Policy]
    ) -> list[JobView]: ...
    async def add_many(self, fn: Any, jobs: Any = None, *, by: str = "", **policy: Unpack[Policy]) -> list[JobView]:
        """Add many jobs by name; see `Scheduler.add_many`."""
        add_many: Callable[[], list[JobView]] = lambda: self._scheduler.add_many(fn, jobs, by=by, **policy)  # noqa: E731
        return await asyncio.to_thread(add_many)

    async def update(
        self,
        name: str,
        *,
        trigger: Trigger | Unset | None = UNSET,
        kwargs: Mapping[str, Any] | Unset = UNSET,
        conn: Any = None,
        by: str = "",
        why: str = "",
        **policy: Unpack[Policy],
    ) -> JobView:
        """Change what is given and keep the rest; see `Scheduler.update`."""
        operations = self._service.operations
        operation = operations.update(name, trigger=trigger, kwargs=kwargs, policy=policy, said=ChangeNote(by, why))
        return await self._change(operation, conn)

    async def remove(self, name: str, *, conn: Any = None, by: str = "", why: str = "") -> JobView:
        """Remove a job; see `Scheduler.remove`."""
        return await self._change(self._service.operations.remove(name, ChangeNote(by, why)), conn)

    async def pause(
        self, name: str, *, why: str = "", until: Duration | datetime | None = None, by: str = "", conn: Any = None
    ) -> JobView:
        """Begin no more runs of this job, until `resume` or for that long; see `Scheduler.pause`."""
        return await self._change(self._service.operations.pause(name, until, ChangeNote(by, why)), conn)

    async def restore(self, name: str, *, conn: Any = None, by: str = "", why: str = "") -> JobView:
        """Undo a removal."""
        return await self._change(self._service.operations.restore(name, ChangeNote(by, why)), conn)

    async def reset(self, name: str, *, conn: Any = None, by: str = "", why: str = "") -> JobView:
        """Undo updates: from now on the job is what its definition in the code says."""
        return await self._change(self._service.operations.reset(name, ChangeNote(by, why)), conn)

    async def resume(self, name: str, *, by: str = "", why: str = "", conn: Any = None) -> JobView:
        """Go on from now."""
        return await self._change(self._service.operations.resume(name, ChangeNote(by, why)), conn)

    @overload
    async def run_now(
        self,
        job: Call | str,
        /,
        *,
        kwargs: Mapping[str, Any] | None = None,
        key: str | None = None,
        by: str = "",
        why: str = "",
        conn: Any = None,
    ) -> AsyncRequestedRun: ...
    @overload
    async def run_now(self, job: WithRun[P], /, *args: P.args, **kwargs: P.kwargs) -> AsyncRequestedRun: ...
    @overload
    async def run_now(self, job: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> AsyncRequestedRun: ...
    async def run_now(self, job: Any, /, *args: Any, **given: Any) -> AsyncRequestedRun:
        """Run a job as soon as there is room; see `Scheduler.run_now`. `await run.wait()` waits for its end."""
        wanted, options = requested(job, args, given)
        return await self._run_now(wanted, **options)

    async def _run_now(
        self,
        job: Call | str,
        *,
        kwargs: Mapping[str, Any] | None = None,
        key: str | None = None,
        by: str = "",
        why: str = "",
        conn: Any = None,
    ) -> AsyncRequestedRun:
        operation = self._service.operations.run_now(job, kwargs, key, ChangeNote(by, why))
        return self._requested(await self._request(operation, conn))

    @overload
    async def run_now_many(
        self, calls: Iterable[Call], /, *, keys: Iterable[str] | None = None, by: str = "", why: str = ""
    ) -> list[AsyncRequestedRun]: ...
    @overload
    async def run_now_many(
        self,
        name: str,
        kwargs: Iterable[Mapping[str, Any] | None],
        *,
        keys: Iterable[str] | None = None,
        by: str = "",
        why: str = "",
    ) -> list[AsyncRequestedRun]: ...
    async def run_now_many(
        self, name: Any, kwargs: Any = None, *, keys: Iterable[str] | None = None, by: str = "", why: str = ""
    ) -> list[AsyncRequestedRun]:
        """Request many runs; see `Scheduler.run_now_many`."""
        runs = await asyncio.to_thread(self._scheduler.run_now_many, name, kwargs, keys=keys, by=by, why=why)
        return [self._requested(run) for run in runs]

    async def run_at(
        self,
        job: Call | NeedsNothing | str,
        when: datetime | str | None = None,
        *,
        in_: Duration | None = None,
        kwargs: Mapping[str, Any] | None = None,
        key: str | None = None,
        slot: str | None = None,
        if_waiting: IfWaiting = "keep",
        by: str = "",
        why: str = "",
        conn: Any = None,
    ) -> AsyncRequestedRun:
        """Run a job once, at a time to come; see `Scheduler.run_at`."""
        later = Later(when, in_, slot, if_waiting)
        operation = self._service.operations.run_at(job, later, kwargs, key, ChangeNote(by, why))
        return self._requested(await self._request(operation, conn))

    def _requested(self, run: RunView) -> AsyncRequestedRun:
        return AsyncRequestedRun.through(run, lambda: self._service.look_at(run))

    @overload
    async def backfill(
        self,
        name: str,
        since: datetime | str,
        until: datetime | str,
        *,
        dry_run: Literal[True] = True,
        include: Include | Collection[Include] = DEFAULT_INCLUDE,
        at_once: int | None = None,
        even_forgotten: bool = False,
        by: str = "",
        why: str = "",
    ) -> list[datetime]: ...
    @overload
    async def backfill(
        self,
        name: str,
        since: datetime | str,
        until: datetime | str,
        *,
        dry_run: Literal[False],
        include: Include | Collection[Include] = DEFAULT_INCLUDE,
        at_once: int | None = None,
        even_forgotten: bool = False,
        by: str = "",
        why: str = "",
    ) -> RequestedBackfill: ...
    async def backfill(
        self,
        name: str,
        since: datetime | str,
        until: datetime | str,
        *,
        dry_run: bool = True,
        include: Include | Collection[Include] = DEFAULT_INCLUDE,
        at_once: int | None = None,
        even_forgotten: bool = False,
        by: str = "",
        why: str = "",
    ) -> list[datetime] | RequestedBackfill:
        """List the due times that have not run, or run them; see `Scheduler.backfill`."""
        which: dict[str, Any] = {"include": include, "at_once": at_once, "even_forgotten": even_forgotten}
        more = {**which, "by": by, "why": why}
        fill = functools.partial(self._scheduler.backfill, name, since, until, **more)
        if dry_run:
            return await asyncio.to_thread(fill)
        return await asyncio.to_thread(fill, dry_run=False)

    async def retry(self, run_id: int, *, why: str = "", by: str = "", conn: Any = None) -> AsyncRequestedRun:
        """Run a run again that failed, was lost, cancelled or skipped; see `Scheduler.retry`."""
        service, said = self._service, ChangeNote(by, why)
        if conn is None:
            return self._requested(await asyncio.to_thread(service.retry, run_id, said))
        from tenure.transactions import job_changes

        run = await asyncio.to_thread(service.look, lambda ledger: retriable(ledger, self.application, run_id))
        action, span = service.operations.action("retry", said), service.operations.traceparent()
        row = await _awaited(job_changes.retry_run(conn, service.store, run.id, said.by, action, traceparent=span))
        view = await asyncio.to_thread(service.look, lambda ledger: service.retried(ledger, run, row))
        return self._requested(view)

    pause_backfill = _in_thread(Scheduler.pause_backfill)
    resume_backfill = _in_thread(Scheduler.resume_backfill)
    cancel_backfill = _in_thread(Scheduler.cancel_backfill)
    backfills = _in_thread(Scheduler.backfills)
    find_backfill = _in_thread(Scheduler.find_backfill)
    retry_failed = _in_thread(Scheduler.retry_failed)
    cancel = _in_thread(Scheduler.cancel)
    pool = _in_thread(Scheduler.pool)
    pools = _in_thread(Scheduler.pools)
    ask_planner_to_resign = _in_thread(Scheduler.ask_planner_to_resign)

    @asynccontextmanager
    async def once(self, key: str, within: Duration | None = None) -> AsyncIterator[bool]:
        """`async with scheduler.once("2026-11-15") as first:` is True for the first caller; see `Scheduler.once`."""
        guard = self._scheduler.once(key, within)

        def give_back(error: BaseException) -> object:
            return guard.__exit__(type(error), error, error.__traceback__)

        first = await enter(guard.__enter__, lambda: give_back(asyncio.CancelledError()))
        try:
            yield first
        except BaseException as error:
            await undone(
                functools.partial(give_back, error),
                f"once(): the key {key!r} could not be given back, and counts as used though its block has failed",
            )
            raise
        guard.__exit__(None, None, None)

    close = _in_thread(Scheduler.close)

    # Queries

    jobs = _in_thread(Scheduler.jobs)
    find_job = _in_thread(Scheduler.find_job)
    runs = _in_thread(Scheduler.runs)
    find_run = _in_thread(Scheduler.find_run)
    log = _in_thread(Scheduler.log)
    log_lines = _in_thread(Scheduler.log_lines)
    actions = _in_thread(Scheduler.actions)
    next = _in_thread(Scheduler.next)
    history = _in_thread(Scheduler.history)
    stats = _in_thread(Scheduler.stats)
    audit = _in_thread(Scheduler.audit)
    why = _in_thread(Scheduler.why)
    explain = _in_thread(Scheduler.explain)
    nodes = _in_thread(Scheduler.nodes)
    attention = _in_thread(Scheduler.attention)
    alerts = _in_thread(Scheduler.alerts)

    async def health(self) -> Health:
        """The state of this node, without asking the database."""
        return self._scheduler.health()

    async def _change(self, operation: DeferredOperation[JobChange], conn: Any) -> JobView:
        if conn is None:
            return await asyncio.to_thread(self._service.change, operation)
        from tenure.transactions import job_changes

        left = TRIES
        while True:
            seen = await self._seen(operation, conn)
            change = await asyncio.to_thread(operation, seen)
            row = await _awaited(job_changes.change(conn, self._service.store, change))
            left -= 1
            if row is not None or change.generation is None or not left:
                break
        return await asyncio.to_thread(self._service.changed, seen, change, row)

    async def _request(self, operation: DeferredOperation[RunRequest], conn: Any) -> RunView:
        if conn is None:
            return await asyncio.to_thread(self._service.request, operation)
        from tenure.transactions import job_changes

        seen = await self._seen(operation, conn)
        request = await asyncio.to_thread(operation, seen)
        row = await _awaited(job_changes.request_run(conn, self._service.store, request))
        return await asyncio.to_thread(self._service.requested, seen, request, row)

    async def _seen(self, operation: DeferredOperation[Any], conn: Any) -> Seen:
        await asyncio.to_thread(self._service.prepare)
        return self._service.seen(operation, await _awaited(self._service.sight(conn, operation)))


async def _awaited(outcome: Any) -> Any:
    """The outcome of a sync or an async connection."""
    return await outcome if inspect.isawaitable(outcome) else outcome


def threaded_of(scheduler: Scheduler | AsyncScheduler) -> Scheduler:
    """The scheduler behind an async one, or the scheduler itself; for tenure's own modules."""
    return scheduler._scheduler if isinstance(scheduler, AsyncScheduler) else scheduler  # noqa: SLF001 - the one way in
