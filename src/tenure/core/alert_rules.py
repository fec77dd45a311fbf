"""What is wrong now: the rules behind the alerts. Pure: the facts come from the ledger (`scheduling/alert_look.py`).

What `status` and the page call orphaned, overdue or unplanned is decided by the same functions: `Coverage.gap`,
`Coverage.late`, `Ledger.overdue`, `expected_by` and `JobOutcome.failures`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tenure.core.alerts import AlertKind, AlertLimits, AlertRow, DeadNode, JobMarks, Symptom
from tenure.core.coverage import Coverage
from tenure.core.database_clock import DOUBT
from tenure.core.expected import awaited_due, expected_by, least_allowance, settled_until, usual_limit
from tenure.core.messages import JobOutcome, JobStats, LaneJob, Overdue
from tenure.core.overdue import SLACK, latest_start
from tenure.core.records import Instant, JobRow, JobState, RunRow
from tenure.errors import ConfigurationError
from tenure.triggers import Trigger
from tenure.util.durations import readable
from tenure.util.instants import shown
from tenure.util.last_line import last_line
from tenure.util.plurals import counted

LONG = 30.0
"""A run is never unusually long before it has run for this many seconds."""
NOTICED = 60.0
"""Within so many seconds all nodes have noticed that the clock has jumped."""
AWAY = 3600.0
"""A node that stays away for this many seconds is not waited for any more."""

Figures = Callable[[str], JobStats]
"""Statistics of the last runs of a job, by its name. Asked only when they decide something."""


def orphaned(coverage: Coverage, jobs: Iterable[LaneJob], now: Instant) -> list[Symptom]:
    """Active jobs that no live node can run."""
    found = []
    for job in jobs:
        if gap := coverage.gap(job.function, job.queue):
            text = f"{job.name!r} is orphaned: {gap.text}."
            found.append(Symptom(AlertKind.ORPHANED, job.name, text, now))
    return found


def not_started(coverage: Coverage, overdue: Iterable[Overdue]) -> list[Symptom]:
    """Due times past their grace that live nodes could have begun. For the oldest of each job."""
    oldest: dict[str, Overdue] = {}
    for one in coverage.startable(overdue):
        if one.name not in oldest or one.due < oldest[one.name].due:
            oldest[one.name] = one
    found = []
    for name, one in oldest.items():
        planned = "" if one.run is not None else ", and it is not planned"
        text = f"{name!r} was due at {shown(one.due)} and has not begun{planned}."
        found.append(Symptom(AlertKind.NOT_STARTED, name, text, one.due))
    return found


def failing(outcomes: Iterable[JobOutcome], limits: AlertLimits) -> list[Symptom]:
    """Jobs of which several runs in a row failed or were lost."""
    found = []
    for one in outcomes:
        if one.failures >= limits.failing:
            since = one.at if one.since is None else one.since
            error = last_line(one.reason) or one.state.value
            text = f"{one.name!r} has failed at least {counted(limits.failing, 'time')} in a row since {shown(since)}"
            found.append(Symptom(AlertKind.FAILING, one.name, f"{text}: {error}", since))
    return found


def too_long(running: Iterable[RunRow], figures: Figures, now: Instant) -> list[Symptom]:
    """Runs that take more than three times as long as 99 of 100 runs of their jobs."""
    found: dict[str, Symptom] = {}
    for run in running:
        began = run.began_at
        if began is None or now - began <= LONG:
            continue
        stats = figures(run.name)
        limit = usual_limit(stats.runs, stats.duration_p99)
        if limit is None or now - began <= limit:
            continue
        text = (
            f"run {run.id} of {run.name!r} has been running on {run.node} since {shown(began)}; "
            f"99 of 100 of its last {stats.runs} runs took {readable(stats.duration_p99 or 0.0)} or less."
        )
        if run.name not in found or began < found[run.name].since:
            found[run.name] = Symptom(AlertKind.TOO_LONG, run.name, text, began)
    return [*found.values()]


def of_marks(
    marks: JobMarks, trigger: Trigger | None, figures: Figures, now: Instant, quiet: bool
) -> Iterable[Symptom]:
    """Whether a job is overdue, has never run, or has missed its last due time.

    `quiet`: it is orphaned or not started, which explains more than 'never ran' and 'missed' do.
    """
    row, name = marks.row, marks.row.spec.name
    if trigger is None:
        return
    try:
        yield from _overdue(marks, trigger, figures, now)
        due = _never_ran(marks, trigger)
    except ConfigurationError:
        return  # `tenure jobs` and the log say what is wrong with the trigger
    never = due is not None and latest_start(due, row.spec.rules) + SLACK < now
    if quiet:
        return
    if never and due is not None:
        text = f"{name!r} has not run since it was added, changed or resumed at {shown(row.since)}. "
        yield Symptom(AlertKind.NEVER_RAN, name, f"{text}Its first due time was {shown(due)}.", row.since)
    elif (
        marks.missed is not None and marks.missed >= row.since and not marks.busy and marks.missed > (marks.ran or 0.0)
    ):
        text = f"{name!r} missed {shown(marks.missed)}: no node began it in time. No later run has ended since."
        yield Symptom(AlertKind.MISSED, name, text, marks.missed)


def _overdue(marks: JobMarks, trigger: Trigger, figures: Figures, now: Instant) -> Iterable[Symptom]:
    row, rules = marks.row, marks.row.spec.rules
    due = awaited_due(trigger, since=row.since, settled=settled_until(rules, marks.settled, marks.settled_at))
    if row.state is JobState.DONE or due is None or due + least_allowance(rules) >= now:
        return
    runs, p99 = 0, None
    if rules.expect_within is None and rules.timeout is None:
        stats = figures(row.spec.name)
        runs, p99 = stats.runs, stats.duration_p99
    by = expected_by(
        trigger,
        rules,
        since=row.since,
        settled=marks.settled,
        settled_at=marks.settled_at,
        held=marks.held,
        runs=runs,
        p99=p99,
    )
    if by is None or by >= now:
        return
    text = f"{row.spec.name!r} has not succeeded since its due time {shown(due)}. "
    text += f"It was expected to within {readable(round(by - due, 6))}, by {shown(by)}."
    yield Symptom(AlertKind.OVERDUE, row.spec.name, text, by)


def _never_ran(marks: JobMarks, trigger: Trigger) -> Instant | None:
    """The first due time of a job that has not run since it was added, changed or resumed; None if it has."""
    row = marks.row
    if row.state is JobState.DONE or marks.busy or (marks.ran is not None and marks.ran >= row.since):
        return None
    return awaited_due(trigger, since=row.since, settled=marks.settled)


def paused(jobs: Iterable[tuple[JobRow, Instant]], now: Instant, limits: AlertLimits) -> list[Symptom]:
    """Jobs that have been paused for long, each with the instant of its pause."""
    found = []
    for row, at in jobs:
        if now - at > limits.paused and row.paused_until is None:
            by = f" by {row.paused_by}" if row.paused_by else ""
            why = f" ({row.paused_why})" if row.paused_why else ""
            text = f"{row.spec.name!r} was paused{by}{why} at {shown(at)} and stays paused until it is resumed."
            found.append(Symptom(AlertKind.PAUSED, row.spec.name, text, at))
    return found


def no_planner(coverage: Coverage, since: Instant) -> list[Symptom]:
    """Nodes are alive, and none of them plans."""
    if not coverage.nodes or any(node.plans for node in coverage.nodes):
        return []
    alive = f"{counted(len(coverage.nodes), 'node')} {'is' if len(coverage.nodes) == 1 else 'are'} alive"
    return [Symptom(AlertKind.NO_PLANNER, "", f"No node plans: {alive}, and none is the planner.", since)]


def silent(dead: Sequence[DeadNode], alive: Mapping[str, Instant], now: Instant) -> list[Symptom]:
    """Nodes that died in the last hour and have not come back under their names. `alive`: labels of live nodes."""
    newest: dict[str, DeadNode] = {}
    for one in dead:
        if one.label not in newest or one.at > newest[one.label].at:
            newest[one.label] = one
    return [
        Symptom(
            AlertKind.NODE_SILENT,
            label,
            f"node {label} died at {shown(one.at)} ({one.why}) and has not come back.",
            one.at,
        )
        for label, one in newest.items()
        if label not in alive and now - one.at < AWAY
    ]


def clock_believed(rows: Iterable[AlertRow], now: Instant) -> bool:
    """Whether a node that believes the clock may say so for all. The others doubt for at most `DOUBT`; a time to come
    was of the clock that jumped."""
    seen = [row.first_seen for row in rows if row.kind == AlertKind.CLOCK_DOUBTED]
    return all(now < at or now > at + DOUBT[1] + NOTICED for at in seen)


def clock_doubted(since: Instant | None) -> list[Symptom]:
    """The clock of the database has jumped by more than a minute, and this node keeps to the old time."""
    if since is None:
        return []
    text = f"The clock of the database jumped at about {shown(since)}; tenure keeps to the old time for a while."
    return [Symptom(AlertKind.CLOCK_DOUBTED, "", text, since)]
