"""Operations on jobs and runs: add, update, remove, pause, resume, run now, backfill, retry, cancel.

Nothing here runs anything. Each change is first computed as a value, so that it can be written over a connection of our
own or in the caller's transaction.
"""

from __future__ import annotations

import difflib
import logging
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final, Protocol, get_args

from tenure.core.backfills import DEFAULT_INCLUDE, takes
from tenure.core.following import refuse_cycles, refuse_to_follow, unknown_parent
from tenure.core.job_options import rules
from tenure.core.keys import digest_of, due_key, generated_key, is_generated
from tenure.core.messages import Action, JobChange, NewRun, RunQuery, RunRequest, Unplanned
from tenure.core.planning import LOOK_AHEAD, ahead, late, plan, reading_of
from tenure.core.records import (
    Change,
    IfWaiting,
    Instant,
    JobRow,
    JobSpec,
    JobState,
    Override,
    Rules,
    RunId,
    RunRow,
    RunState,
)
from tenure.core.run_rules import retries
from tenure.core.trigger_text import read_trigger
from tenure.errors import ConfigurationError, JobError, JobExists, RunError, UnknownJob
from tenure.stores.ledger import Ledger
from tenure.triggers import At, Trigger, from_json, tzdata_version
from tenure.util.clock import boottime, sleep
from tenure.util.durations import Duration, readable, seconds
from tenure.util.instants import instant, moment, shown
from tenure.util.names import named
from tenure.util.plurals import a_type, counted, several

logger = logging.getLogger("tenure")

ANSWER_POLL = 0.002, 0.1
"""How often to ask whether all nodes have answered: at first, and at the longest."""
MAX_BACKFILL = 10_000
"""The most due times of one backfill."""
MAX_RETRIES = 10_000
"""The most runs of one `retry_failed`."""
SLICE = 500
"""Runs of one transaction."""
FEW = 3
"""Jobs that a message names."""
MAX_WORDS = 1000
"""The most characters of `by`, and of `why`."""
MOST = 2_147_483_647
"""The largest size of a pool."""

_ENDED = {
    RunState.SUCCEEDED: "succeeded",
    RunState.FAILED: "failed",
    RunState.LOST: "been lost",
    RunState.CANCELLED: "been cancelled",
}
_DUE_KEY = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


class Unset:
    """The type of `UNSET`."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset()
"""An argument of `update` that was not given: the job keeps what it has."""


@dataclass(frozen=True, slots=True)
class ChangeNote:
    """Who does something, and why: both are for human readers."""

    by: str = ""
    why: str = ""

    def __post_init__(self) -> None:
        given: dict[str, object] = {"by": self.by, "why": self.why}
        for what, text in given.items():
            if not isinstance(text, str) or len(text) > MAX_WORDS or "\0" in text:
                raise ConfigurationError(f"{what}: {text!r:.80} must be text of at most {MAX_WORDS} characters.")

    @property
    def given(self) -> bool:
        """True if a person does this: it says who, or why. Only then is it an action."""
        return bool(self.by or self.why)


NOBODY = ChangeNote()


def action_of(verb: str, said: ChangeNote, origin: str, detail: str = "") -> Action | None:
    """What the log of actions says of an operation; None if no person does it."""
    if not said.given:
        return None
    return Action(verb.replace("_", "-"), said.by, said.why, origin[:MAX_WORDS], detail[:MAX_WORDS])


def pool_name(name: object) -> str:
    """The name of a pool, as the option `pool` takes it."""
    return named(name, "pool: the name")


def pool_size(size: object) -> int:
    """The size of a pool."""
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MOST:
        raise ConfigurationError(
            f"pool: the size {size!r:.40} is not a whole number from 0 to {MOST:,}. Write how many runs of its jobs "
            "may run at once; 0 begins none."
        )
    return size


class Looks(Protocol):
    """What must be read to compute a change: from a `Ledger`, or over the caller's own connection."""

    def now(self) -> Instant: ...
    def jobs(self, application: str, name: str | None = None, *, removed: bool = False) -> list[JobRow]: ...
    def functions(self, application: str) -> frozenset[str]: ...
    def applications(self) -> list[str]: ...
    def runs(self, query: RunQuery) -> list[RunRow]: ...


def known(ledger: Looks, application: str, name: str) -> JobRow:
    """The job of this name. Raises an error that suggests similar names."""
    rows = ledger.jobs(application, named(name, "job name"))
    if not rows:
        raise unknown(ledger, application, name)
    return rows[0]


def refuse_parent(ledger: Looks, spec: JobSpec, here: Mapping[str, JobSpec] | None = None) -> None:
    """Raise if the job that a job follows does not exist, or follows it in turn. `here` are definitions on their way to
    the ledger."""
    brought = {**(here or {}), spec.name: spec}

    def parent(name: str) -> str | None:
        if name in brought:
            return brought[name].rules.after
        rows = ledger.jobs(spec.application, name)
        return rows[0].spec.rules.after if rows else None

    wanted = spec.rules.after
    if wanted is None:
        return
    if wanted not in brought and not ledger.jobs(spec.application, wanted, removed=True):
        names = {*brought, *(row.spec.name for row in ledger.jobs(spec.application))}
        raise unknown_parent(spec.name, wanted, names)
    refuse_cycles(spec.name, parent)


def unknown(ledger: Looks, application: str, name: str) -> UnknownJob:
    """The error for a job that does not exist."""
    if tombstones := ledger.jobs(application, name, removed=True):
        what = tombstone(tombstones[0])
        return UnknownJob(
            f"application {application!r} has no job {name!r}: {what}. `tenure restore {name}` brings it back."
        )
    names = [row.spec.name for row in ledger.jobs(application)]
    near = difflib.get_close_matches(name, names, 3)
    if near:
        advice = f"Did you mean {' or '.join(map(repr, near))}?"
    elif names:
        advice = f"It has {counted(len(names), 'other')}; `tenure jobs` lists them."
    elif others := [other for other in ledger.applications() if other != application]:
        advice = f"It has none; there are jobs of {', '.join(map(repr, others[:5]))}."
    else:
        advice = "It has none: jobs that are defined in code are there once a node has started."
    error = UnknownJob(f"application {application!r} has no job {name!r}. {advice}")
    error.job = name
    return error


def tombstone(job: JobRow, zone: tzinfo = UTC) -> str:
    """Who removed a job, and when."""
    by = f" by {job.removed_by}" if job.removed_by else ""
    return f"it was removed{by}" + (f" at {shown(job.removed_at, zone)}" if job.removed_at is not None else "")


def restored(job: JobRow, now: Instant, said: ChangeNote = NOBODY) -> JobChange:
    """Bring a removed job back as it was, due from now on."""
    if job.state is not JobState.REMOVED:
        raise JobExists(
            f"restore: job {job.spec.name!r} of application {job.spec.application!r} is {job.state}, not removed. "
            "There is nothing to restore."
        )
    change = added(job.spec, now, ChangeNote(said.by, said.why or "restored"))
    return replace(change, generation=job.generation, override=job.override)


def added_over(job: JobRow, change: JobChange, now: Instant) -> JobChange:
    """The change that adds a job at run time under a name that code also defines, after that job was removed, or was
    added this way before and is done. It counts as an update; otherwise the next start would undo it."""
    free = job.state is JobState.REMOVED or (job.state is JobState.DONE and not job.spec.in_code)
    if change.spec is None or not job.code.in_code or not free:
        return change
    spec = replace(change.spec, in_code=True)
    if spec.same_as(job.code):
        return replace(change, spec=spec, generation=job.generation)
    return replace(change, override=_override(job, now, ChangeNote(change.by, change.why)), generation=job.generation)


def exists(application: str, name: str) -> JobExists:
    """The error for a job that already exists."""
    return JobExists(
        f"application {application!r} has a job {name!r} already. Update it, or add it under another name."
    )


def exist(application: str, names: Sequence[str], added: int) -> JobExists:
    """The error for jobs that exist, among many that were to be added."""
    few = several(map(repr, names), 5)
    return JobExists(
        f"application {application!r} has {few} already: left as {'it is' if len(names) == 1 else 'they are'}. "
        f"{counted(added, 'other')} of this call {'was' if added == 1 else 'were'} added. "
        "Update what exists, or add it under another name."
    )


def added(spec: JobSpec, now: Instant, said: ChangeNote = NOBODY) -> JobChange:
    """Add a job, due from now on."""
    trigger = None if spec.trigger is None else from_json(spec.trigger)
    next_due, runs = (None, ()) if trigger is None else _from_now_on(trigger, spec, now)
    return JobChange(
        application=spec.application,
        name=spec.name,
        what=Change.ADDED,
        spec=spec,
        next_due=next_due,
        runs=runs,
        by=said.by,
        why=said.why,
        next_reading=reading_of(trigger, next_due),
    )


def why_done(ledger: Looks, job: JobRow, zone: tzinfo, planned: Iterable[NewRun] = ()) -> str:
    """Why a job that was just added will not run. `planned` are runs that are not in the ledger yet."""
    trigger = None if job.spec.trigger is None else from_json(job.spec.trigger)
    if not isinstance(trigger, At):
        return "it has no due time left, so nothing of it runs"
    due = instant(trigger.when)
    query = RunQuery(job.spec.application, job.spec.name, since=due, before=due + 1, limit=100)
    run = next((run for run in ledger.runs(query) if run.key == due_key(due)), None)
    when = shown(due, zone)
    skipped = run is None and any(one.scheduled_for == due and one.state is RunState.SKIPPED for one in planned)
    if skipped or (run is not None and run.state is RunState.SKIPPED):
        grace = readable(job.spec.rules.on_time)
        return f"its due time {when} is more than {grace} (grace) past, so it is skipped as missed"
    if run is None:
        return f"its due time {when} has run already or is too long past, so it does not run"
    ended = _ENDED.get(run.state, run.state)
    return f"its due time {when} has {ended} already (run {run.id}), so it does not run again"


def updated(
    job: JobRow,
    now: Instant,
    *,
    trigger: Trigger | Unset | None = UNSET,
    kwargs: str | Unset = UNSET,
    policy: Mapping[str, object] | None = None,
    said: ChangeNote = NOBODY,
) -> JobChange:
    """Give a job another trigger, other arguments or options. What is due already, or was missed, stays so."""
    spec = job.spec
    if policy:
        spec = replace(spec, rules=amended(job.spec.rules, policy, where=f"job {job.spec.name!r}"))
    if not isinstance(kwargs, Unset):
        spec = replace(spec, kwargs=kwargs)
    if not isinstance(trigger, Unset):
        spec = replace(spec, trigger=None if trigger is None else trigger.to_json())
    refuse_to_follow(spec.name, spec.rules, trigger=spec.trigger is not None)
    return _redefined(job, spec, now, said)


def reset(job: JobRow, now: Instant, said: ChangeNote = NOBODY) -> JobChange:
    """Undo updates made by hand: the job is again as the code defines it."""
    name, application = job.spec.name, job.spec.application
    if job.override is None:
        so = "has no change by hand" if job.spec.in_code else "was added at run time, and no code defines it"
        raise JobError(f"reset: job {name!r} of application {application!r} {so}. There is nothing to reset.")
    return _redefined(job, job.code, now, ChangeNote(said.by, said.why or "reset to the code's definition"))


def _redefined(job: JobRow, spec: JobSpec, now: Instant, said: ChangeNote) -> JobChange:
    past = _unplanned(job, now)
    starts = _ahead if spec.trigger == job.spec.trigger else _from_now_on
    planned = None if spec.trigger is None else from_json(spec.trigger)
    spec = replace(spec, tzdata=max(spec.tzdata, tzdata_version()) if planned is not None and planned.zoned else "")
    next_due, runs = (None, ()) if planned is None else starts(planned, spec, now)
    return JobChange(
        application=spec.application,
        name=spec.name,
        what=Change.UPDATED,
        spec=spec,
        next_due=next_due,
        runs=(*past, *runs),
        by=said.by,
        why=said.why,
        generation=job.generation,
        next_reading=reading_of(planned, next_due),
        override=_overridden(job, spec, now, said),
    )


def _overridden(job: JobRow, spec: JobSpec, now: Instant, said: ChangeNote) -> Override | None:
    """Who changed a definition so that it differs from the code's."""
    if not job.code.in_code or spec.same_as(job.code):
        return None
    return job.override if spec.same_as(job.spec) else _override(job, now, said)


def _override(job: JobRow, now: Instant, said: ChangeNote) -> Override:
    return Override(replace(job.code, release=0), now, said.by, said.why)


def amended(old: Rules, policy: Mapping[str, object], *, where: str) -> Rules:
    """The rules with some options changed. A new `overlap` brings its own `max_running` unless that is given too."""
    kept: dict[str, object] = asdict(old)
    if "overlap" in policy and "max_running" not in policy:
        del kept["max_running"]
    if "after" in policy and policy["after"] is None and "on" not in policy:
        del kept["on"]
    return rules({**kept, **policy}, where=where)


def paused(job: JobRow, now: Instant, until: Duration | datetime | None, said: ChangeNote = NOBODY) -> JobChange:
    """Plan and begin no runs of this job until it is resumed, or until `until`."""
    return replace(_ceased(job, now, Change.PAUSED, said), until=None if until is None else _later(until, now))


def resumed(job: JobRow, now: Instant, said: ChangeNote = NOBODY) -> JobChange:
    """Go on from now. Due times that fell into the pause are not made up."""
    trigger = None if job.spec.trigger is None else from_json(job.spec.trigger)
    next_due, runs = (None, ()) if trigger is None else _ahead(trigger, job.spec, now)
    return JobChange(
        application=job.spec.application,
        name=job.spec.name,
        what=Change.RESUMED,
        next_due=next_due,
        next_reading=reading_of(trigger, next_due),
        runs=runs,
        by=said.by,
        why=said.why,
    )


def until_answered(ledger: Ledger, job: JobRow, began_at: float | None = None) -> tuple[str, ...]:
    """Wait until no more runs of a job that was just paused or removed can begin, because the nodes have given back
    what they had claimed ahead.

    Returns the labels of the nodes that have not answered within their ttl, counted from `began_at` (default: now).
    """
    began_at, pause = boottime() if began_at is None else began_at, ANSWER_POLL[0]
    while silent := ledger.unbegun(job.id, job.generation):
        left = began_at + max(ttl for _, ttl in silent) - boottime()
        if left <= 0:
            return tuple(label for label, _ in silent)
        sleep(min(pause, left))
        pause = min(2 * pause, ANSWER_POLL[1])
    return ()


def removed(job: JobRow, now: Instant, said: ChangeNote = NOBODY) -> JobChange:
    """Remove a job. A running attempt goes on to its end."""
    return _ceased(job, now, Change.REMOVED, said)


def requested(job: JobRow, key: str | None, kwargs: str | None, said: ChangeNote = NOBODY) -> RunRequest:
    """Request a run as soon as there is room. The same key twice is the same run."""
    if kwargs == "{}" == job.spec.kwargs:
        kwargs = None  # the same as giving none
    return RunRequest(job.spec.application, job.spec.name, _key(job, key), None, kwargs=kwargs, by=said.by)


@dataclass(frozen=True, slots=True)
class Later:
    """When a run is requested for, and under which slot."""

    when: datetime | str | None
    after: Duration | None
    slot: str | None = None
    if_waiting: IfWaiting = "keep"

    def __post_init__(self) -> None:
        if (self.when is None) == (self.after is None):
            raise ConfigurationError("run_at: write a time or in_='5m', one of them.")
        if isinstance(self.when, str) and self.when.strip().startswith("-"):
            raise ConfigurationError(f"run_at: {self.when!r} is in the past. Write a time to come, or in_='5m'.")
        if self.if_waiting not in get_args(IfWaiting):
            raise ConfigurationError(
                f"if_waiting: {self.if_waiting!r} is not known. Write 'keep', 'replace' or 'later'."
            )
        if self.slot is None and self.if_waiting != "keep":
            raise ConfigurationError(
                f"if_waiting={self.if_waiting!r} says what becomes of the run that waits in a slot. "
                "Write slot='reindex:42' as well."
            )
        if self.slot is not None:
            named(self.slot, "slot")
        if self.after is not None and seconds(self.after, "in_") < 0:
            raise ConfigurationError(f"in_: {self.after!r} is less than zero. Write in_=0 for now, or a time to come.")
        if self.when is not None:
            point(self.when, 0.0, "when")

    def at(self, now: Instant) -> Instant:
        """The instant, by the ledger's clock."""
        if self.after is not None:
            return round(now + seconds(self.after, "in_"), 6)
        return point(self.when or "", now, "when")


def requested_later(
    job: JobRow, later: Later, now: Instant, *, key: str | None, kwargs: str | None, said: ChangeNote = NOBODY
) -> RunRequest:
    """A run at a time to come. Under a slot there is at most one of the job that has not begun."""
    if key is not None and later.slot is not None:
        raise ConfigurationError(
            f"run_at: key={key!r} names one run for ever, slot={later.slot!r} the run that waits now. "
            "Write one of them."
        )
    request = requested(job, key, kwargs, said)
    return replace(request, scheduled_for=later.at(now), slot=later.slot, if_waiting=later.if_waiting)


def _key(job: JobRow, key: str | None) -> str:
    if key is None:
        key = generated_key(secrets.token_hex(8))
    elif is_generated(key):
        raise ConfigurationError(f"key: {key!r} has the form of the keys that tenure makes itself. Write another.")
    elif _DUE_KEY.fullmatch(named(key, "key")):
        raise ConfigurationError(
            f"key: {key!r} is the key of a due time. Write another, "
            f"or backfill('{job.spec.name}', …) for that due time."
        )
    return key


@dataclass(frozen=True, slots=True)
class Backfillable:
    """The due times of a span that a backfill may run."""

    due: list[Instant]
    forgotten: int = 0
    """How many are from before `kept_since` and have no row: they may have run. `due` has them only on request."""


def refuse_other_arguments(request: RunRequest, run: RunRow) -> None:
    """Refuse a request for an existing key with other arguments: the same key is the same run."""
    same = request.kwargs == run.kwargs if run.digest is None else digest_of(request.kwargs) == run.digest
    if request.backfill or request.slot is not None or same:
        return
    as_defined = run.kwargs is None and not run.digest
    now = _AS_DEFINED if request.kwargs is None else f"kwargs={request.kwargs:.300}"
    # Not which: this caller may not be allowed to see them. A digest would let a caller try what they might be.
    raise ConfigurationError(
        f"run_now: key {request.key!r} of job {request.name!r} was asked for with "
        f"{_AS_DEFINED if as_defined else 'other arguments'} (run {run.id}, {run.state}), and now with {now}. "
        "The same key is the same run: write another key, or the same arguments."
    )


_AS_DEFINED = "the arguments of the job"


def backfillable(
    ledger: Ledger,
    job: JobRow,
    since: Instant,
    until: Instant,
    now: Instant,
    *,
    even_forgotten: bool = False,
    include: Collection[str] = DEFAULT_INCLUDE,
) -> Backfillable:
    """The due times in [since, until), and not after now, that a backfill takes.

    The ledger cannot say whether a forgotten due time ran, so these are included only with `even_forgotten`.
    """
    if (parent := job.spec.rules.after) is not None:
        raise ConfigurationError(
            f"job {job.spec.name!r} follows {parent!r} and has no due times of its own. Backfill {parent!r}, "
            "and it follows."
        )
    if job.spec.trigger is None:
        raise ConfigurationError(f"job {job.spec.name!r} has no trigger, so it has no due times. Write run_now().")
    if until <= since:
        raise ConfigurationError(
            f"backfill: {moment(until):%Y-%m-%d %H:%M:%SZ} is not after {moment(since):%Y-%m-%d %H:%M:%SZ}. "
            "Write since, then until."
        )
    before = min(until, now)
    due: list[Instant] = []
    for at in _due_times(from_json(job.spec.trigger), since, before):
        if len(due) == MAX_BACKFILL:
            raise ConfigurationError(
                f"backfill: job {job.spec.name!r} has more than {MAX_BACKFILL:,} due times "
                f"from {moment(since):%Y-%m-%d %H:%M:%SZ} "
                f"to {moment(before):%Y-%m-%d %H:%M:%SZ}. Take shorter spans."
            )
        due.append(at)
    query = RunQuery(job.spec.application, job.spec.name, since=since, before=before, limit=2 * MAX_BACKFILL)
    runs = {run.key: takes(include, run.state, run.count) for run in ledger.runs(query)}
    without_run = takes(include, None)
    forgotten = {at for at in due if without_run and at < job.kept_since and due_key(at) not in runs}
    wanted = [at for at in due if runs.get(due_key(at), without_run and (even_forgotten or at not in forgotten))]
    return Backfillable(wanted, len(forgotten))


def backfilled(
    job: JobRow,
    due: Iterable[Instant],
    said: ChangeNote = NOBODY,
    *,
    even_forgotten: bool = False,
    action: Action | None = None,
) -> list[RunRequest]:
    """Runs for due times of the past, under their own keys."""
    application, name = job.spec.application, job.spec.name
    more: dict[str, Any] = {"backfill": True, "even_forgotten": even_forgotten, "by": said.by, "action": action}
    return [RunRequest(application, name, due_key(at), at, **more) for at in due]


def warn_of_forgotten(job: JobRow, count: int, zone: tzinfo, *, even_forgotten: bool) -> None:
    """Log what becomes of due times that the ledger has forgotten."""
    if not count:
        return
    few = f"{counted(count, 'due time')} up to {shown(job.kept_since, zone)}"
    because = "retention (keep_for) has removed the runs of that time, so that the ledger cannot say which of them ran"
    if even_forgotten:
        outcome = f"includes {few}: {because}. They may run a second time"
    else:
        outcome = (
            f"leaves out {few}: {because}. Write even_forgotten=True (tenure backfill --even-forgotten) to run them "
            "all the same; they may then run a second time"
        )
    logger.warning("backfill of %r %s", job.spec.name, outcome, extra={"action": "backfill_forgotten"})


@dataclass(frozen=True, slots=True)
class Which:
    """One run: by its number, by its job and key, or by the slot that it waits in."""

    id: int | None = None
    job: str | None = None
    key: str | None = None
    slot: str | None = None

    def __post_init__(self) -> None:
        named_by = [word for word in (self.id, self.key, self.slot) if word is not None]
        if len(named_by) != 1 or (self.key is not None and self.job is None) or (self.id is not None and self.job):
            raise ConfigurationError("cancel: write the number of a run, or job= and key=, or slot= (and job=).")

    def find(self, ledger: Ledger, application: str) -> RunRow:
        """The run, or an error that says what there is."""
        if self.id is not None:
            return _numbered(ledger, application, self.id)
        if self.job is not None:
            known(ledger, application, self.job)
        if self.key is not None:
            rows = ledger.runs(RunQuery(application, self.job, key=named(self.key, "key")))
            if not rows:
                raise RunError(f"job {self.job!r} of application {application!r} has no run with the key {self.key!r}.")
            return rows[0]
        rows = ledger.runs(RunQuery(application, self.job, slot=named(self.slot, "slot")))
        if not rows:
            of = "" if self.job is None else f" of {self.job!r}"
            raise RunError(
                f"no run{of} waits in the slot {self.slot!r}: it has begun, was cancelled, or was never requested."
            )
        if len(rows) > 1:
            jobs = " and ".join(sorted(repr(row.name) for row in rows))
            raise RunError(
                f"runs of {jobs} wait in a slot {self.slot!r}. Write job= (tenure cancel JOB --slot …) as well."
            )
        return rows[0]


def cancelled(
    ledger: Ledger, application: str, which: Which, said: ChangeNote = NOBODY, action: Action | None = None
) -> RunRow:
    """Cancel a run at once if it has not begun; otherwise ask its body to end."""
    run = which.find(ledger, application)
    after = ledger.cancel(run.id, said.by, said.why, action)
    if after is None:
        raise _no_run(application, run.id)
    return after


def retriable(ledger: Ledger, application: str, run_id: int) -> RunRow:
    """The run of this number, if it may be retried."""
    run = _numbered(ledger, application, run_id)
    what = f"retry: run {run.id} of {run.name!r} (key {run.key})"
    if run.state is RunState.SUCCEEDED:
        raise RunError(
            f"{what} has succeeded. A key runs to success once: write run_now({run.name!r}) for another run."
        )
    if not run.state.final:
        raise RunError(f"{what} is not over: it is {run.state}. Wait for its end, or cancel it first.")
    if not retries(run.state, run.count):
        raise RunError(
            f"{what} stands for {run.count:,} due times that were skipped together. "
            f"Write backfill({run.name!r}, since, until) for them."
        )
    (job,) = ledger.jobs(application, run.name, removed=True)
    if job.state is JobState.REMOVED:
        raise UnknownJob(
            f"{what} cannot run: {tombstone(job)}. "
            f"scheduler.restore({run.name!r}) or `tenure restore {run.name}` brings the job back."
        )
    return run


def overtaken(ledger: Ledger, application: str, run_id: int) -> RunError:
    """The error for a run that could be retried a moment ago, and now cannot."""
    run = retriable(ledger, application, run_id)
    return RunError(
        f"retry: run {run.id} of {run.name!r} (key {run.key}) was changed by another transaction that is still open, "
        "perhaps your own. Try again."
    )


def failed_runs(ledger: Ledger, job: JobRow, since: Instant, until: Instant | None) -> list[RunRow]:
    """The runs of a job in [since, until) that failed or were lost, oldest first."""
    if until is not None and until <= since:
        raise ConfigurationError(
            f"retry_failed: {moment(until):%Y-%m-%d %H:%M:%SZ} is not after {moment(since):%Y-%m-%d %H:%M:%SZ}. "
            "Write since, then until."
        )
    states = RunState.FAILED, RunState.LOST
    query = RunQuery(
        job.spec.application, job.spec.name, states, since, until, limit=MAX_RETRIES + 1, oldest_first=True
    )
    runs = [run for run in ledger.runs(query) if run.job == job.id]
    if len(runs) > MAX_RETRIES:
        raise ConfigurationError(
            f"retry_failed: more than {MAX_RETRIES:,} runs of {job.spec.name!r} failed or were lost in this span. "
            "Take shorter spans."
        )
    return runs


def retried(
    ledger: Ledger, runs: Sequence[RunId], by: str, action: Action | None, traceparent: str = ""
) -> list[RunRow]:
    """Retry these runs, a slice in each transaction. Leaves out those that others have changed meanwhile."""
    done: list[RunRow] = []
    for first in range(0, len(runs), SLICE):
        answers = ledger.retry(runs[first : first + SLICE], by, None if done else action, traceparent)
        done += [row for row in answers if row is not None]
    return done


def _numbered(ledger: Ledger, application: str, run_id: int) -> RunRow:
    """The run of this number."""
    if type(run_id) is not int:
        raise ConfigurationError(f"run: {run_id!r} is {a_type(run_id)}. Write the number of a run: run.id.")
    return found(ledger, application, run_id)


def found(ledger: Ledger, application: str, run: int | str, job: str | None = None) -> RunRow:
    """The run of this number, or of this key, among the runs of one job or of all jobs."""
    if type(run) is int:
        rows = ledger.runs(RunQuery(application, job, id=RunId(run), limit=1))
    elif isinstance(run, str) and "\0" not in run and run.isprintable():
        rows = ledger.runs(RunQuery(application, job, key=run, limit=FEW + 1))
    else:
        raise ConfigurationError(f"run: {run!r} is {a_type(run)}. Write a number, run.id, or a key, run.key.")
    if not rows:
        raise _no_run(application, run, job)
    if len(rows) > 1:
        names = ", ".join(repr(row.name) for row in rows[:FEW]) + (" and others" if len(rows) > FEW else "")
        raise ConfigurationError(
            f"run: {run!r} is the key of runs of several jobs: {names}. Say which job, or write the number of the run."
        )
    return rows[0]


def states(given: str | Iterable[str] | None) -> tuple[RunState, ...]:
    """The states of these names."""
    if given is None:
        return ()
    listed = []
    for word in [given] if isinstance(given, str) else given:
        try:
            listed.append(RunState(word))
        except ValueError:
            words = ", ".join(repr(state.value) for state in RunState)
            raise ConfigurationError(f"state: {word!r} is not known. Write one or more of {words}.") from None
    return tuple(listed)


def point(given: datetime | str, now: Instant, what: str) -> Instant:
    """An instant: a datetime, an ISO text with a zone, or '-1d' for a day ago."""
    if isinstance(given, datetime):
        return instant(given)
    if not isinstance(given, str):
        raise ConfigurationError(f"{what}: {given!r} is {a_type(given)}. Write {_POINTS}.")
    text = given.strip()
    if text.startswith("-"):
        return now - seconds(text[1:], what)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{what}: {given!r} is not a point in time. Write {_POINTS}.") from None
    return instant(when)


_POINTS = "an aware datetime, a text such as '2026-11-14T12:00Z', or '-1d' for a day ago"


def _no_run(application: str, run: int | str, job: str | None = None) -> RunError:
    what = f"run {run}" if isinstance(run, int) else f"run with the key {run!r}"
    where = f"application {application!r}" if job is None else f"job {job!r} of application {application!r}"
    return RunError(f"{where} has no {what}. It may have been removed by retention (keep_for, keep).")


def _ahead(trigger: Trigger, spec: JobSpec, now: Instant) -> tuple[Instant | None, tuple[NewRun, ...]]:
    return ahead(trigger, spec.rules, application=spec.application, name=spec.name, now=now, horizon=now + LOOK_AHEAD)


def _from_now_on(trigger: Trigger, spec: JobSpec, now: Instant) -> tuple[Instant | None, tuple[NewRun, ...]]:
    """The first due times of a new trigger: none from the past, except that of an `at` that has passed."""
    next_due, runs = _ahead(trigger, spec, now)
    return next_due, (*late(trigger, spec.rules, application=spec.application, name=spec.name, now=now), *runs)


def _unplanned(job: JobRow, now: Instant) -> tuple[NewRun, ...]:
    """The due times that have passed and that no node has planned, by the old trigger if it can be read."""
    spec, next_due = job.spec, job.next_due
    runs: list[NewRun] = []
    if job.state is not JobState.ACTIVE or spec.trigger is None:
        return ()
    trigger, _ = read_trigger(spec.trigger)
    while trigger is not None and next_due is not None and next_due <= now:
        rest = Unplanned(job.id, spec.name, job.generation, next_due, spec.trigger, spec.rules)
        try:
            planned = plan(rest, trigger, application=spec.application, now=now, horizon=now)
        except ConfigurationError:
            break  # nodes say so, and plan nothing either
        if planned is None:
            break
        runs += planned.runs
        next_due = planned.then_due
    return tuple(runs)


def _ceased(job: JobRow, now: Instant, what: Change, said: ChangeNote) -> JobChange:
    """Let nothing be due from now on. Earlier due times that no node has planned are written too, so that the ledger
    says what became of them."""
    past = _unplanned(job, now)
    return JobChange(
        application=job.spec.application,
        name=job.spec.name,
        what=what,
        runs=past,
        by=said.by,
        why=said.why,
        generation=job.generation if past else None,
    )


def _due_times(trigger: Trigger, since: Instant, before: Instant) -> Iterator[Instant]:
    due = trigger.next_after(moment(since) - timedelta(microseconds=1))
    while due is not None and (at := instant(due)) < before:
        yield at
        due = trigger.next_after(due)


def _later(until: Duration | datetime, now: Instant) -> Instant:
    at = instant(until) if isinstance(until, datetime) else now + seconds(until, "until")
    if at <= now:
        raise ConfigurationError(
            f"until: {until!r} is in the past. Write how long, such as '2h', or a datetime to come."
        )
    return at
