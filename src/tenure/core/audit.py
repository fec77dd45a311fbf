"""The audit: compares every due time of a span with the ledger. Carries G4: no due time is lost without being named.

Due times are computed again, from the triggers that were in force at the time; nothing is taken from a planner.
Each is one of

  ended         it has a final run, or is covered by one row that stands for several skipped due times
  no run, why   the job was paused, removed or changed before it was planned, retention has removed its runs,
                or it was planned with other zone rules than those of this process
  open          its run is not final, or it is still to be planned
  overdue       it is open and past its grace, no attempt has begun, and nothing explains it (`core/overdue.py`)
  unaccounted   nothing explains it: a promise was broken
  unexpected    a planned run that no trigger explains, or a second one for the same due time
  unreadable    its trigger cannot be read, so what was due is unknown
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo

from tenure.core.coverage import Coverage
from tenure.core.job_history import Spend, TriggerPeriod, stretches
from tenure.core.overdue import SLACK, explanation, latest_start
from tenure.core.records import ANEW, ChangeRecord, Instant, JobRow, JobState, RunKind, RunRow, RunState
from tenure.core.trigger_text import zone_of
from tenure.core.waits import waits_for
from tenure.errors import ConfigurationError
from tenure.triggers import At, tzdata_version
from tenure.util.instants import shown

MARGIN = 60.0
"""A due time without a run counts as open for this much longer than on-time: the audit takes a while to read."""
UNDERWAY = 10.0
"""Longest time between computing a change and committing it. Its first due times may have passed by then, and runs of
the old trigger may have begun."""

OPEN, OVERDUE = "open", "overdue"
UNACCOUNTED, UNEXPECTED, UNREADABLE = "unaccounted", "unexpected", "unreadable"
_UNCLEAN = frozenset({UNACCOUNTED, UNEXPECTED, UNREADABLE})
_SHOWN = 20
_TICK = 1e-6


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """Consecutive due times with the same result."""

    kind: str
    """OPEN, OVERDUE, UNACCOUNTED, UNEXPECTED, UNREADABLE, or why there is no run: 'paused', 'removed', 'changed',
    'forgotten', 'other zone rules'."""
    first: Instant
    last: Instant
    count: int
    text: str


@dataclass(frozen=True, slots=True)
class JobAudit:
    """What the ledger says about the due times of one job in [since, until)."""

    name: str
    since: Instant
    until: Instant
    due: int
    """How many due times there were, including future ones."""
    counts: Mapping[str, int]
    """How they ended: 'succeeded', 'skipped(overlap)' …, and the kinds of findings."""
    findings: tuple[AuditFinding, ...]
    extra: tuple[RunRow, ...]
    """Runs that were requested."""
    tz: tzinfo = UTC

    @property
    def clean(self) -> bool:
        """Everything is accounted for."""
        return not any(self.counts.get(kind) for kind in _UNCLEAN)

    @property
    def overdue(self) -> int:
        """How many due times should have run by now, and have not begun."""
        return self.counts.get(OVERDUE, 0)

    def lines(self) -> list[str]:
        """Human-readable: a summary, then the findings."""
        span = f"{shown(self.since, self.tz)} to {shown(self.until, self.tz)}"
        ends = ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items(), key=lambda item: -item[1]))
        requested = f"; {len(self.extra)} requested" if self.extra else ""
        verdict = "NOT CLEAN" if not self.clean else "OVERDUE" if self.overdue else "clean"
        lines = [f"{self.name}: {verdict}. {span}: {self.due} due{f': {ends}' if ends else ''}{requested}."]
        worst = sorted(self.findings, key=lambda finding: (finding.kind not in _UNCLEAN, finding.kind != OVERDUE))
        lines += [f"  {self._line(finding)}" for finding in worst[:_SHOWN]]
        if len(worst) > _SHOWN:
            lines.append(f"  and {len(worst) - _SHOWN} more like these")
        return lines

    def _line(self, finding: AuditFinding) -> str:
        when = shown(finding.first, self.tz)
        if finding.count > 1:
            when = f"{finding.count} from {when} to {shown(finding.last, self.tz)}"
        return f"{finding.kind}: {when}: {finding.text}"


def audit(
    job: JobRow,
    changes: Sequence[ChangeRecord],
    runs: Iterable[RunRow],
    *,
    since: Instant,
    until: Instant,
    now: Instant,
    plain: Mapping[RunState, Sequence[int]] | None = None,
    coverage: Coverage | None = None,
    zone: tzinfo | None = None,
    spend: Spend | None = None,
) -> JobAudit:
    """Compare the due times of a job in [since, until) with its runs. `coverage` says why what is overdue does not run.
    Times are shown in `zone`; None: in that of its trigger.

    `runs` are those scheduled in the span, and rows that stand for several due times and reach into it. Read the job
    before its runs, so that runs planned in between are found. Runs that retention removes in between are not: if the
    audit is not clean, read again.
    `plain` are due times, in microseconds, of further planned runs that ended in a state. If the audit is not clean,
    pass all of them as `runs`: it says nothing more about plain ones.
    A due time that was not planned when the job was changed is explained by the change only if the span reaches beyond
    the change.
    """
    life = stretches(job, changes)
    progress = _Audit(
        job, life, runs, plain or {}, since=since, until=until, now=now, coverage=coverage, zone=zone, spend=spend
    )
    for stretch in life:
        progress.go_through(stretch)
    progress.find_unexpected()
    return progress.close()


class _Audit:
    """One audit in progress."""

    def __init__(
        self,
        job: JobRow,
        life: list[TriggerPeriod],
        runs: Iterable[RunRow],
        plain: Mapping[RunState, Sequence[int]],
        *,
        since: Instant,
        until: Instant,
        now: Instant,
        coverage: Coverage | None,
        zone: tzinfo | None,
        spend: Spend | None,
    ) -> None:
        self._job, self._life, self._since, self._until, self._now = job, life, since, until, now
        self._coverage, self._spend = coverage, spend
        rules = job.spec.rules
        self._settled_before = now - rules.on_time - rules.spread - rules.jitter - MARGIN
        self._zone = zone_of(life[-1].trigger) if zone is None else zone
        self._rules_since = _rules_since(job, life)
        self._due = 0
        self._counts: Counter[str] = Counter()
        self._findings: list[AuditFinding] = []
        self._in_a_row = False
        self._extra: list[RunRow] = []
        self._runs: dict[int, RunRow] = {}
        self._groups: list[RunRow] = []
        self._unevaluated: list[TriggerPeriod] = []
        self._covered: Counter[int] = Counter()
        self._explained: set[int] = set()
        for run in sorted(runs, key=lambda run: run.scheduled_for):
            self._take(run)
        self._plain: dict[int, str] = {}
        for state, keys in plain.items():
            self._plain |= dict.fromkeys(keys, state.value)
        """Runs for which no due time has been found yet."""
        for key in self._runs.keys() & self._plain.keys():
            self._find(UNEXPECTED, key / 1e6, "two runs belong to one due time")

    def go_through(self, stretch: TriggerPeriod) -> None:
        """Check the due times of one period of the trigger, in order.

        Those without a run wait until it is known whether any later one has a run.
        """
        if stretch.unreadable and stretch.start < self._until and stretch.end >= self._since:
            self._find(UNREADABLE, max(stretch.start, self._since), f"its trigger {stretch.unreadable}")
        without: list[Instant] = []
        plain, counts = self._plain, self._counts
        for at in self._due_times(stretch):
            self._due += 1
            if (end := plain.pop(micros_of(at), None)) is not None:
                if without:
                    self._without_run(stretch, without, last=False)
                    without = []
                counts[end] += 1
                self._in_a_row = False
                continue
            if (run := self._run_of(at)) is None:
                without.append(at)
                continue
            self._without_run(stretch, without, last=False)
            without = []
            if run.state.final:
                self._counts[end_of(run)] += 1
                self._in_a_row = False
            else:
                self._find(*self._open(run, at))
        self._without_run(stretch, without, last=stretch.end < self._until)

    def _due_times(self, stretch: TriggerPeriod) -> Iterator[Instant]:
        try:
            yield from stretch.due_times(self._since, self._until, self._spend)
        except ConfigurationError as error:
            self._unevaluated.append(stretch)
            self._find(UNREADABLE, max(stretch.start, self._since), f"its trigger cannot be evaluated: {error}")

    def find_unexpected(self) -> None:
        """Find planned runs that no trigger explains, and rows whose count of skipped due times is wrong."""
        for key in self._plain:
            self._find(UNEXPECTED, key / 1e6, "its run belongs to no due time")
        for key, run in self._runs.items():
            inside = self._since <= run.scheduled_for < self._until
            if not inside or run.kind is not RunKind.DUE or key in self._explained:
                continue
            if (
                self._may_be_due(run)
                or self._was_cancelled_ahead(run)
                or run.scheduled_for <= self._rules_since + UNDERWAY
            ):
                self._due += 1
                self._counts[end_of(run) if run.state.final else OPEN] += 1
            else:
                self._find(UNEXPECTED, run.scheduled_for, f"run {run.key} ({run.state.value}) belongs to no due time")
        for group in self._groups:
            last = group.scheduled_for if group.until is None else group.until
            whole = self._since <= group.scheduled_for and last < self._until
            excess = self._covered[group.id] - group.count
            if whole and excess > 0:
                text = f"one row says that {group.count} due times were skipped, but {self._covered[group.id]} were due"
                self._counts[end_of(group)] -= excess
                self._counts[UNACCOUNTED] += excess
                self._findings.append(AuditFinding(UNACCOUNTED, group.scheduled_for, last, excess, text))

    def _may_be_due(self, run: RunRow) -> bool:
        """True if a trigger of nearby, or one that cannot be read, may explain the run.

        It may belong to a trigger that was written just after it, to an `at` that was past when it was written, or to a
        trigger that was in force a moment longer than its end says.
        """
        at = run.scheduled_for
        unread = [stretch for stretch in self._life if stretch.unreadable or stretch in self._unevaluated]
        if any(stretch.start < at <= stretch.end for stretch in unread):
            return True
        near = [stretch for stretch in self._life if stretch.start - UNDERWAY < at <= stretch.start]
        if run.attempt:  # else the change would have taken it away
            near += [stretch for stretch in self._life if stretch.end < at <= stretch.end + UNDERWAY]
        near += [stretch for stretch in self._life if at <= stretch.start and isinstance(stretch.trigger, At)]
        triggers = [
            stretch.trigger for stretch in near if stretch.state is JobState.ACTIVE and stretch.trigger is not None
        ]
        return any(trigger.following(at - _TICK) == at for trigger in triggers)

    def _was_cancelled_ahead(self, run: RunRow) -> bool:
        """True if it was cancelled before it was due. It stays, whatever the trigger became in between."""
        ended = run.finished_at
        if run.state is not RunState.CANCELLED or ended is None or ended >= run.scheduled_for:
            return False
        then = next((stretch for stretch in self._life if stretch.start < ended <= stretch.end), None)
        trigger = None if then is None else then.trigger
        return trigger is not None and trigger.following(run.scheduled_for - _TICK) == run.scheduled_for

    def close(self) -> JobAudit:
        findings = tuple(sorted(self._findings, key=lambda finding: finding.first))
        return JobAudit(
            self._job.spec.name,
            self._since,
            self._until,
            self._due,
            dict(self._counts),
            findings,
            tuple(self._extra),
            self._zone,
        )

    def _take(self, run: RunRow) -> None:
        if run.kind is not RunKind.DUE and self._since <= run.scheduled_for < self._until:
            self._extra.append(run)
        if run.kind is RunKind.MANUAL:
            return
        if run.count > 1:
            self._groups.append(run)
            return
        other = self._runs.setdefault(micros_of(run.scheduled_for), run)
        if other is not run:
            self._find(UNEXPECTED, run.scheduled_for, f"runs {other.key} and {run.key} belong to one due time")

    def _run_of(self, at: Instant) -> RunRow | None:
        key = micros_of(at)
        if run := self._runs.get(key):
            self._explained.add(key)
            return run
        for group in self._groups:
            last = group.scheduled_for if group.until is None else group.until
            if micros_of(group.scheduled_for) <= key <= micros_of(last):
                self._covered[group.id] += 1
                return group
        return None

    def _without_run(self, stretch: TriggerPeriod, due: list[Instant], *, last: bool) -> None:
        for at in due:
            self._find(*self._reason(stretch, at, last=last))

    def _reason(self, stretch: TriggerPeriod, at: Instant, *, last: bool) -> tuple[str, Instant, str]:
        job = self._job
        if stretch.state is JobState.PAUSED:
            return "paused", at, _paused(stretch)
        if at < job.kept_since:
            return "forgotten", at, f"runs before {shown(job.kept_since, self._zone)} were forgotten by retention"
        if at > self._now:
            return OPEN, at, "it is not due yet"
        if job.state is JobState.ACTIVE and job.next_due is not None and at >= job.next_due:
            if latest_start(at, job.spec.rules) + SLACK < self._now:
                return OVERDUE, at, f"it is not planned{_because(self._job, self._coverage, planned=False)}"
            return OPEN, at, "it is not planned yet"
        if last and stretch.ended is not None:
            what, by = stretch.ended.what.value, _by(stretch.ended)
            kind = "changed" if what in {"updated", "added"} else what
            return kind, at, f"the job was {what}{by} at {shown(stretch.end, self._zone)}, before this was planned"
        if at >= self._settled_before:
            return OPEN, at, "it is due now"
        if at <= self._rules_since:
            return "other zone rules", at, "it was planned with other zone rules, by which it was due at another time"
        return UNACCOUNTED, at, "the ledger has neither a run for it nor a reason why not"

    def _open(self, run: RunRow, at: Instant) -> tuple[str, Instant, str]:
        return open_run(self._job, run, at, now=self._now, zone=self._zone, coverage=self._coverage)

    def _find(self, kind: str, at: Instant, text: str) -> None:
        self._counts[kind] += 1
        before = self._findings[-1] if self._findings and self._in_a_row else None
        if before is not None and (before.kind, before.text) == (kind, text):
            self._findings[-1] = AuditFinding(kind, before.first, at, before.count + 1, text)
        else:
            self._findings.append(AuditFinding(kind, at, at, 1, text))
        self._in_a_row = kind != UNEXPECTED


def open_run(
    job: JobRow, run: RunRow, at: Instant, *, now: Instant, zone: tzinfo, coverage: Coverage | None
) -> tuple[str, Instant, str]:
    """The finding about a due time whose run is not final."""
    explained = explanation(run, paused=job.state is JobState.PAUSED)
    if explained or run.due_at + job.spec.rules.on_time + SLACK >= now:
        waits = waits_for(run, zone, job.spec.rules)
        return OPEN, at, f"its run is {f'waiting: {waits}' if waits else run.state.value}"
    return OVERDUE, at, f"its run is {run.state.value}{_because(job, coverage, planned=True)}"


def joined(findings: Iterable[AuditFinding]) -> tuple[AuditFinding, ...]:
    """Those that follow each other and say the same become one."""
    found: list[AuditFinding] = []
    for one in findings:
        before = found[-1] if found else None
        if before is not None and (before.kind, before.text) == (one.kind, one.text):
            found[-1] = AuditFinding(one.kind, before.first, one.last, before.count + one.count, one.text)
        else:
            found.append(one)
    return tuple(found)


def _because(job: JobRow, coverage: Coverage | None, *, planned: bool) -> str:
    if coverage is None:
        return ""
    where = coverage.late if planned else coverage.gap
    gap = where(job.spec.function, job.spec.rules.queue)
    return "" if gap is None else f": {gap.text}"


def _rules_since(job: JobRow, life: Sequence[TriggerPeriod]) -> Instant:
    """Since when the job is planned with the zone rules of this process. Earlier due times cannot be recomputed."""
    if job.next_reading is not None and job.next_reading.partition("@")[0] != tzdata_version():
        return math.inf
    changes = [stretch.ended for stretch in life if stretch.ended is not None and stretch.ended.why.startswith(ANEW)]
    return max((change.at for change in changes), default=-math.inf)


def micros_of(at: Instant) -> int:
    """A due time, exactly."""
    return round(at * 1e6)


def end_of(run: RunRow) -> str:
    """How a final run ended: 'succeeded', 'skipped(overlap)' …"""
    return f"skipped({run.reason})" if run.state is RunState.SKIPPED and run.reason else run.state.value


def _by(change: ChangeRecord) -> str:
    return f" by {change.by}" if change.by else ""


def _paused(stretch: TriggerPeriod) -> str:
    if stretch.began is None:
        return "paused"
    why = f" ({stretch.began.why})" if stretch.began.why else ""
    return f"paused{_by(stretch.began)}{why}"
