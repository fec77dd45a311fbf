"""Logs what a start changes in the ledger, and what becomes of the definitions that a process brings.

No job that the code defines is added, changes or stays different without a line in the log; nor does one go from the
code. Each kind of news has at most `LINES` lines of its own, and then a count.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise

from tenure.core.differences import before_and_after, explained, in_force
from tenure.core.messages import Synced
from tenure.core.records import Change, ChangeRecord, Instant, JobRow, JobSpec, JobState
from tenure.core.trigger_text import zone_of
from tenure.jobs.operations import warn_of_done
from tenure.stores.ledger import Ledger
from tenure.util.instants import shown
from tenure.util.plurals import counted

logger = logging.getLogger("tenure")

LINES = 20
"""How many lines each kind of news has."""
GONE = 1000
"""How many jobs that are gone from the code are counted."""


def tell(ledger: Ledger, synced: Iterable[Synced], brought: Mapping[str, JobSpec], tz: str) -> None:
    """The news of one batch."""
    report = StartReport(tz)
    report.add(ledger, synced, brought)
    report.close()


def warn_of_pools(ledger: Ledger, application: str, brought: Iterable[JobSpec]) -> None:
    """Warn of the pools of these jobs whose size no one has set. Asks nothing if no job names a pool."""
    named = {spec.rules.pool for spec in brought if spec.rules.pool}
    for pool in ledger.pools(application) if named else []:
        if pool.size is None and pool.name in named:
            logger.warning(
                "pool %r has no size yet: its jobs run one at a time. `tenure pool %s 2` or scheduler.pool() sets it",
                pool.name,
                pool.name,
                extra={"action": "pool_without_size"},
            )


class StartReport:
    """The news of one start."""

    def __init__(self, tz: str) -> None:
        self._tz = tz
        self._told: Counter[tuple[int, str, str]] = Counter()

    def add(self, ledger: Ledger, synced: Iterable[Synced], brought: Mapping[str, JobSpec]) -> None:
        """Log each job that is new, whose definition has changed, or that runs differently from its definition here."""
        for one in synced:
            job, was = one.row, one.was
            if was is None or was.generation != job.generation:
                if was is None:
                    self._new(job)
                else:
                    self._changed(ledger, was, job)
                if job.state is JobState.DONE:
                    warn_of_done(ledger, job, zone_of(job.spec.trigger, default=self._tz))
            elif job.state is JobState.REMOVED:
                self._removed(job)
            elif not brought[job.spec.name].same_as(job.spec):
                self._different(job, brought[job.spec.name])

    def gone(self, ledger: Ledger, application: str, release: int, mine: Collection[str]) -> None:
        """Log the jobs of functions that neither this process (`mine`) nor a live node of this release or a newer one
        has."""
        missing = ledger.functions(application) - frozenset(mine)
        if missing:
            nodes = ledger.nodes(application)
            missing -= frozenset(name for node in nodes if node.release >= release for name in node.functions)
        if not missing:
            return
        served = [(function, None) for function in ledger.functions(application) - missing]
        for job in sorted(ledger.unserved(application, served, GONE), key=lambda job: job.name):
            self._say(
                logging.INFO,
                "gone",
                "are gone from the code",
                "job %r is gone from the code: neither this process nor a live node of its release has the function %r",
                job.name,
                job.function,
            )

    def close(self) -> None:
        """Say how many lines were left out."""
        for (level, action, what), count in self._told.items():
            if count > LINES:
                more = counted(count - LINES, "more job")
                logger.log(level, "%s %s: `tenure jobs` shows them", more, what, extra={"action": action})

    def _say(self, level: int, action: str, what: str, text: str, *args: object) -> None:
        self._told[level, action, what] += 1
        if self._told[level, action, what] <= LINES:
            logger.log(level, text, *args, extra={"action": action})

    def _new(self, job: JobRow) -> None:
        trigger = explained(job.spec.trigger).partition(". ")[0].rstrip(".") or "on request"
        self._say(logging.INFO, "job_new", "are new", "job %r is new: %s", job.spec.name, trigger)

    def _changed(self, ledger: Ledger, was: JobRow, job: JobRow) -> None:
        """The definition in the code has changed."""
        name, change = job.spec.name, before_and_after(was.code, job.spec)
        if was.state is JobState.REMOVED:
            self._say(
                logging.WARNING,
                "removed_and_back",
                "were removed and are back, because their definitions in the code have changed",
                "job %r was removed%s and is back: its definition in the code has changed (%s)",
                name,
                _by_and_at(was.removed_by, was.removed_at),
                change,
            )
        elif was.override is not None:
            self._say(
                logging.WARNING,
                "override_ended",
                "run as defined here again, because their definitions have changed",
                "job %r runs as defined here again, because its definition has changed (%s). Until now it ran as "
                "changed%s: %s",
                name,
                change,
                _by_and_at(was.override.by, was.override.at),
                in_force(was.spec, was.code),
            )
        elif (until := self._put_back(ledger, was, job)) is not None:
            self._say(
                logging.INFO,
                "put_back",
                "are put back to what older code said",
                "job %r: its definition in the code has changed (%s). It was the same until %s: older code may have "
                "started. With release= on the scheduler, an older release changes nothing",
                name,
                change,
                shown(until),
            )
        else:
            self._say(
                logging.INFO,
                "definition_changed",
                "have changed definitions in the code",
                "job %r: its definition in the code has changed (%s)",
                name,
                change,
            )

    def _put_back(self, ledger: Ledger, was: JobRow, job: JobRow) -> Instant | None:
        """Until when the job had the trigger that it has now, if it had another one in between."""
        told = self._told[logging.INFO, "put_back", "are put back to what older code said"]
        if was.spec.trigger == job.spec.trigger or told >= LINES:
            return None
        return _had_until(ledger.changes(job.spec.application, job.spec.name), job)

    def _removed(self, job: JobRow) -> None:
        name = job.spec.name
        self._say(
            logging.WARNING,
            "removed_but_defined",
            "are defined here, but were removed: they do not run",
            "job %r is defined here, but was removed%s: it does not run. `tenure restore %s`, or a change of its "
            "definition, brings it back",
            name,
            _by_and_at(job.removed_by, job.removed_at),
            name,
        )

    def _different(self, job: JobRow, brought: JobSpec) -> None:
        """The ledger has another definition in force than this process has."""
        name = job.spec.name
        if job.override is not None and brought.same_as(job.code):
            self._say(
                logging.INFO,
                "overridden",
                "run as changed by hand, not as defined here",
                "job %r runs as changed%s, not as defined here: %s. `tenure reset %s`, or a change of its definition, "
                "ends that",
                name,
                _by_and_at(job.override.by, job.override.at),
                in_force(job.spec, job.code),
                name,
            )
        else:
            self._say(
                logging.INFO,
                "newer_release",
                "run as a newer release defines them",
                "job %r runs as release %d defines it, which is newer than %d here: %s",
                name,
                job.spec.release,
                brought.release,
                in_force(job.spec, brought),
            )


def _had_until(changes: Iterable[ChangeRecord], job: JobRow) -> Instant | None:
    """The end of the last time in which this trigger applied, before the change to it."""
    mine = [change for change in changes if change.job == job.id and change.generation < job.generation]
    until = None
    for one, following in pairwise(mine):
        if one.trigger == job.spec.trigger != following.trigger and following.what is Change.UPDATED:
            until = following.at
    return until


def _by_and_at(by: str, at: float | None) -> str:
    return (f" by {by}" if by else "") + ("" if at is None else f" at {shown(at)}")
