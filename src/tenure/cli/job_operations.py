"""Commands that change jobs and runs. They write to the ledger, and the nodes that have the functions act on it."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from tenure.cli import selection
from tenure.cli.elections import POLL
from tenure.cli.jobs import NOW, application, datetime_of, outlook, sentence, shown_time
from tenure.cli.output import as_json, say, show, table
from tenure.cli.person import person
from tenure.core.arguments import decode
from tenure.core.messages import JobChange
from tenure.core.records import OPEN, JobState, RunState
from tenure.errors import ConfigurationError, UnreadableArguments
from tenure.jobs import operations
from tenure.jobs.deferred_operations import DeferredOperation
from tenure.jobs.queries import MAX_RUNS
from tenure.scheduler import Scheduler, service_of
from tenure.util.clock import boottime, sleep
from tenure.util.durations import positive, seconds
from tenure.util.last_line import last_line
from tenure.util.plurals import counted
from tenure.views import RunView

ASKING = 1.0
"""Seconds after which `pause` and `remove` say that they wait for nodes."""
SHOWN = 40


def run_now(arguments: argparse.Namespace) -> int:
    """Request a run, or a run of each job that matches."""
    patience = None if arguments.wait is None else positive(arguments.wait, "wait")
    kwargs = _kwargs(arguments.kwargs)
    many = selection.several(arguments)
    with application(arguments) as scheduler:
        who, why = person(arguments), arguments.why
        if many:
            rows = selection.select(arguments, scheduler)
            names = [row.spec.name for row in rows]
            if (code := selection.agreed(arguments, "run", selection.jobs_of(rows), names)) is not None:
                return code
            wanted, said = service_of(scheduler).operations.run_now, operations.ChangeNote(who, why)
            runs = service_of(scheduler).request_many(
                rows, lambda name: wanted(name, kwargs, arguments.key, said), selection.progress("jobs requested")
            )
        else:
            runs = [scheduler.run_now(arguments.job, kwargs=kwargs, key=arguments.key, by=who, why=why)]
        if patience is not None:
            runs = _awaited(scheduler, runs, patience)
    bad = [run for run in runs if run.state != "succeeded"]
    if not many:
        _tell(arguments, runs[0].as_dict(), _ended(runs[0], waited=patience is not None))
    elif arguments.json:
        as_json([run.as_dict() for run in runs])
    else:
        for run in bad[:SHOWN] if patience is not None else ():
            show(_ended(run, waited=True))
        done = f", {len(runs) - len(bad)} succeeded" if patience is not None else ""
        show(f"requested {counted(len(runs), 'run')}{done}")
    return 0 if patience is None or not bad else 1


def _awaited(scheduler: Scheduler, runs: Sequence[RunView], patience: float) -> list[RunView]:
    """The same runs when all of them have ended, or the patience has."""
    end, found = boottime() + patience, {run.id: run for run in runs}
    while boottime() < end and (left := [run.id for run in found.values() if not RunState(run.state).final]):
        sleep(POLL)
        found |= {run: scheduler.find_run(run) for run in left}
    return list(found.values())


def _ended(run: RunView, *, waited: bool) -> str:
    """How a requested run is; if it failed, with the last line of the error and what to type for the rest."""
    if not waited or run.state not in {"failed", "lost"}:
        return sentence(run)
    return f"{sentence(run)}: {last_line(run.reason)}. The whole error: tenure log {run.id}"


def run_at(arguments: argparse.Namespace) -> int:
    """Request a run for a time to come."""
    kwargs = _kwargs(arguments.kwargs)
    with application(arguments) as scheduler:
        run = scheduler.run_at(
            arguments.job,
            arguments.time,
            in_=arguments.in_,
            kwargs=kwargs,
            key=arguments.key,
            slot=arguments.slot,
            if_waiting=arguments.if_waiting,
            by=person(arguments),
            why=arguments.why,
        )
    _tell(arguments, run.as_dict(), sentence(run))
    return 0


def pause(arguments: argparse.Namespace) -> int:
    """Pause jobs. 1 if a node did not answer, because a run may still start there."""
    until = None if arguments.until is None else _until(arguments.until)
    many, who, why = selection.several(arguments), person(arguments), arguments.why
    with application(arguments) as scheduler:
        if many:
            paused, said = service_of(scheduler).operations.pause, operations.ChangeNote(who, why)
            states = (JobState.ACTIVE, JobState.DONE)
            return _change_many(
                arguments, scheduler, ("pause", "paused"), states, lambda name: paused(name, until, said)
            )
        with _patience():
            job = scheduler.pause(arguments.job, why=why, until=until, by=who)
    for_how_long = f"until {shown_time(job.paused_until)}" if job.paused_until else "until it is resumed"
    _tell(arguments, job.as_dict(), f"{job.name!r} is paused {for_how_long}")
    return 1 if job.unanswered else 0


def resume(arguments: argparse.Namespace) -> int:
    """Resume jobs."""
    many, who, why = selection.several(arguments), person(arguments), arguments.why
    with application(arguments) as scheduler:
        if many:
            resumed, said = service_of(scheduler).operations.resume, operations.ChangeNote(who, why)
            states = (JobState.PAUSED,)
            return _change_many(arguments, scheduler, ("resume", "resumed"), states, lambda name: resumed(name, said))
        job = scheduler.resume(arguments.job, why=why, by=who)
    _tell(arguments, job.as_dict(), f"{job.name!r} is active; {outlook(job)}")
    return 0


def remove(arguments: argparse.Namespace) -> int:
    """Remove jobs. 1 if a node did not answer, because a run may still start there."""
    many, who, why = selection.several(arguments), person(arguments), arguments.why
    with application(arguments) as scheduler:
        if many:
            removed, said = service_of(scheduler).operations.remove, operations.ChangeNote(who, why)
            return _change_many(arguments, scheduler, ("remove", "removed"), (), lambda name: removed(name, said))
        with _patience():
            job = scheduler.remove(arguments.job, why=why, by=who)
    back = (
        f" It is defined in code: `tenure restore {job.name}` or a change of its definition brings it back."
        if job.in_code
        else ""
    )
    _tell(arguments, job.as_dict(), f"{job.name!r} was removed; runs in progress go on to their end.{back}")
    return 1 if job.unanswered else 0


def _change_many(
    arguments: argparse.Namespace,
    scheduler: Scheduler,
    verbs: tuple[str, str],
    states: tuple[JobState, ...],
    operation: Callable[[str], DeferredOperation[JobChange]],
) -> int:
    """Do the same to all jobs that match, after they were listed. `verbs` are such as 'pause' and 'paused'."""
    verb, done = verbs
    rows = selection.select(arguments, scheduler, *states)
    names = [row.spec.name for row in rows]
    if (code := selection.agreed(arguments, verb, selection.jobs_of(rows), names)) is not None:
        return code
    with _patience():
        views = service_of(scheduler).change_many(rows, operation, selection.progress(f"jobs {done}"))
    silent = [view for view in views if view.unanswered]
    if arguments.json:
        as_json([view.as_dict() for view in views])
    else:
        show(f"{done} {counted(len(views), 'job')}")
        if len(views) < len(rows):
            say(f"{counted(len(rows) - len(views), 'job')} were removed by others in the meantime")
    return 1 if silent else 0


def restore(arguments: argparse.Namespace) -> int:
    """Undo the removal of a job."""
    with application(arguments) as scheduler:
        job = scheduler.restore(arguments.job, why=arguments.why, by=person(arguments))
    _tell(arguments, job.as_dict(), f"{job.name!r} is {job.state} again; {outlook(job)}")
    return 0


def reset(arguments: argparse.Namespace) -> int:
    """Undo updates of a job."""
    with application(arguments) as scheduler:
        job = scheduler.reset(arguments.job, why=arguments.why, by=person(arguments))
    _tell(arguments, job.as_dict(), f"{job.name!r} runs as the code defines it again; {outlook(job)}")
    return 0


def cancel(arguments: argparse.Namespace) -> int:
    """End a run, or the open runs of jobs. 1 if the run was over."""
    arguments.job = arguments.target
    if arguments.key is not None or arguments.slot is not None:
        return _cancel_named(arguments)
    if (arguments.target or "").isdecimal() and arguments.tag is arguments.queue is None:
        return _cancel_one(arguments, int(arguments.target))
    selection.several(arguments)
    with application(arguments) as scheduler:
        jobs = {row.spec.name for row in selection.select(arguments, scheduler)}
        of = next(iter(jobs)) if len(jobs) == 1 else None
        runs = [run for run in scheduler.runs(of, state=OPEN, until=NOW, limit=MAX_RUNS) if run.job in jobs]
        what, names = counted(len(runs), "run"), [sentence(run) for run in runs]
        if (code := selection.agreed(arguments, "cancel", what, names)) is not None:
            return code
        said = operations.ChangeNote(person(arguments), arguments.why)
        ended = service_of(scheduler).cancel_many(runs, said, selection.progress("runs cancelled"))
    if arguments.json:
        as_json([run.as_dict() for run in ended])
    else:
        asked = sum(run.state == "running" for run in ended)
        over = sum(run.state not in {"running", "cancelled"} for run in ended)
        more = [f"{n} {how}" for n, how in ((asked, "were asked to end"), (over, "had ended meanwhile")) if n]
        show(f"cancelled {counted(len(ended) - asked - over, 'run')}{''.join(f', {one}' for one in more)}")
    return 0


def _cancel_named(arguments: argparse.Namespace) -> int:
    """End the run with a key or in a slot."""
    which = operations.Which(job=arguments.target, key=arguments.key, slot=arguments.slot)
    with application(arguments) as scheduler:
        run = service_of(scheduler).look(lambda ledger: which.find(ledger, scheduler.application))
    return _cancel_one(arguments, run.id)


def _cancel_one(arguments: argparse.Namespace, number: int) -> int:
    with application(arguments) as scheduler:
        before = scheduler.find_run(number)
        run = scheduler.cancel(number, why=arguments.why, by=person(arguments))
    over = RunState(before.state).final
    outcome = " It was over already." if over else " It was asked to end." if run.state == "running" else ""
    _tell(arguments, run.as_dict(), f"{sentence(run)}.{outcome}" if outcome else sentence(run))
    return 1 if over else 0


def retry(arguments: argparse.Namespace) -> int:
    """Retry a run, or with --failed those of jobs that failed or were lost."""
    arguments.job = arguments.target
    if not arguments.failed:
        if not (arguments.target or "").isdecimal():
            raise ConfigurationError("retry: write the number of a run, or --failed and the jobs whose runs failed.")
        return _retry_one(arguments, int(arguments.target))
    selection.several(arguments)
    with application(arguments) as scheduler:
        failed = {
            row.spec.name: scheduler.retry_failed(row.spec.name, arguments.since, arguments.until)
            for row in selection.select(arguments, scheduler, JobState.ACTIVE, JobState.PAUSED, JobState.DONE)
        }
        names = [f"{sentence(run)}: {last_line(run.reason)}" for runs in failed.values() for run in runs]
        if (code := selection.agreed(arguments, "retry", counted(len(names), "run"), names)) is not None:
            return code
        tell, again, who = selection.progress("jobs done"), [], person(arguments)
        for number, job in enumerate([job for job, runs in failed.items() if runs], 1):
            span = job, arguments.since, arguments.until
            again += scheduler.retry_failed(*span, dry_run=False, why=arguments.why, by=who)
            tell(number, len(failed))
    if arguments.json:
        as_json([run.as_dict() for run in again])
    else:
        show(f"{counted(len(again), 'run')} will run again, as many at once as the options of their jobs allow")
    return 0


def _retry_one(arguments: argparse.Namespace, number: int) -> int:
    with application(arguments) as scheduler:
        run = scheduler.retry(number, why=arguments.why, by=person(arguments))
        held = scheduler.find_job(run.job).state == "paused"
    paused = f". {run.job!r} is paused: it begins after `tenure resume {run.job}`." if held else ""
    _tell(arguments, run.as_dict(), f"{sentence(run)}{paused}")
    return 0


def pool(arguments: argparse.Namespace) -> int:
    """Set the size of a pool."""
    with application(arguments) as scheduler:
        set_ = scheduler.pool(arguments.name, arguments.size, by=person(arguments), why=arguments.why)
        unused = all(job.rules.pool != arguments.name for job in scheduler.jobs())
    now = f"{set_.running} running, {set_.waiting} waiting"
    text = f"{counted(set_.size, 'run')} of the pool {set_.name!r} may run at once; {now}"
    _tell(arguments, set_.as_dict(), f"{text}. No job names this pool yet" if unused else text)
    return 0


def pools(arguments: argparse.Namespace) -> int:
    """List the pools."""
    with application(arguments) as scheduler:
        found = scheduler.pools()
    if arguments.json:
        as_json([one.as_dict() for one in found])
    elif not found:
        show("no job names a pool")
    else:
        rows = [
            [one.name, str(one.size) if one.is_set else f"{one.size} (not set)", str(one.running), str(one.waiting)]
            for one in found
        ]
        table(["pool", "size", "running", "waiting"], rows)
    return 0


def _tell(arguments: argparse.Namespace, data: dict[str, Any], text: str) -> None:
    if arguments.json:
        as_json(data)
    else:
        show(text)


@contextmanager
def _patience() -> Iterator[None]:
    """Says that it waits for nodes, if it takes long."""
    text = "waiting for nodes to confirm that they start no further run of it; this takes at most their ttl"
    told = threading.Timer(ASKING, say, [text])
    told.daemon = True
    told.start()
    try:
        yield
    finally:
        told.cancel()


def _kwargs(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        return decode(text)
    except UnreadableArguments as error:
        raise ConfigurationError(f"--kwargs: {error}. Write --kwargs '{{\"customer\": 7}}'.") from None


def _until(text: str) -> str | datetime:
    """Accepts '2h', or a time in ISO 8601."""
    try:
        seconds(text, "until")
    except ConfigurationError:
        if not text[:4].isdigit() or "-" not in text:
            raise
        return datetime_of(text, "until")
    return text
