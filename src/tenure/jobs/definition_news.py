"""Says, job by job, what a start does to the stored definitions.

A start logs them after it has written (`start_report.py`); `tenure diff` shows them before anything is written
(`start_preview.py`). Both take them from here, so they say the same.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from tenure.core.differences import Difference, before_and_after, differences, explained, in_force
from tenure.core.following import told
from tenure.core.messages import NewRun, Synced
from tenure.core.records import Change, ChangeRecord, Instant, JobRow, JobSpec, JobState
from tenure.core.trigger_text import first_sentence, zone_of
from tenure.jobs.operations import why_done
from tenure.stores.ledger import Ledger
from tenure.util.instants import shown

LOOKS_BACK = 20
"""For how many changed jobs of one start the history of changes is read."""
NONE: Mapping[str, Sequence[NewRun]] = {}
GONE = 1000
"""How many jobs that are gone from the code are counted."""


class NewsKind(StrEnum):
    """What becomes of a job. The value is the `action` of the log record."""

    NEW = "job_new"
    CHANGED = "definition_changed"
    PUT_BACK = "put_back"
    """Changed to what it was before: older code may have started."""
    OVERRIDE_ENDED = "override_ended"
    """Changed, and with that an update by hand is overwritten."""
    BACK = "removed_and_back"
    """Removed by hand, and back because its definition has changed."""
    REMOVED = "removed_but_defined"
    """Removed by hand, and stays so."""
    OVERRIDDEN = "overridden"
    """Changed by hand, and stays so."""
    NEWER_RELEASE = "newer_release"
    """Left alone, because a newer release has defined it."""
    GONE = "gone"
    """In the ledger, but not in the code."""
    DONE = "added_done"
    """Nothing is due any more."""
    POOL = "pool_without_size"

    @property
    def level(self) -> int:
        """The level of its log record."""
        return logging.WARNING if self in _WARNINGS else logging.INFO

    @property
    def written(self) -> bool:
        """True if the definition in the ledger becomes another one."""
        return self in _WRITTEN


_WARNINGS = {NewsKind.OVERRIDE_ENDED, NewsKind.BACK, NewsKind.REMOVED, NewsKind.DONE, NewsKind.POOL}
_WRITTEN = {NewsKind.NEW, NewsKind.CHANGED, NewsKind.PUT_BACK, NewsKind.OVERRIDE_ENDED, NewsKind.BACK}


@dataclass(frozen=True, slots=True)
class News:
    """One sentence about one job, or about one pool."""

    kind: NewsKind
    name: str
    text: str
    """The whole sentence."""
    differences: tuple[Difference, ...] = ()
    """What changes in the definition, old and new."""
    remark: str = ""
    """What else there is to say, for readers who see kind, name and differences already."""
    ends: bool = False
    """For GONE: a live node has its function, so it runs until that node is replaced; or no node is alive, and it has a
    trigger, so it ran until the nodes stopped."""

    @property
    def changes(self) -> bool:
        """True if after a deploy something is or runs differently."""
        return self.kind.written or self.ends


class DefinitionNews:
    """The news of one start."""

    def __init__(self, ledger: Ledger, application: str, release: int, tz: str) -> None:
        self._ledger, self._application, self._release, self._tz = ledger, application, release, tz
        self._looked_back = 0

    def of(
        self, synced: Iterable[Synced], brought: Mapping[str, JobSpec], planned: Mapping[str, Sequence[NewRun]] = NONE
    ) -> Iterator[News]:
        """Each job that is new, whose definition has changed, or that runs differently from its definition here.

        `planned`: the runs that come with these jobs, by name, if they are not in the ledger yet.
        """
        for one in synced:
            job, was = one.row, one.was
            if was is None or was.generation != job.generation:
                yield _new(job) if was is None else self._changed(was, job)
                if job.state is JobState.DONE:
                    name, where = job.spec.name, zone_of(job.spec.trigger, default=self._tz)
                    why = why_done(self._ledger, job, where, planned.get(name, ()))
                    yield News(NewsKind.DONE, name, f"job {name!r} was added, but {why}", remark=why)
            elif job.state is JobState.REMOVED:
                yield _removed(job)
            elif not brought[job.spec.name].same_as(job.spec):
                yield _different(job, brought[job.spec.name])

    def gone(self, mine: Collection[str], *, replaced: bool = False) -> Iterator[News]:
        """The jobs of functions that neither this process (`mine`) nor a live node of this release or a newer one has.

        `replaced`: live nodes of this release are about to be replaced, too.
        """
        functions = self._ledger.functions(self._application)
        missing = functions - frozenset(mine)
        nodes = self._ledger.present(self._application) if missing else []
        staying = [n for n in nodes if n.release > self._release or (n.release == self._release and not replaced)]
        missing -= frozenset(function for node in staying for function in node.functions)
        if not missing:
            return
        served = [(function, None) for function in functions - missing]
        having = {function for node in nodes for function in node.functions}
        gone = sorted(self._ledger.unserved(self._application, served, GONE), key=lambda job: job.name)
        triggers = self._ledger.triggers({job.id for job in gone}) if replaced and not nodes else {}
        for job in gone:
            runs_now, function = replaced and job.function in having, repr(job.function)
            remark = f"neither this process nor a live node of its release has the function {function}"
            if runs_now:
                remark = f"this code lacks its function {function}; it runs until the nodes that have it are replaced"
            text = f"job {job.name!r} is gone from the code: {remark}"
            yield News(NewsKind.GONE, job.name, text, remark=remark, ends=runs_now or triggers.get(job.id) is not None)

    def pools(self, brought: Iterable[JobSpec]) -> Iterator[News]:
        """The pools of these jobs whose size no one has set. Asks nothing if no job names a pool."""
        named = {spec.rules.pool for spec in brought if spec.rules.pool}
        set_ = {pool.name for pool in self._ledger.pools(self._application) if pool.size is not None} if named else ()
        for name in sorted(named.difference(set_)):
            remark = f"its jobs run one at a time. `tenure pool {name} 2` or scheduler.pool() sets it"
            yield News(NewsKind.POOL, name, f"pool {name!r} has no size yet: {remark}", remark=remark)

    def _changed(self, was: JobRow, job: JobRow) -> News:
        """The definition in the code has changed."""
        name, change, how = job.spec.name, before_and_after(was.code, job.spec), tuple(differences(was.code, job.spec))
        if was.state is JobState.REMOVED:
            by = _by_and_at(was.removed_by, was.removed_at)
            text = f"job {name!r} was removed{by} and is back: its definition in the code has changed ({change})"
            return News(NewsKind.BACK, name, text, how, f"it was removed{by}, and is back")
        if was.override is not None:
            by, until_now = _by_and_at(was.override.by, was.override.at), in_force(was.spec, was.code)
            text = (
                f"job {name!r} runs as defined here again, because its definition has changed ({change}). "
                f"Until now it ran as changed{by}: {until_now}"
            )
            return News(NewsKind.OVERRIDE_ENDED, name, text, how, f"overwrites what was changed{by}: {until_now}")
        text = f"job {name!r}: its definition in the code has changed ({change})"
        until = self._put_back(was, job)
        if until is None:
            return News(NewsKind.CHANGED, name, text, how)
        remark = (
            f"It was the same until {shown(until)}: older code may have started. With release= on the scheduler, an "
            "older release changes nothing"
        )
        return News(NewsKind.PUT_BACK, name, f"{text}. {remark}", how, remark)

    def _put_back(self, was: JobRow, job: JobRow) -> Instant | None:
        """Until when the job had the trigger that it has now, if it had another one in between."""
        if was.spec.trigger == job.spec.trigger or self._looked_back >= LOOKS_BACK:
            return None
        self._looked_back += 1
        return _had_until(self._ledger.changes(self._application, job.spec.name), was, job)


def _new(job: JobRow) -> News:
    trigger = told(job.spec.rules) or first_sentence(explained(job.spec.trigger)) or "on request"
    return News(NewsKind.NEW, job.spec.name, f"job {job.spec.name!r} is new: {trigger}", remark=trigger)


def _removed(job: JobRow) -> News:
    name, by = job.spec.name, _by_and_at(job.removed_by, job.removed_at)
    advice = f"`tenure restore {name}`, or a change of its definition, brings it back"
    text = f"job {name!r} is defined here, but was removed{by}: it does not run. {advice}"
    return News(NewsKind.REMOVED, name, text, remark=f"was removed{by}, and does not run. {advice}")


def _different(job: JobRow, brought: JobSpec) -> News:
    """The ledger has another definition in force than this process has."""
    name = job.spec.name
    if job.override is not None and brought.same_as(job.code):
        by, how = _by_and_at(job.override.by, job.override.at), in_force(job.spec, job.code)
        advice = f"`tenure reset {name}`, or a change of its definition, ends that"
        text = f"job {name!r} runs as changed{by}, not as defined here: {how}. {advice}"
        return News(NewsKind.OVERRIDDEN, name, text, remark=f"runs as changed{by}: {how}. {advice}")
    newer = f"runs as release {job.spec.release} defines it, which is newer than {brought.release} here"
    remark = f"{newer}: {in_force(job.spec, brought)}"
    return News(NewsKind.NEWER_RELEASE, name, f"job {name!r} {remark}", remark=remark)


def _had_until(changes: Iterable[ChangeRecord], was: JobRow, job: JobRow) -> Instant | None:
    """The end of the last time in which this trigger applied, before the change to it."""
    mine = [change for change in changes if change.job == was.id and change.generation <= was.generation]
    until = None
    for one, following in pairwise(mine):
        if one.trigger == job.spec.trigger != following.trigger and following.what is Change.UPDATED:
            until = following.at
    return until


def _by_and_at(by: str, at: float | None) -> str:
    return (f" by {by}" if by else "") + ("" if at is None else f" at {shown(at)}")
