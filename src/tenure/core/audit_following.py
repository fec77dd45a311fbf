"""The audit of a job that follows another: compares every run of the parent with the runs of the follower (G4).

The audit of the parent checks that its own due times are complete. This one checks that for each run of the parent
there is a run of the follower: under the same key, in a row that stands for several, or still owed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo

from tenure.core.audit import (
    MARGIN,
    OPEN,
    OVERDUE,
    UNACCOUNTED,
    UNEXPECTED,
    AuditFinding,
    JobAudit,
    end_of,
    joined,
    micros_of,
    open_run,
)
from tenure.core.coverage import Coverage
from tenure.core.job_history import TriggerPeriod, stretches
from tenure.core.messages import OwedRun, Past
from tenure.core.overdue import SLACK
from tenure.core.records import ChangeRecord, Instant, JobRow, JobState, RunKind, RunRow, RunState
from tenure.util.instants import shown

Ident = int | str
"""A due time in microseconds, or the key of a requested run."""


@dataclass(frozen=True, slots=True)
class ParentPast:
    """What the ledger says about a job that another follows. Read it before the runs of the follower."""

    job: JobRow
    past: Past
    owed: Collection[OwedRun]
    """Its runs that are over and whose followers are still owed."""


def followed_jobs(job: JobRow, changes: Sequence[ChangeRecord]) -> set[str]:
    """The jobs that a job follows or has followed."""
    return {stretch.after for stretch in stretches(job, changes) if stretch.after is not None}


def audit_follower(
    job: JobRow,
    changes: Sequence[ChangeRecord],
    past: Past,
    parents: Mapping[str, ParentPast],
    *,
    since: Instant,
    until: Instant,
    now: Instant,
    coverage: Coverage | None = None,
    zone: tzinfo = UTC,
) -> tuple[JobAudit, Past]:
    """Compare the runs of a job that follows another with those of its parents, while it followed them. `past` are the
    runs of the job, and times are shown in `zone`. Also returns those that it has when it followed none: they are for
    the other audit."""
    progress = _Following(job, past, since=since, until=until, now=now, coverage=coverage, zone=zone)
    for stretch in stretches(job, changes):
        if stretch.after is not None and stretch.state is not JobState.REMOVED:
            progress.go_through(stretch, parents.get(stretch.after))
    for parent in parents.values():
        progress.take_early(parent)
    return progress.close(stretches(job, changes), parents)


class _Following:
    """One audit in progress."""

    def __init__(
        self,
        job: JobRow,
        past: Past,
        *,
        since: Instant,
        until: Instant,
        now: Instant,
        coverage: Coverage | None,
        zone: tzinfo,
    ) -> None:
        self._job, self._since, self._until, self._now, self._coverage = job, since, until, now, coverage
        self._zone = zone
        self._due = 0
        self._counts: Counter[str] = Counter()
        self._findings: list[AuditFinding] = []
        self._plain = {at: state.value for state, times in past.plain.items() for at in times}
        self._runs = {_ident(run): run for run in past.others if run.count == 1}
        self._groups = {micros_of(run.scheduled_for): run for run in past.others if run.count > 1}

    def go_through(self, stretch: TriggerPeriod, parent: ParentPast | None) -> None:
        """Check the runs of the parent from one period, in order."""
        if parent is None:
            return
        owed = {one.key for one in parent.owed} | {micros_of(one.scheduled_for) for one in parent.owed}
        finals: list[tuple[Instant, Ident, RunRow | None]] = [
            (at / 1e6, at, None) for times in parent.past.plain.values() for at in times
        ]
        finals += [(run.scheduled_for, _ident(run), run) for run in parent.past.others]
        without: list[tuple[Instant, int]] = []
        for at, ident, run in sorted(finals, key=lambda one: one[:1]):
            if not (stretch.covers(at) and self._since <= at < self._until):
                continue
            times = 1 if run is None else run.count
            self._due += times
            if self._followed(at, ident, times):
                self._lost(without, stretch, last=False)
                without = []
            elif run is not None and not run.state.final:
                self._find(OPEN, at, f"its run follows that of {stretch.after!r}, which is {run.state.value}")
            elif ident in owed:
                self._owed(at, ident, times, parent)
            elif at < self._job.kept_since:
                told = f"runs before {shown(self._job.kept_since, self._zone)} were forgotten by retention"
                self._find("forgotten", at, told, times)
            else:
                without.append((at, times))
        self._lost(without, stretch, last=stretch.end < self._until)

    def take_early(self, parent: ParentPast) -> None:
        """Runs that follow one of the parent's which was due before this job followed it, and had not begun then."""
        for at in sorted(at for times in parent.past.plain.values() for at in times):
            self._due += self._since <= at / 1e6 < self._until and self._followed(at / 1e6, at, 1)
        for run in parent.past.others:
            if self._since <= run.scheduled_for < self._until and self._followed(
                run.scheduled_for, _ident(run), run.count
            ):
                self._due += run.count

    def close(self, life: Sequence[TriggerPeriod], parents: Mapping[str, ParentPast]) -> tuple[JobAudit, Past]:
        """Sort the runs that are left: requested ones, ones whose parent's run was removed by retention, and ones from
        when the job followed no other."""
        extra: list[RunRow] = []
        others: list[RunRow] = []
        plain: dict[RunState, list[int]] = {}
        left: Iterable[tuple[Instant, str, RunRow | None]] = [
            *((at / 1e6, end, None) for at, end in self._plain.items()),
            *((run.scheduled_for, end_of(run), run) for run in (*self._runs.values(), *self._groups.values())),
        ]
        for at, end, run in sorted(left, key=lambda one: one[0]):
            here = next((one for one in life if one.after is not None and one.covers(at)), None)
            if here is None or here.after is None:
                if run is None:
                    plain.setdefault(RunState(end), []).append(micros_of(at))
                else:
                    others.append(run)
                continue
            if not self._since <= at < self._until:
                continue
            if run is not None and run.kind is not RunKind.DUE:
                extra.append(run)
                continue
            parent = parents.get(here.after)
            kept = math.inf if parent is None else max(parent.job.kept_since, parent.job.since)
            if at >= kept and at < self._now - MARGIN:
                self._find(UNEXPECTED, at, f"its run follows no run of {here.after!r}")
            else:
                self._due += 1 if run is None else run.count
                self._counts[end if run is None or run.state.final else OPEN] += 1 if run is None else run.count
        findings = tuple(sorted(self._findings, key=lambda finding: finding.first))
        audited = JobAudit(
            self._job.spec.name,
            self._since,
            self._until,
            self._due,
            dict(self._counts),
            joined(findings),
            tuple(extra),
            self._zone,
        )
        return audited, Past(plain, tuple(others))

    def _followed(self, at: Instant, ident: Ident, times: int) -> bool:
        """True if the job has a run for this one of its parent."""
        if isinstance(ident, int) and (end := self._plain.pop(ident, None)) is not None:
            self._counts[end] += 1
            return True
        if times > 1 and isinstance(ident, int):
            group = self._groups.pop(ident, None)
            if group is not None:
                self._counts[end_of(group)] += times
            return group is not None
        run = self._runs.pop(ident, None)
        if run is None:
            return False
        if run.state.final:
            self._counts[end_of(run)] += 1
        else:
            self._find(*open_run(self._job, run, at, now=self._now, zone=self._zone, coverage=self._coverage))
        return True

    def _owed(self, at: Instant, ident: Ident, times: int, parent: ParentPast) -> None:
        """The parent's run is over, and the run that follows is not there yet."""
        one = next(o for o in parent.owed if ident in {o.key, micros_of(o.scheduled_for)})
        ended = one.scheduled_for if one.finished_at is None else one.finished_at
        late = ended + self._job.spec.rules.on_time + SLACK < self._now
        text = f"owed: {parent.job.spec.name!r} has ended for it, and its run is not inserted yet"
        self._find(OVERDUE if late else OPEN, at, text, times)

    def _lost(self, without: Sequence[tuple[Instant, int]], stretch: TriggerPeriod, *, last: bool) -> None:
        for at, times in without:
            if last and stretch.ended is not None:
                what = stretch.ended.what.value
                by = f" by {stretch.ended.by}" if stretch.ended.by else ""
                told = f"the job was {what}{by} at {shown(stretch.end, self._zone)}, before this was inserted"
                self._find("changed" if what in {"updated", "added"} else what, at, told, times)
            else:
                told = f"{stretch.after!r} has ended for it, and the ledger has neither a run nor a reason why not"
                self._find(UNACCOUNTED, at, told, times)

    def _find(self, kind: str, at: Instant, text: str, times: int = 1) -> None:
        self._counts[kind] += times
        self._findings.append(AuditFinding(kind, at, at, times, text))


def _ident(run: RunRow) -> Ident:
    return run.key if run.kind is RunKind.MANUAL else micros_of(run.scheduled_for)


def merged(one: JobAudit, other: JobAudit) -> JobAudit:
    """The audit of a job that followed another for a part of the span."""
    findings = sorted((*one.findings, *other.findings), key=lambda finding: finding.first)
    return JobAudit(
        one.name,
        one.since,
        one.until,
        one.due + other.due,
        dict(Counter(one.counts) + Counter(other.counts)),
        tuple(findings),
        (*one.extra, *other.extra),
        one.tz,
    )
