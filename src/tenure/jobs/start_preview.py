"""What a start would change in the ledger, worked out without writing anything: `tenure diff`.

A start asks the ledger to bring the definitions in (`Ledger.sync`) and tells what came of it. Here the same rule
(`run_rules.synced`) is applied to the rows as they are, and the same sentences are made of what would come of it
(`definition_news.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tenure.core import run_rules
from tenure.core.keys import due_key
from tenure.core.messages import JobChange, RunQuery, Synced
from tenure.core.records import OPEN, Instant, JobId, JobRow, JobSpec, JobState, RunId, RunKind, RunState
from tenure.core.run_rules import Sync
from tenure.core.unfit import UnfitArguments
from tenure.jobs.decorators import Definitions
from tenure.jobs.definition_news import DefinitionNews, News
from tenure.jobs.operations import refuse_parent
from tenure.jobs.stored_arguments import ArgumentCheck
from tenure.stores.ledger import Ledger

STORED = 2000
"""Jobs whose arguments are read at a time."""


def preview(ledger: Ledger, definitions: Definitions, functions: Iterable[str]) -> list[News]:
    """What a start with these definitions would log. `functions` are those that the process has."""
    changes, mine = definitions.changes(ledger.now()), frozenset(functions)
    application, release = definitions.application, definitions.release
    news = DefinitionNews(ledger, application, release, definitions.tz)
    brought = {change.name: change.spec for change in changes if change.spec is not None}
    for spec in brought.values():
        refuse_parent(ledger, spec, brought)
    synced = list(_synced(ledger, release, changes))
    told = list(news.of(synced, brought, {change.name: change.runs for change in changes}))
    kept = {one.row.spec.name for one in synced if one.row.spec.function in mine}
    if changes:
        told += [one for one in news.gone(mine, replaced=True) if one.name not in kept]
    return [*told, *news.pools(brought.values())]


def unfit(ledger: Ledger, definitions: Definitions) -> list[UnfitArguments]:
    """The stored jobs and requested runs whose arguments the functions of this code do not take. A start brings those
    of jobs that the code defines."""
    check, after = ArgumentCheck(definitions.registry), ""
    brought = {job.name for job in definitions.jobs}
    while stored := ledger.stored_arguments(definitions.application, after, STORED):
        check.look(one for one in stored if one.name not in brought)
        if len(stored) < STORED:
            break
        after = stored[-1].name
    run = RunId(0)
    while asked := ledger.requested_arguments(definitions.application, run, STORED):
        check.look(asked)
        if len(asked) < STORED:
            break
        run = asked[-1].run or run
    return list(check.found())


def _synced(ledger: Ledger, release: int, changes: Iterable[JobChange]) -> Iterator[Synced]:
    """What `Ledger.sync` would answer, by name."""
    now = ledger.now()
    for change in sorted(changes, key=lambda change: change.name):
        if change.spec is None:
            continue
        rows = ledger.jobs(change.application, change.name, removed=True)
        was = rows[0] if rows else None
        row = _after(was, replace(change.spec, release=release), change, release)
        if row is not was and row.state is JobState.ACTIVE and _is_done(ledger, row, change, now):
            row = replace(row, state=JobState.DONE)
        yield Synced(row, was)


def _after(was: JobRow | None, spec: JobSpec, change: JobChange, release: int) -> JobRow:
    """The job after a sync, as far as the news depend on it."""
    what = run_rules.synced(was, spec, release)
    if was is None:
        return JobRow(JobId(0), spec, JobState.ACTIVE, 1, change.next_due)
    if what is Sync.LEAVE:
        return was
    if what is Sync.RAISE:
        return replace(was, spec=run_rules.raised(was, spec))
    state = was.state if what is Sync.UPDATE and was.state is not JobState.DONE else JobState.ACTIVE
    return replace(was, spec=spec, state=state, generation=was.generation + 1, next_due=change.next_due, override=None)


def _is_done(ledger: Ledger, row: JobRow, change: JobChange, now: Instant) -> bool:
    """True if a job that was added or changed has nothing left to do: no due time, and no run that is open."""
    if row.spec.trigger is None or row.next_due is not None:
        return False
    keys = RunQuery(change.application, change.name, limit=1)
    for new in run_rules.not_forgotten(change.runs, row.kept_since, now):
        there = ledger.runs(replace(keys, key=due_key(new.scheduled_for)))
        if new.state is RunState.PENDING and (new.scheduled_for > now or not there):
            return False
    left = ledger.runs(RunQuery(change.application, change.name, tuple(OPEN), limit=1000))
    return all(run.kind is RunKind.DUE and run.attempt == 0 and run.scheduled_for > now for run in left)
