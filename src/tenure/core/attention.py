"""What an operator has to look at: jobs that no live node can run, due times that are overdue, removals that the code
contradicts, stored arguments that do not fit. `status`, `attention()` and its JSON share this list, the worst first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tenure.core.causes import Cause
from tenure.core.coverage import Coverage, Gap
from tenure.core.messages import LaneJob, Overdue
from tenure.core.records import Instant, JobRow
from tenure.util.instants import shown
from tenure.util.plurals import counted, several

LIMIT = 1000
"""How many orphaned jobs and overdue due times are read. A list of that length says "or more"."""
IN_TEXT = 5
"""How many jobs a sentence names."""


@dataclass(frozen=True, slots=True)
class Concern:
    """One thing to look at: all jobs that one cause applies to."""

    cause: Cause
    fails: bool
    """`tenure status` ends with exit code 1: a due time is overdue, nothing can run or plan, a job that live code
    defines was removed, or its function cannot be called with its arguments. False: nothing is late yet."""
    jobs: tuple[str, ...]
    """The names of the jobs, at most `LIMIT`."""
    text: str
    since: Instant | None = None
    """Since when the oldest of these due times is due."""
    overdue: int = 0
    """How many due times are overdue, `LIMIT` at most for each cause."""


@dataclass(slots=True)
class _Group:
    gap: Gap
    function: str
    queue: str
    jobs: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    late: list[Overdue] = field(default_factory=list)


def concerns(
    coverage: Coverage, orphaned: Sequence[LaneJob], overdue: Sequence[Overdue], removed: Iterable[JobRow]
) -> list[Concern]:
    """Group what needs attention by its cause.

    `orphaned` are active jobs that no live node can run, `overdue` due times past their grace, `removed` jobs that were
    removed by hand although code defines them.
    """
    groups: dict[tuple[str, ...], _Group] = {}
    gaps: dict[tuple[str, str], Gap] = {}

    def group(job: LaneJob | Overdue, *, late: bool) -> _Group:
        gap = gaps.get((job.function, job.queue)) or coverage.late(job.function, job.queue)
        gaps[job.function, job.queue] = gap
        if (
            late
            and isinstance(job, Overdue)
            and job.run is None
            and gap.cause in {Cause.NOT_CLAIMED, Cause.NO_FREE_SLOT}
        ):
            able = coverage.able(job.function, job.queue)[0].label
            gap = Gap(Cause.NOT_PLANNED, f"they are not planned, although {able} can run them")
        per_queue = gap.cause in {Cause.NO_QUEUE, Cause.NO_FREE_SLOT, Cause.NOT_CLAIMED}
        found = groups.setdefault((gap.cause, job.queue if per_queue else ""), _Group(gap, job.function, job.queue))
        found.jobs.add(job.name)
        found.functions.add(job.function)
        return found

    for job in orphaned:
        if coverage.gap(job.function, job.queue):
            group(job, late=False)
    for one in overdue:
        group(one, late=True).late.append(one)
    found = [_concern(coverage, each) for each in groups.values()]
    if coverage.nodes and not any(node.plans for node in coverage.nodes):
        found.append(
            Concern(
                Cause.NO_PLANNER,
                True,
                (),
                f"No node plans: {counted(len(coverage.nodes), 'node')} of the application "
                f"{'is' if len(coverage.nodes) == 1 else 'are'} alive, and none is the planner.",
            )
        )
    if gone := [*removed]:
        found.append(_removed(coverage, gone))
    found += [Concern(Cause.ARGUMENTS, one.surely, one.named, one.text) for one in coverage.unfit]
    order = list(Cause)
    return sorted(found, key=lambda one: (not one.fails, order.index(one.cause), one.since or 0.0))


def _concern(coverage: Coverage, group: _Group) -> Concern:
    jobs, late = tuple(sorted(group.jobs)), sorted(group.late, key=lambda one: one.due)
    many = f"{len(jobs)} or more jobs" if len(jobs) >= LIMIT else counted(len(jobs), "job")
    names = several(jobs, IN_TEXT)
    match group.gap.cause:
        case Cause.NO_NODE:
            text = f"No node of the application {coverage.application!r} is alive, so nothing runs: {many} ({names})."
        case Cause.NO_FUNCTION if len(jobs) == 1:
            text = f"{names} is orphaned: {group.gap.text}."
        case Cause.NO_FUNCTION:
            text = f"{many} are orphaned, because no live node has their functions: {names}."
        case Cause.NO_QUEUE if len(jobs) == 1:
            text = f"{names} is orphaned: {group.gap.text}."
        case Cause.NO_QUEUE:
            text = (
                f"{many} are orphaned, because no live node that has their functions serves the queue "
                f"{group.queue!r}: {names}."
            )
        case _:
            text = f"{many} should have run ({names}): {group.gap.text}."
    if late:
        least = "at least " if len(late) >= LIMIT else ""
        one = late[0]
        count = f"{least}{counted(len(late), 'due time')} {'is' if len(late) == 1 else 'are'} overdue"
        oldest = "" if len(late) == 1 else ", the oldest"
        text += f" {count}{oldest}{' of ' + one.name if len(jobs) > 1 else ''} since {shown(one.due)}."
    fails = bool(late) or group.gap.cause is Cause.NO_NODE
    return Concern(group.gap.cause, fails, jobs, text, late[0].due if late else None, len(late))


def _removed(coverage: Coverage, gone: Sequence[JobRow]) -> Concern:
    jobs = tuple(job.spec.name for job in gone)
    if len(gone) == 1:
        (job,) = gone
        by = f" by {job.removed_by}" if job.removed_by else ""
        at = "" if job.removed_at is None else f" at {shown(job.removed_at)}"
        text = (
            f"{job.spec.name} is defined in code, but was removed{by}{at}: it does not run. "
            f"`tenure restore {job.spec.name}` brings it back."
        )
    else:
        text = (
            f"{counted(len(jobs), 'job')} are defined in code, but were removed by hand: they do not run. "
            f"`tenure restore JOB` brings one back: {several(jobs, IN_TEXT)}."
        )
    since = min((job.removed_at for job in gone if job.removed_at is not None), default=None)
    return Concern(Cause.REMOVED, any(coverage.has(job.spec.function) for job in gone), jobs[:LIMIT], text, since)
