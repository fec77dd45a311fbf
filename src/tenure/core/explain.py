"""Answers `tenure why`: one or two sentences about a job, for a given time or for now, from what the ledger knows.

An answer names the one cause that applies, as a word that programs can compare, and the facts that it rests on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo

from tenure.core.causes import Cause
from tenure.core.coverage import Coverage, Gap
from tenure.core.differences import in_force
from tenure.core.following import parent_trouble
from tenure.core.job_history import TriggerPeriod, stretches
from tenure.core.overdue import latest_start
from tenure.core.planning import last_due
from tenure.core.records import OPEN, STOPPED, ChangeRecord, Instant, JobRow, JobState, RunKind, RunRow, RunState
from tenure.core.run_rules import AFTER
from tenure.core.trigger_text import zone_of
from tenure.core.waits import NAMED, in_the_way, should_have_ended, waits_for
from tenure.errors import ConfigurationError
from tenure.triggers import Trigger
from tenure.util.durations import readable
from tenure.util.instants import instant, moment, shown
from tenure.util.last_line import last_line
from tenure.util.plurals import counted

NEAR = 60.0
"""A given time means the due time within this many seconds of it."""
_LATE = 1.0
_CHANGE_NEAR = 86400.0


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job ran or did not: the cause, what it rests on, and both in a sentence or two."""

    cause: str
    """A stable word: see `Cause`."""
    text: str
    facts: Mapping[str, object] = field(default_factory=dict)
    """What the sentence rests on, by name: texts, numbers, and aware datetimes in the zone of the job."""

    def __str__(self) -> str:
        return self.text


def explain(
    job: JobRow,
    changes: Sequence[ChangeRecord],
    runs: Iterable[RunRow],
    *,
    at: Instant | None,
    now: Instant,
    coverage: Coverage,
    zone: tzinfo | None = None,
    parent: JobRow | None = None,
    followed: Iterable[RunRow] = (),
) -> Explanation:
    """Say what became of the due time at or near an instant; without one, what the job is doing now.

    `runs` are those of the job around that instant (the newest ones for now), `coverage` what live nodes can run.
    Times are shown in `zone`; None: in that of its trigger. `parent` is the job that it follows, and `followed` the
    runs of that, like `runs`.
    """
    try:
        answer = _Answer(job, stretches(job, changes), list(runs), now=now, coverage=coverage, zone=zone)
        answer.parent, answer.followed = parent, list(followed)
        return answer.give(at)
    except ConfigurationError as error:
        text = f"Nothing is planned for {job.spec.name!r}: its trigger cannot be evaluated: {error}"
        return Explanation(Cause.UNREADABLE, text)


def explain_run(
    job: JobRow,
    changes: Sequence[ChangeRecord],
    runs: Iterable[RunRow],
    run: RunRow,
    *,
    now: Instant,
    coverage: Coverage,
    zone: tzinfo,
) -> Explanation:
    """Say what became of a run, or what it waits for. `runs` are those of its job around it, and the open ones."""
    return _Answer(job, stretches(job, changes), list(runs), now=now, coverage=coverage, zone=zone).of(run)


class _Answer:
    parent: JobRow | None = None
    followed: Sequence[RunRow] = ()

    def __init__(
        self,
        job: JobRow,
        life: list[TriggerPeriod],
        runs: list[RunRow],
        *,
        now: Instant,
        coverage: Coverage,
        zone: tzinfo | None,
    ) -> None:
        self._job, self._life, self._now, self._coverage = job, life, now, coverage
        self._runs = sorted(runs, key=lambda run: run.scheduled_for)
        self._name = repr(job.spec.name)
        self._zone = zone_of(life[-1].trigger) if zone is None else zone
        self._gap = coverage.gap(job.spec.function, job.spec.rules.queue)

    def of(self, run: RunRow) -> Explanation:
        return self._told(run, subject=f"Run {run.id} of {self._name}")

    def give(self, at: Instant | None) -> Explanation:
        if at is not None:
            return self._for_time(at)
        answer = self._with_arguments(self._for_now())
        return Explanation(answer.cause, answer.text + self._overridden(), answer.facts)

    # For now

    def _for_now(self) -> Explanation:
        job, here = self._job, self._life[-1]
        if job.state is JobState.REMOVED:
            defined = " or its definition in the code changes" if job.code.in_code else ""
            return self._say(
                Cause.REMOVED,
                f"{self._name} was removed{_changed_by(here)} at {self._at(here.start)}. It does not run until it is "
                f"restored (`tenure restore {job.spec.name}`){defined}.",
                since=here.start,
                **_said(here.began),
            )
        if job.state is JobState.PAUSED:
            return self._paused_now(here)
        if job.state is JobState.DONE:
            last = self._last()
            answer = (
                self._told(last)
                if last is not None
                else self._say(Cause.DONE, f"{self._name} has no run that is still kept.")
            )
            return Explanation(answer.cause, f"{answer.text} It is done: nothing more is due.", answer.facts)
        doing = self._doing(here)
        after, due = self._next(here)
        told = after if doing is None else f"{doing.text} {after}"
        if job.next_reading is not None and job.next_reading < job.spec.tzdata:
            by = job.next_reading.partition("@")[0]
            told += (
                f" It is planned with the zone rules of tzdata {by}, although it was defined with {job.spec.tzdata}, "
                "which no live node has: upgrade the tzdata package."
            )
        facts = {} if doing is None else dict(doing.facts)
        if due is not None:
            facts["next_due"] = moment(due, self._zone)
        first = Cause.ON_REQUEST if here.trigger is None and not here.unreadable else Cause.NOT_DUE
        first = first if here.after is None else Cause.FOLLOWS
        first = Cause.UNREADABLE if here.unreadable else first
        return Explanation(first if doing is None else doing.cause, told, facts)

    def _doing(self, here: TriggerPeriod) -> Explanation | None:
        """What the active job does, or what keeps it from running; None if there is nothing to say about it yet."""
        job, gap = self._job, self._gap
        begun = [run for run in self._runs if run.state in OPEN and (run.due_at <= self._now or run.attempt)]
        if begun:
            return self._told(begun[0])
        if gap is not None:
            return self._orphaned(gap)
        if job.next_due is not None and latest_start(job.next_due, job.spec.rules) < self._now:
            return self._say(
                Cause.NOT_PLANNED,
                f"{self._name} has been due since {self._at(job.next_due)} and is not planned yet, although "
                f"{self._coverage.able(job.spec.function, job.spec.rules.queue)[0].label} can run it.",
                due=job.next_due,
            )
        if (last := self._last()) is not None:
            return self._told(last)
        return None if here.trigger is None else self._say(Cause.NOT_DUE, f"{self._name} has not run yet.")

    def _last(self) -> RunRow | None:
        """The run that ended last."""
        ended = [run for run in self._runs if run.state.final]
        return max(ended, key=lambda run: (run.finished_at or run.scheduled_for, run.scheduled_for), default=None)

    def _orphaned(self, gap: Gap) -> Explanation:
        job = self._job
        since = ""
        if job.next_due is not None and job.next_due < self._now:
            since = f" It has been due since {self._at(job.next_due)}."
        facts = {} if not since or job.next_due is None else {"due": job.next_due}
        told = f"{self._name} is orphaned: {gap.text}. It does not run until a node does."
        if gap.cause is Cause.NO_NODE:
            told = f"{gap.text[0].upper()}{gap.text[1:]}, so {self._name} does not run."
        return self._say(gap.cause, told + since, function=job.spec.function, queue=job.spec.rules.queue, **facts)

    def _paused_now(self, here: TriggerPeriod) -> Explanation:
        job = self._job
        by = f" by {job.paused_by}" if job.paused_by else ""
        because = f" ({job.paused_why})" if job.paused_why else ""
        began = here.start if here.began is None else here.began.at
        since = self._at(began)
        if job.paused_until is None:
            text = f"{self._name} was paused{by}{because} at {since} and stays paused until it is resumed."
        elif job.paused_until <= self._now:
            text = (
                f"The pause of {self._name}{by}{because} ended at {self._at(job.paused_until)}: the next node that "
                "plans resumes it."
            )
        else:
            text = (
                f"{self._name} was paused{by}{because} at {since}, until {self._at(job.paused_until)}. "
                f"{self._next(here, job.paused_until)[0]}"
            )
        return self._say(Cause.PAUSED, text, since=began, until=job.paused_until, by=job.paused_by, why=job.paused_why)

    def _with_arguments(self, answer: Explanation) -> Explanation:
        """With what a node has found of the arguments of the job: they are why it is going to fail."""
        spec = self._job.spec
        unfit = next((u for u in self._coverage.unfit if u.applies_to(spec.name, spec.function, spec.kwargs)), None)
        if unfit is None or self._job.state in {JobState.REMOVED, JobState.DONE}:
            return answer
        will = "will" if unfit.surely else "may"
        ahead = unfit.surely and answer.cause in {Cause.NOT_DUE, Cause.ON_REQUEST, Cause.FOLLOWS, Cause.SUCCEEDED}
        return Explanation(
            Cause.ARGUMENTS if ahead else answer.cause,
            f"{answer.text} Its arguments do not fit {spec.function!r}, so its runs {will} fail: {unfit.problem}",
            {**answer.facts, "arguments": unfit.problem},
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

    def _next(self, here: TriggerPeriod, after: Instant | None = None) -> tuple[str, Instant | None]:
        if here.unreadable:
            return f"Nothing is planned for it: its trigger {here.unreadable}", None
        trigger = here.trigger
        if here.after is not None:
            trouble = parent_trouble(here.after, self.parent)
            follows = f"follows {here.after!r} (on {self._job.spec.rules.on})"
            return f"It {follows}, but {trouble}." if trouble else f"It {follows}.", None
        if trigger is None:
            return f"{self._name} has no trigger: it runs only on request.", None
        due = trigger.following(self._now if after is None else after)
        return ("Nothing is due after that." if due is None else f"It is next due at {self._at(due)}."), due

    # For a time

    def _for_time(self, at: Instant) -> Explanation:
        here = next((stretch for stretch in self._life if stretch.start < at <= stretch.end), None)
        asked = self._near(at, RunKind.MANUAL)
        if here is None:
            first = self._life[0]
            return self._say(
                Cause.NOT_ADDED,
                f"{self._name} did not exist at {self._at(at)}: it was added{_changed_by(first)} at "
                f"{self._at(first.start)}.",
                since=first.start,
                **_said(first.began),
            )
        if here.state is JobState.REMOVED:
            return self._say(
                Cause.REMOVED,
                f"{self._name} had been removed{_changed_by(here)} at {self._at(here.start)}.",
                since=here.start,
                **_said(here.began),
            )
        due = None if here.trigger is None else self._due_near(here.trigger, at)
        run = self._near(at, RunKind.DUE) if here.unreadable else None if due is None else self._run_of(due)
        if run is not None:
            return self._told(run, due)
        if asked is not None:
            return self._told(asked)
        if here.after is not None:
            return self._followed_then(here.after, at)
        if here.state is JobState.PAUSED:
            return self._paused_then(here, at)
        if here.unreadable:
            return self._say(
                Cause.UNREADABLE,
                f"It is unknown what {self._name} had to do at {self._at(at)}: its trigger {here.unreadable}",
            )
        if here.trigger is None:
            return self._say(
                Cause.ON_REQUEST,
                f"{self._name} has no trigger: it runs only on request, and no run was requested around "
                f"{self._at(at)}.",
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

    def _followed_then(self, parent: str, at: Instant) -> Explanation:
        """What became of the run that follows one at an instant."""
        if (run := self._nearest(self._runs, at)) is not None:
            return self._told(run)
        one = self._nearest(self.followed, at)
        if one is None:
            return self._say(
                Cause.FOLLOWS,
                f"{self._name} follows {parent!r}, which has no run around {self._at(at)}.",
                parent=parent,
            )
        of = f"{self._name} follows {parent!r}, whose run for {self._at(one.scheduled_for)}"
        if not one.state.final:
            return self._say(Cause.FOLLOWS, f"{of} is {one.state.value}.", parent=parent, state=one.state.value)
        if one.scheduled_for <= self._life[-1].start:
            return self._say(Cause.FOLLOWS, f"{of} had begun before {self._name} followed it.", parent=parent)
        return self._say(
            Cause.OWED,
            f"{of} {one.state.value}; no node has inserted the run of {self._name} yet. `tenure audit "
            f"{self._job.spec.name}` says since when.",
            parent=parent,
            state=one.state.value,
        )

    @staticmethod
    def _nearest(runs: Iterable[RunRow], at: Instant) -> RunRow | None:
        near = [run for run in runs if abs(run.scheduled_for - at) < NEAR]
        near += [run for run in runs if run.until is not None and run.scheduled_for <= at <= run.until]
        return min(near, key=lambda run: abs(run.scheduled_for - at), default=None)

    def _paused_then(self, here: TriggerPeriod, at: Instant) -> Explanation:
        began = here.began
        by, because, since = "", "", self._at(here.start)
        if began is not None:
            by, because = f" by {began.by}" if began.by else "", f" ({began.why})" if began.why else ""
            since = self._at(began.at)
        end = f" to {self._at(here.end)}" if here.ended is not None else ""
        return self._say(
            Cause.PAUSED,
            f"{self._name} was paused{by}{because} from {since}{end}: what is due during a pause, as at "
            f"{self._at(at)}, does not run.",
            since=here.start if began is None else began.at,
            until=None if here.ended is None else here.end,
            **_said(began),
        )

    def _not_due(self, trigger: Trigger, at: Instant) -> Explanation:
        before, after = last_due(trigger, at), trigger.following(at)
        around = [f"{word} {self._at(due)}" for word, due in (("before", before), ("after", after)) if due is not None]
        nearest = f"The nearest due times are {' and '.join(around)}." if around else "It is never due."
        return self._say(
            Cause.NOT_DUE,
            f"{self._at(at)} is not a due time of {self._name}: {trigger.explain()} "
            f"{nearest}{self._clock_change(trigger, at)}",
            before=before,
            after=after,
        )

    def _clock_change(self, trigger: Trigger, at: Instant) -> str:
        for change in trigger.changes(moment(at - _CHANGE_NEAR)):
            if instant(change.at) > at + _CHANGE_NEAR:
                break
            if not change.effect.startswith("No due time"):
                return f" {change}"
        return ""

    def _no_run(self, here: TriggerPeriod, due: Instant) -> Explanation:
        job, when = self._job, self._at(due)
        if due > self._now:
            return self._say(
                Cause.NOT_DUE if self._gap is None else self._gap.cause,
                f"{self._name} is due at {when}, in {readable(due - self._now)}." + self._if_orphaned(),
                due=due,
            )
        if due < job.kept_since:
            return self._say(
                Cause.FORGOTTEN,
                f"{self._name} was due at {when}; its runs before {self._at(job.kept_since)} were forgotten by "
                "retention.",
                due=due,
            )
        if job.state is JobState.ACTIVE and job.next_due is not None and due >= job.next_due:
            cause, because = (
                (self._gap.cause, self._gap.text)
                if self._gap is not None
                else (Cause.NOT_PLANNED, "no node that can run it has been alive since then, or none has got to it")
            )
            return self._say(cause, f"{self._name} was due at {when} and is not planned yet: {because}.", due=due)
        if here.ended is not None:
            what = f"{here.ended.what.value}{f' by {here.ended.by}' if here.ended.by else ''}"
            return self._say(
                Cause.CHANGED,
                f"{self._name} was due at {when}, and was not planned yet when the job was {what} at "
                f"{self._at(here.end)}; after that only later due times counted.",
                due=due,
                changed=here.end,
                **_said(here.ended),
            )
        return self._say(
            Cause.UNACCOUNTED,
            f"{self._name} was due at {when}, and nothing in the ledger says what became of it. Run `tenure audit "
            f"{job.spec.name}`.",
            due=due,
        )

    def _if_orphaned(self) -> str:
        return "" if self._gap is None else f" But {self._gap.text}."

    # What became of a run

    def _told(self, run: RunRow, due: Instant | None = None, subject: str = "") -> Explanation:
        """One sentence about a run."""
        subject = subject or self._name
        if run.kind is RunKind.MANUAL:
            asker = f" by {run.by}" if run.by else ""
            to_come = run.scheduled_for > min(self._now, run.finished_at or self._now)
            when = "for" if to_come else "at"
            subject += f", requested{asker} {when} {self._at(run.scheduled_for)},"
        else:
            subject += f", due at {self._at(run.scheduled_for if due is None else due)},"
        cause, text, more = self._became(run)
        facts = {
            "run": int(run.id),
            "key": run.key,
            "state": run.state.value,
            "scheduled_for": moment(run.scheduled_for, self._zone),
            "due_at": moment(run.due_at, self._zone),
            "attempt": run.attempt,
            "node": run.node,
            "started_at": None if run.started_at is None else moment(run.started_at, self._zone),
            "finished_at": None if run.finished_at is None else moment(run.finished_at, self._zone),
            "error": last_line(run.reason),
            **more,
        }
        return Explanation(
            cause, f"{subject} {text}", {word: fact for word, fact in facts.items() if fact not in _NONE}
        )

    def _became(self, run: RunRow) -> tuple[Cause, str, dict[str, object]]:
        """The cause, the end of the sentence, and further facts."""
        where = self._where(run)
        match run.state:
            case RunState.SUCCEEDED:
                return Cause.SUCCEEDED, f"ran{where} and succeeded{self._ended(run)}.", {}
            case RunState.FAILED:
                error = last_line(run.reason) or "no reason was given"
                return Cause.FAILED, f"failed{where}{self._ended(run)}: {_stopped(error)}", {}
            case RunState.LOST if run.reason == STOPPED:
                rule = f"on_lost={self._job.spec.rules.on_lost!r}"
                return (
                    Cause.LOST,
                    f"was lost: its node was stopped while it ran{where}, and there is no other attempt ({rule}).",
                    {},
                )
            case RunState.LOST:
                return (
                    Cause.LOST,
                    f"was lost: its node died {_times(run.losses)}, the last time{where}.",
                    {"losses": run.losses},
                )
            case RunState.CANCELLED:
                return (
                    Cause.CANCELLED,
                    f"was cancelled: {_stopped(last_line(run.reason) or 'no reason was given')}",
                    {},
                )
            case RunState.SKIPPED:
                cause = _SKIPPED.get(run.reason, Cause.SKIPPED)
                if run.reason.startswith(AFTER):
                    cause = Cause.PARENT
                return cause, f"was skipped: {self._skipped(run)}", {}
            case RunState.RUNNING:
                since = run.began_at
                stops = (
                    ". That node was asked to stop and is waiting for it; if its process is gone, the next node to "
                    "notice takes the run over"
                    if run.stopping
                    else ""
                )
                began = f" since {self._at(since)}" if since else ""
                if run.node and self._coverage.silent(run.node):
                    silent = "That node gives no sign of life: the next node to declare it dead takes the run over."
                    return Cause.RUNNING, f"has been running{where}{began}. {silent}", {"silent": True}
                over = should_have_ended(run, self._job.spec.rules, self._now)
                return Cause.RUNNING, f"has been running{where}{began}{f': {over}' if over else ''}{stops}.", {}
            case RunState.WAITING:
                waits = waits_for(run, self._zone, self._job.spec.rules, self._runs)
                if run.pool:
                    return Cause.POOL, f"is waiting for {waits}: `tenure pools` shows who has how many.", {}
                return Cause.OVERLAP, f"is waiting for {waits}.{self._in_the_way(run)}", {}
            case _:
                return self._pending(run)

    def _pending(self, run: RunRow) -> tuple[Cause, str, dict[str, object]]:
        if run.looking and (run.due_at > self._now or self._gap is None):
            limit = (run.looking_since or run.due_at) + self._job.spec.rules.wait_up_to
            return (
                Cause.NOT_YET,
                f"is waiting: {waits_for(run, self._zone)}. It fails if that lasts until {self._at(limit)}.",
                {"looks": run.looks, "until": moment(limit, self._zone)},
            )
        if run.due_at > self._now:
            if run.attempt:
                again = f"attempt {run.attempt + 1} begins at {self._at(run.due_at)}"
                last = f" The last one ended with {_stopped(last_line(run.reason))}" if run.reason else ""
                return Cause.RETRY, f"{again}.{last}", {}
            return Cause.NOT_DUE, f"begins at {self._at(run.due_at)}." + self._if_orphaned(), {}
        spec = self._job.spec
        late = self._coverage.late(spec.function, spec.rules.queue)
        interrupted = " (interrupted by the stop of its node)" if run.reason == STOPPED else ""
        return (
            late.cause,
            f"has been pending since {self._at(run.due_at)}{interrupted}: {late.text}.",
            {"function": spec.function, "queue": spec.rules.queue},
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
            case other if other.startswith(AFTER):
                return f"{other.removeprefix(AFTER)}, and it follows {rules.after!r} on {rules.on}."
            case other:
                return _stopped(last_line(other))

    def _in_the_way(self, run: RunRow) -> str:
        """How the runs are that it waits for."""
        told = []
        for one in in_the_way(run, self._runs)[:NAMED]:
            _, text, _ = self._became(one)
            told.append(f" Run {one.id} ({one.key}) {text}")
        return "".join(told)

    def _behind(self, run: RunRow) -> str:
        """The earlier run that this one had to wait for, or was skipped for."""
        for other in reversed(self._runs):
            began = other.began_at
            if other.id == run.id or began is None or began > max(run.due_at, run.scheduled_for) + NEAR:
                continue
            ended = other.finished_at if other.state.final else None
            if ended is None or ended > run.due_at:
                until = "and has not ended" if ended is None else f"until {self._at(ended)}"
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

    def _say(self, cause: Cause, text: str, **facts: object) -> Explanation:
        """An answer; instants among the facts become times in the zone of the job."""
        shown_facts = {
            word: moment(fact, self._zone) if isinstance(fact, float) else fact
            for word, fact in facts.items()
            if fact not in _NONE
        }
        return Explanation(cause, text, shown_facts)


def _changed_by(stretch: TriggerPeriod) -> str:
    return f" by {stretch.began.by}" if stretch.began is not None and stretch.began.by else ""


_NONE: tuple[object, ...] = (None, "")
_SKIPPED = {"overlap": Cause.OVERLAP, "superseded": Cause.SUPERSEDED, "missed": Cause.MISSED, "paused": Cause.PAUSED}


def _said(change: ChangeRecord | None) -> dict[str, object]:
    """Who made a change, and why."""
    return {} if change is None else {"by": change.by, "why": change.why}


def _stopped(text: str) -> str:
    """With a full stop, unless it ends with one."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
