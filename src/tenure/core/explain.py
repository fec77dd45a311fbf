"""Answers `tenure why`: one or two sentences about a job, for a given time or for now, from what the ledger knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import tzinfo

from tenure.core.differences import in_force
from tenure.core.job_history import TriggerPeriod, stretches
from tenure.core.planning import last_due
from tenure.core.records import OPEN, STOPPED, ChangeRecord, Instant, JobRow, JobState, RunKind, RunRow, RunState
from tenure.core.trigger_text import zone_of
from tenure.errors import ConfigurationError
from tenure.triggers import Trigger
from tenure.util.durations import readable
from tenure.util.instants import instant, moment, shown
from tenure.util.plurals import counted

NEAR = 60.0
"""A given time means the due time within this many seconds of it."""
_LATE = 1.0
_CHANGE_NEAR = 86400.0


def why(
    job: JobRow,
    changes: Sequence[ChangeRecord],
    runs: Iterable[RunRow],
    *,
    at: Instant | None,
    now: Instant,
    live: bool,
) -> str:
    """Say what became of the due time at or near an instant; without one, what the job is doing now.

    `runs` are those of the job around that instant (the newest ones for now), `live` whether a live node has its
    function registered.
    """
    try:
        return _Answer(job, stretches(job, changes), list(runs), now=now, live=live).give(at)
    except ConfigurationError as error:
        return f"Nothing is planned for {job.spec.name!r}: its trigger cannot be evaluated: {error}"


class _Answer:
    def __init__(self, job: JobRow, life: list[TriggerPeriod], runs: list[RunRow], *, now: Instant, live: bool) -> None:
        self._job, self._life, self._now, self._live = job, life, now, live
        self._runs = sorted(runs, key=lambda run: run.scheduled_for)
        self._name = repr(job.spec.name)
        self._zone: tzinfo = zone_of(life[-1].trigger)

    def give(self, at: Instant | None) -> str:
        return self._for_now() + self._overridden() if at is None else self._for_time(at)

    # For now

    def _for_now(self) -> str:
        job, here = self._job, self._life[-1]
        if job.state is JobState.REMOVED:
            return (
                f"{self._name} was removed{_changed_by(here)} at {self._at(here.start)}. It does not run until it is "
                "restored (`tenure restore "
                f"{job.spec.name}`){' or its definition in the code changes' if job.code.in_code else ''}."
            )
        if job.state is JobState.PAUSED:
            return self._paused_now(here)
        if job.state is JobState.DONE:
            ended = [run for run in self._runs if run.state.final]
            told = self._told(ended[-1]) if ended else f"{self._name} has no run that is still kept."
            return f"{told} It is done: nothing more is due."
        parts = []
        begun = [run for run in self._runs if run.state in OPEN and (run.due_at <= self._now or run.attempt)]
        if begun:
            parts.append(self._told(begun[0]))
        elif not self._live:
            parts.append(
                f"No live node has the function {job.spec.function!r} of {self._name} registered: nothing is planned "
                "or run until one does."
            )
        elif job.next_due is not None and job.next_due + job.spec.rules.on_time < self._now:
            parts.append(
                f"{self._name} has been due since {self._at(job.next_due)} and is not planned yet: no node with its "
                "function has got to it."
            )
        elif ended := [run for run in self._runs if run.state.final]:
            parts.append(self._told(ended[-1]))
        elif here.trigger is not None:
            parts.append(f"{self._name} has not run yet.")
        parts.append(self._next(here))
        told = " ".join(parts[:2] if len(parts) > 2 else parts)  # noqa: PLR2004 - two sentences
        if job.next_reading is not None and job.next_reading < job.spec.tzdata:
            by = job.next_reading.partition("@")[0]
            told += (
                f" It is planned with the zone rules of tzdata {by}, although it was defined with {job.spec.tzdata}, "
                "which no live node has: upgrade the tzdata package."
            )
        return told

    def _paused_now(self, here: TriggerPeriod) -> str:
        job = self._job
        by = f" by {job.paused_by}" if job.paused_by else ""
        because = f" ({job.paused_why})" if job.paused_why else ""
        since = self._at(here.start if here.began is None else here.began.at)
        if job.paused_until is None:
            return f"{self._name} was paused{by}{because} at {since} and stays paused until it is resumed."
        if job.paused_until <= self._now:
            return (
                f"The pause of {self._name}{by}{because} ended at {self._at(job.paused_until)}: the next node that "
                "plans resumes it."
            )
        return (
            f"{self._name} was paused{by}{because} at {since}, until {self._at(job.paused_until)}. "
            f"{self._next(here, job.paused_until)}"
        )

    def _overridden(self) -> str:
        job = self._job
        if job.override is None or job.state is JobState.REMOVED:
            return ""
        by, because = (
            f" by {job.override.by}" if job.override.by else "",
            f" ({job.override.why})" if job.override.why else "",
        )
        return (
            f" It runs as changed{by}{because} at {self._at(job.override.at)}, not as the code defines it: "
            f"{in_force(job.spec, job.code)}."
        )

    def _next(self, here: TriggerPeriod, after: Instant | None = None) -> str:
        if here.unreadable:
            return f"Nothing is planned for it: its trigger {here.unreadable}"
        trigger = here.trigger
        if trigger is None:
            return f"{self._name} has no trigger: it runs only on request."
        due = trigger.following(self._now if after is None else after)
        return "Nothing is due after that." if due is None else f"It is next due at {self._at(due)}."

    # For a time

    def _for_time(self, at: Instant) -> str:
        here = next((stretch for stretch in self._life if stretch.start < at <= stretch.end), None)
        asked = self._near(at, RunKind.MANUAL)
        if here is None:
            first = self._life[0]
            return (
                f"{self._name} did not exist at {self._at(at)}: it was added{_changed_by(first)} at "
                f"{self._at(first.start)}."
            )
        if here.state is JobState.REMOVED:
            return f"{self._name} had been removed{_changed_by(here)} at {self._at(here.start)}."
        due = None if here.trigger is None else self._due_near(here.trigger, at)
        run = self._near(at, RunKind.DUE) if here.unreadable else None if due is None else self._run_of(due)
        if run is not None:
            return self._told(run, due)
        if asked is not None:
            return self._told(asked)
        if here.state is JobState.PAUSED:
            return self._paused_then(here, at)
        if here.unreadable:
            return f"It is unknown what {self._name} had to do at {self._at(at)}: its trigger {here.unreadable}"
        if here.trigger is None:
            return (
                f"{self._name} has no trigger: it runs only on request, and no run was requested around {self._at(at)}."
            )
        if due is None:
            return self._not_due(here.trigger, at)
        return self._no_run(here, due)

    def _due_near(self, trigger: Trigger, at: Instant) -> Instant | None:
        found = [due for due in (last_due(trigger, at), trigger.following(at)) if due is not None]
        nearest = min(found, key=lambda due: abs(due - at), default=None)
        return nearest if nearest is not None and abs(nearest - at) < NEAR else None

    def _run_of(self, due: Instant) -> RunRow | None:
        whole = [run for run in self._runs if run.kind is not RunKind.MANUAL]
        exact = next((run for run in whole if abs(run.scheduled_for - due) < 1e-6), None)  # noqa: PLR2004 - equal
        within = (run for run in whole if run.until is not None and run.scheduled_for <= due <= run.until)
        return exact or next(within, None)

    def _near(self, at: Instant, kind: RunKind) -> RunRow | None:
        found = [run for run in self._runs if run.kind is kind and abs(run.scheduled_for - at) < NEAR]
        return min(found, key=lambda run: abs(run.scheduled_for - at), default=None)

    def _paused_then(self, here: TriggerPeriod, at: Instant) -> str:
        began = here.began
        by, because, since = "", "", self._at(here.start)
        if began is not None:
            by, because = f" by {began.by}" if began.by else "", f" ({began.why})" if began.why else ""
            since = self._at(began.at)
        end = f" to {self._at(here.end)}" if here.ended is not None else ""
        return (
            f"{self._name} was paused{by}{because} from {since}{end}: what is due during a pause, as at "
            f"{self._at(at)}, does not run."
        )

    def _not_due(self, trigger: Trigger, at: Instant) -> str:
        before, after = last_due(trigger, at), trigger.following(at)
        around = [f"{word} {self._at(due)}" for word, due in (("before", before), ("after", after)) if due is not None]
        nearest = f"The nearest due times are {' and '.join(around)}." if around else "It is never due."
        return (
            f"{self._at(at)} is not a due time of {self._name}: {trigger.explain()} "
            f"{nearest}{self._clock_change(trigger, at)}"
        )

    def _clock_change(self, trigger: Trigger, at: Instant) -> str:
        for change in trigger.changes(moment(at - _CHANGE_NEAR)):
            if instant(change.at) > at + _CHANGE_NEAR:
                break
            if not change.effect.startswith("No due time"):
                return f" {change}"
        return ""

    def _no_run(self, here: TriggerPeriod, due: Instant) -> str:
        job, when = self._job, self._at(due)
        if due > self._now:
            return f"{self._name} is due at {when}, in {readable(due - self._now)}." + self._if_no_node()
        if due < job.kept_since:
            return (
                f"{self._name} was due at {when}; its runs before {self._at(job.kept_since)} were forgotten by "
                "retention."
            )
        if job.state is JobState.ACTIVE and job.next_due is not None and due >= job.next_due:
            return (
                f"{self._name} was due at {when} and is not planned yet: no live node has had its function registered "
                "since then."
            )
        if here.ended is not None:
            what = f"{here.ended.what.value}{f' by {here.ended.by}' if here.ended.by else ''}"
            return (
                f"{self._name} was due at {when}, and was not planned yet when the job was {what} at "
                f"{self._at(here.end)}; after that only later due times counted."
            )
        return (
            f"{self._name} was due at {when}, and nothing in the ledger says what became of it. Run `tenure audit "
            f"{job.spec.name}`."
        )

    def _if_no_node(self) -> str:
        return "" if self._live else f" But no live node has its function {self._job.spec.function!r} registered."

    # What became of a run

    def _told(self, run: RunRow, due: Instant | None = None) -> str:
        """One sentence about a run."""
        subject = f"{self._name}, due at {self._at(run.scheduled_for if due is None else due)},"
        if run.kind is RunKind.MANUAL:
            asker = f" by {run.by}" if run.by else ""
            subject = f"{self._name}, requested{asker} at {self._at(run.scheduled_for)},"
        match run.state:
            case RunState.SUCCEEDED:
                return f"{subject} ran{self._where(run)} and succeeded{self._ended(run)}."
            case RunState.FAILED:
                return (
                    f"{subject} failed{self._where(run)}{self._ended(run)}: "
                    f"{last_line(run.reason) or 'no reason was given'}."
                )
            case RunState.LOST if run.reason == STOPPED:
                rule = f"on_lost={self._job.spec.rules.on_lost!r}"
                return (
                    f"{subject} was lost: its node was stopped while it ran{self._where(run)}, and there is no other "
                    f"attempt ({rule})."
                )
            case RunState.LOST:
                return f"{subject} was lost: its node died {_times(run.losses)}, the last time{self._where(run)}."
            case RunState.CANCELLED:
                return f"{subject} was cancelled: {run.reason or 'no reason was given'}."
            case RunState.SKIPPED:
                return f"{subject} was skipped: {self._skipped(run)}"
            case RunState.RUNNING:
                since = run.claimed_at if run.started_at is None else run.started_at
                stops = (
                    ". That node was asked to stop and is waiting for it; if its process is gone, the next node to "
                    "notice takes the run over"
                    if run.stopping
                    else ""
                )
                return (
                    f"{subject} has been "
                    f"running{self._where(run)}{f' since {self._at(since)}' if since else ''}{stops}."
                )
            case RunState.WAITING:
                return f"{subject} is waiting: {self._behind(run)}."
            case _:
                return f"{subject} {self._pending(run)}"

    def _pending(self, run: RunRow) -> str:
        if run.looking and (run.due_at > self._now or self._live):
            limit = self._at((run.looking_since or run.due_at) + self._job.spec.rules.wait_up_to)
            return f"is waiting: {waits_for(run, self._zone)}. It fails if that lasts until {limit}."
        if run.due_at > self._now:
            if run.attempt:
                again = f"attempt {run.attempt + 1} begins at {self._at(run.due_at)}"
                return f"{again}{f' (the last one ended with {last_line(run.reason)})' if run.reason else ''}."
            return f"begins at {self._at(run.due_at)}." + self._if_no_node()
        if not self._live:
            return (
                f"has been pending since {self._at(run.due_at)}: no live node has its function "
                f"{self._job.spec.function!r} registered."
            )
        queue = self._job.spec.rules.queue
        interrupted = " (interrupted by the stop of its node)" if run.reason == STOPPED else ""
        return (
            f"has been pending since {self._at(run.due_at)}{interrupted}: no node that has its function and serves the "
            f"queue {queue!r} has had a free slot."
        )

    def _skipped(self, run: RunRow) -> str:
        rules = self._job.spec.rules
        match run.reason:
            case "overlap":
                return f"{self._behind(run)} (overlap={rules.overlap!r})."
            case "superseded":
                return f"a newer due time took its place while it waited (overlap={rules.overlap!r} keeps the newest)."
            case "missed":
                among = f"with {run.count - 1} others, " if run.count > 1 else ""
                return (
                    f"{among}it was missed: no node with its function began it within {readable(rules.on_time)}, "
                    f"and missed={rules.missed!r} does not run it late."
                )
            case "paused":
                return "the job was paused before it began."
            case "":
                return "no reason was given."
            case other:
                return f"{other}."

    def _behind(self, run: RunRow) -> str:
        """The earlier run that this one had to wait for, or was skipped for."""
        for other in reversed(self._runs):
            began = other.claimed_at if other.started_at is None else other.started_at
            if other.id == run.id or began is None or began > max(run.due_at, run.scheduled_for) + NEAR:
                continue
            if other.finished_at is None or other.finished_at > run.due_at:
                until = "and has not ended" if other.finished_at is None else f"until {self._at(other.finished_at)}"
                return f"run {other.key} was still running{self._where(other)}, since {self._at(began)} {until}"
        return f"the job already had as many runs as it may have at once ({self._job.spec.rules.max_running})"

    def _where(self, run: RunRow) -> str:
        return f" on {run.node}" if run.node else ""

    def _ended(self, run: RunRow) -> str:
        parts = f" at {self._at(run.finished_at)}" if run.finished_at is not None else ""
        if run.started_at is not None and run.kind is RunKind.DUE and run.started_at - run.due_at > _LATE:
            parts += f", started {readable(run.started_at - run.due_at)} late"
        parts += f", on attempt {run.attempt}" if run.attempt > 1 else ""
        parts += (
            f", after {counted(run.looks, 'look')} since {self._at(run.looking_since)}" if run.looking_since else ""
        )
        return f"{parts}, interrupted {_times(run.interruptions)} by the stop of a node" if run.interruptions else parts

    def _at(self, when: Instant) -> str:
        return shown(when, self._zone)


def _changed_by(stretch: TriggerPeriod) -> str:
    return f" by {stretch.began.by}" if stretch.began is not None and stretch.began.by else ""


def waits_for(run: RunRow, zone: tzinfo) -> str:
    """What a run waits for between two looks: the reason of its last `NotYet`, how often it looked, and when next."""
    reason = f"{last_line(run.reason)}, " if run.reason else ""
    return f"{reason}{counted(run.looks, 'look')}, next at {shown(run.due_at, zone)}"


def last_line(text: str) -> str:
    """What a traceback ends with: the exception. `tenure log` shows all of it."""
    return text.strip().splitlines()[-1] if text.strip() else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
