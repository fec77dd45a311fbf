"""Questions to the ledger, answered in the words and zones of people."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from datetime import datetime, tzinfo
from itertools import islice

from tenure import verbs
from tenure.audit import JobAudit
from tenure.audit import audit as audit_of
from tenure.errors import ConfigurationError
from tenure.history import read
from tenure.ledger import Instant, JobRow, JobState, RunId, RunRow
from tenure.moments import moment
from tenure.stores.ledger import Ledger, RunQuery
from tenure.views import JobView, RunView, StatsView, zone_of
from tenure.why import why as why_of

MAX_RUNS = 10_000
"""Runs of one answer."""
AUDITED = 1_000_000
"""Runs of one job that an audit looks at."""
NEARBY = 1000
"""Runs of a job that an explanation looks at."""


class Lookup:
    """Looks into one application."""

    def __init__(self, application: str, tz: str) -> None:
        self._application, self._tz = application, tz

    def jobs(self, ledger: Ledger, *, removed: bool = False) -> list[JobView]:
        """All jobs, by name; with `removed` also those that were removed and that code still defines."""
        now, rows = ledger.now(), ledger.jobs(self._application)
        if removed and (gone := ledger.removed(self._application)):
            live = {name for node in ledger.nodes(self._application) for name in node.functions}
            rows += [row for row in gone if row.spec.function in live or row.defined_at > (row.removed_at or 0.0)]
            rows.sort(key=lambda row: row.spec.name)
        return [self.shown_job(row, now) for row in rows]

    def those(self, ledger: Ledger, names: Iterable[str]) -> list[JobView]:
        """Those of these jobs that are there."""
        now = ledger.now()
        return [self.shown_job(row, now) for name in names for row in ledger.jobs(self._application, name)]

    def job(self, ledger: Ledger, name: str) -> JobView:
        """One job."""
        return self.shown_job(verbs.known(ledger, self._application, name), ledger.now())

    def runs(
        self,
        ledger: Ledger,
        job: str | None,
        *,
        since: datetime | str | None,
        until: datetime | str | None,
        state: str | Iterable[str] | None,
        limit: int,
    ) -> list[RunView]:
        """Runs, the newest first."""
        if type(limit) is not int or not 1 <= limit <= MAX_RUNS:
            raise ConfigurationError(f"limit: {limit!r} must be a whole number from 1 to {MAX_RUNS:,}.")
        now = ledger.now()
        query = RunQuery(
            self._application,
            job,
            verbs.states(state),
            None if since is None else verbs.point(since, now, "since"),
            None if until is None else verbs.point(until, now, "until"),
            limit=limit,
        )
        rows = ledger.runs(query)
        if job is not None and not rows:
            self._row(ledger, job)
        return self.shown_runs(ledger, rows)

    def run(self, ledger: Ledger, run_id: int) -> RunView:
        """One run."""
        return self.shown_run(ledger, verbs.found(ledger, self._application, run_id))

    def log(self, ledger: Ledger, run_id: int) -> list[str]:
        """What its attempts logged."""
        return ledger.log(RunId(verbs.found(ledger, self._application, run_id).id))

    def next(self, ledger: Ledger, n: int) -> list[tuple[datetime, str]]:
        """The next due times of all jobs, in turn."""
        if type(n) is not int or not 0 <= n <= MAX_RUNS:
            raise ConfigurationError(f"next: n={n!r} must be a whole number from 0 to {MAX_RUNS:,}.")
        now = ledger.now()
        walks = [_walk(row, moment(now)) for row in ledger.jobs(self._application)]
        return list(islice(heapq.merge(*walks), n))

    def stats(self, ledger: Ledger, name: str) -> StatsView:
        """Figures of the last runs of a job."""
        row = self._row(ledger, name)
        return StatsView.of(name, ledger.stats(self._application, name), self.zone(row))

    def audit(
        self, ledger: Ledger, name: str | None, since: datetime | str, until: datetime | str | None
    ) -> list[JobAudit]:
        """What became of every due time of a span, job by job."""
        now = ledger.now()
        start = verbs.point(since, now, "since")
        end = now if until is None else verbs.point(until, now, "until")
        rows = ledger.jobs(self._application, removed=True) if name is None else [self._row(ledger, name)]
        found = []
        for row in rows:
            audited = self._audited(ledger, row, start, end)
            if not audited.clean:  # retention may have removed runs between the questions
                audited = self._audited(ledger, self._row(ledger, row.spec.name), start, end)
            found.append(audited)
        return found

    def why(self, ledger: Ledger, name: str, at: datetime | str | None) -> str:
        """Why a job ran, or did not, at a time or now."""
        row, now = self._row(ledger, name), ledger.now()
        when = None if at is None else verbs.point(at, now, "at")
        query = RunQuery(self._application, name, before=None if when is None else when + 86400.0, limit=NEARBY)
        changes = ledger.changes(self._application, name)
        return why_of(row, changes, ledger.runs(query), at=when, now=now, live=True)

    def shown_job(self, row: JobRow, now: float) -> JobView:
        """A job for people."""
        return JobView.of(row, self._tz, now)

    def shown_run(self, ledger: verbs.Looks, row: RunRow) -> RunView:
        """A run for people."""
        return self.shown_runs(ledger, [row])[0]

    def shown_runs(self, ledger: verbs.Looks, rows: list[RunRow]) -> list[RunView]:
        """Runs for people, each in the zone of its job."""
        if not rows:
            return []
        names = {row.name for row in rows}
        only = names.pop() if len(names) == 1 else None
        zones = {row.id: self.zone(row) for row in ledger.jobs(self._application, only, removed=True)}
        utc = zone_of(None, self._tz)
        return [RunView.of(row, zones.get(row.job, utc)) for row in rows]

    def _audited(self, ledger: Ledger, row: JobRow, start: Instant, end: Instant) -> JobAudit:
        name = row.spec.name
        changes = ledger.changes(self._application, name)
        query = RunQuery(self._application, name, since=start, before=end, limit=AUDITED, oldest_first=True)
        return audit_of(row, changes, ledger.runs(query), since=start, until=end, now=ledger.now())

    def _row(self, ledger: Ledger, name: str) -> JobRow:
        """A job, also one that was removed: its history is still there."""
        rows = ledger.jobs(self._application, name, removed=True)
        if not rows:
            raise verbs.unknown(ledger, self._application, name)
        return rows[0]

    def zone(self, row: JobRow) -> tzinfo:
        """The zone of a job."""
        return zone_of(row.spec.trigger, self._tz)


def _walk(row: JobRow, now: datetime) -> Iterator[tuple[datetime, str]]:
    """The due times of one job from now on; of a paused one, from the end of its pause on."""
    if row.spec.trigger is None or (row.state is not JobState.ACTIVE and row.paused_until is None):
        return
    trigger, _ = read(row.spec.trigger)
    if trigger is None:
        return
    start = now if row.paused_until is None else max(now, moment(row.paused_until))
    due = trigger.next_after(start)
    while due is not None:
        yield due, row.spec.name
        due = trigger.next_after(due)
