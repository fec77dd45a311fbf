"""`tenure status`: what needs attention first, what to type next, then the rest. Short when all is well."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tenure.cli.jobs import FEW, NOW, application, shown_time, took
from tenure.cli.output import RED, YELLOW, as_json, paint, show, show_text, wrapped
from tenure.cli.times import about, ago
from tenure.core.alerts import EVERYTHING, OF_JOBS
from tenure.core.causes import Cause
from tenure.core.cluster import Leader
from tenure.core.keys import planner_of
from tenure.core.messages import JobOutcome, Tally
from tenure.core.records import JobState, RunState
from tenure.core.verdict import ORPHANS, OverallState, unsaid, verdict
from tenure.jobs.queries import RECENT
from tenure.scheduler import service_of
from tenure.util.clock import walltime
from tenure.util.instants import moment
from tenure.util.last_line import last_line
from tenure.util.plurals import counted, several
from tenure.views import AlertView, AttentionView, RunView

NEXT = 5
CONCERNS, GROUPS, NAMES = 10, 5, 3
"""How many concerns and groups of failing jobs are shown, and how many names of each group."""
COUNTED = 10_000
"""Failed runs are counted up to this number."""
OPEN_READ = 10_000
"""At most this many running and pending runs are read for what they wait for."""
LABEL = 9


@dataclass(frozen=True, slots=True)
class FailingGroup:
    """Jobs that fail with the same error, apart from its numbers."""

    outcomes: list[JobOutcome]
    """The job with the most failures in a row first."""

    def lines(self, now: datetime) -> list[str]:
        worst, *others = self.outcomes
        names = several([one.name for one in self.outcomes], NAMES)
        row = f"{worst.failures:,} runs in a row" if worst.failures > 1 else "the last run"
        if others:
            row = f"up to {row}" if worst.failures > 1 else f"{row} of each"
        least = min(one.since for one in self.outcomes if one.since is not None)
        since = f", since {ago(moment(least), now)}" if worst.failures > 1 or others else f", {ago(moment(least), now)}"
        error = last_line(worst.reason) or worst.state.value
        return [f"{names}: {row}{since}", error, f"tenure log {worst.run}"]


@dataclass(frozen=True, slots=True)
class StatusReport:
    """All that `status` has read."""

    application: str
    store: str
    planner: Leader | None
    jobs: int
    paused: list[str]
    attention: list[AttentionView]
    failing: list[JobOutcome]
    recovered: list[JobOutcome]
    tally: list[Tally]
    held: list[RunView]
    awaited: list[str]
    waiting: list[str]
    """Runs that wait, and for what."""
    due: list[tuple[datetime, str]]
    alerts: list[AlertView]
    """The alerts that are open, the newest first."""
    now: datetime

    @property
    def code(self) -> int:
        """1 if no live node plans, or if something should have run and did not."""
        return 0 if self.judged.ok else 1

    @property
    def open(self) -> dict[str, int]:
        return {
            state: sum(part.runs for part in self.tally if part.state == state)
            for state in ("running", "waiting", "pending")
        }

    @property
    def bad(self) -> int:
        return sum(part.runs for part in self.tally if part.state.final)

    @property
    def running(self) -> dict[str, int]:
        return {part.label: part.runs for part in self.tally if part.state is RunState.RUNNING}

    @property
    def longest(self) -> list[RunView]:
        """The runs that should have ended, then those that have been running for longest."""
        held = sorted(self.held, key=lambda run: (bool(run.should_have_ended), run.running_for or 0.0), reverse=True)
        return held[:NEXT]

    @property
    def judged(self) -> OverallState:
        """How the application does, in one sentence."""
        bad = {"failing": len(self.failing), "alerts": len(self.unsaid)}
        return verdict(self.application, self.planner, self.jobs, self.attention, **bad)

    @property
    def unsaid(self) -> list[AlertView]:
        """The alerts that say what nothing else says."""
        return unsaid(self.alerts, self.planner, self.attention, {one.name for one in self.failing})

    def as_dict(self) -> dict[str, Any]:
        return {
            "application": self.application,
            "store": self.store,
            "verdict": self.judged.text,
            "planner": self.planner,
            "jobs": self.jobs,
            "paused": self.paused,
            "attention": [concern.as_dict() for concern in self.attention],
            "failing": [_outcome(one) for one in self.failing],
            "recovered": [one.name for one in self.recovered],
            "alerts": [alert.as_dict() for alert in self.alerts],
            "open": self.open,
            "running_by_node": self.running,
            "running": [run.as_dict() for run in self.longest],
            "stops_wait_for": self.awaited,
            "waiting": self.waiting,
            "failed_last_day": self.bad,
            "next": [{"at": at, "job": name} for at, name in self.due],
        }


def status(arguments: argparse.Namespace) -> int:
    """Show the state of an application. 1 if no live node plans for it, or if something should have run and did not."""
    seen = _look(arguments)
    if arguments.json:
        as_json(seen.as_dict())
        return seen.code
    troubled = seen.attention or seen.failing or seen.unsaid or seen.code
    _say(seen.judged.text, colour=RED if troubled else "")
    _concerns(seen.attention)
    _failing(seen)
    _alerts(seen.unsaid)
    _rest(seen)
    return seen.code


def _look(arguments: argparse.Namespace) -> StatusReport:
    with application(arguments) as scheduler:
        lookup, service = service_of(scheduler).lookup, service_of(scheduler)
        with service.session() as session:
            ledger = session.ledger
            rows, now = lookup.rows(ledger), ledger.now()
            tally = ledger.tally(scheduler.application, now - RECENT, COUNTED)
            attention, outcomes = lookup.attention(ledger), lookup.failing(ledger)
            planner = session.leader(planner_of(scheduler.application))
            due = lookup.next_of(ledger, rows, now, NEXT)
            alerts = lookup.open_alerts(ledger)
        held = scheduler.runs(state="running", until=NOW, limit=OPEN_READ)
        unbegun = scheduler.runs(state=["pending", "waiting"], until=NOW, limit=OPEN_READ)
        return StatusReport(
            application=scheduler.application,
            store=scheduler.store.shown,
            planner=planner,
            jobs=len(rows),
            paused=[row.spec.name for row in rows if row.state is JobState.PAUSED],
            attention=attention,
            failing=[one for one in outcomes if one.failures],
            recovered=[one for one in outcomes if not one.failures],
            tally=tally,
            held=held,
            awaited=[f"{run.job} {run.key} on {run.node}" for run in held if run.stopping],
            waiting=[f"{run.job} {run.key}: {run.waiting}" for run in unbegun if run.waiting],
            due=due,
            alerts=alerts,
            now=moment(now),
        )


def _concerns(attention: Sequence[AttentionView]) -> None:
    for concern in attention[:CONCERNS]:
        show("")
        _say(concern.text, colour=RED if concern.fails else YELLOW)
        if hint := _hint(concern):
            show(f"  {hint}")
    if len(attention) > CONCERNS:
        show(f"… and {len(attention) - CONCERNS} more that need attention: tenure status --json")


def _hint(concern: AttentionView) -> str:
    """What to type next."""
    if concern.cause in ORPHANS:
        return "tenure jobs --orphaned; tenure nodes"
    if concern.cause == Cause.ARGUMENTS.value and concern.jobs:
        return f"tenure show {concern.jobs[0]}"
    if concern.overdue and concern.jobs:
        return f"tenure why {concern.jobs[0]}" + ("; tenure jobs --late" if len(concern.jobs) > 1 else "")
    return ""


def _alerts(alerts: Sequence[AlertView]) -> None:
    for alert in alerts[:CONCERNS]:
        show("")
        _say(f"{alert.kind.replace('_', ' ')}: {alert.text}", colour=YELLOW)
        if alert.kind in OF_JOBS and alert.target != EVERYTHING:
            show(f"  tenure show {alert.target}")
    if len(alerts) > CONCERNS:
        show(f"… and {len(alerts) - CONCERNS} more open alerts: tenure alerts")


def _failing(seen: StatusReport) -> None:
    groups = grouped(seen.failing)
    if groups:
        show("")
        many = counted(len(seen.failing), "job")
        show(paint(f"{many} {'fails' if len(seen.failing) == 1 else 'fail'}:", RED))
        for group in groups[:GROUPS]:
            first, error, hint = group.lines(seen.now)
            _say(first, indent=2, colour=RED)
            _say(error, indent=4)
            show(f"    {hint}")
        if len(groups) > GROUPS:
            left = sum(len(group.outcomes) for group in groups[GROUPS:])
            show(f"  … and {counted(left, 'job')} more: tenure jobs --failing --sort failures")
    if seen.recovered:
        names = several([one.name for one in seen.recovered], FEW)
        show("")
        _say(f"failed in the last 24 h, and has succeeded since: {names}")


def grouped(failing: Iterable[JobOutcome]) -> list[FailingGroup]:
    """The jobs that fail, by the last line of their errors without its numbers; the largest group first."""
    groups: dict[str, list[JobOutcome]] = {}
    for one in failing:
        groups.setdefault(re.sub(r"\d+", "0", last_line(one.reason)), []).append(one)
    found = [FailingGroup(sorted(group, key=lambda one: (-one.failures, one.name))) for group in groups.values()]
    return sorted(found, key=lambda group: (-len(group.outcomes), -group.outcomes[0].failures, group.outcomes[0].name))


def _rest(seen: StatusReport) -> None:
    show("")
    _fact("store", seen.store)
    if seen.planner is None:
        show(f"{'planner':{LABEL}}", paint("none: no node of this application is running", RED))
    else:
        silent = "" if seen.planner.healthy else paint(", but it is silent", YELLOW)
        since = about(max((walltime() - seen.planner.since).total_seconds(), 0.0))
        show(f"{'planner':{LABEL}}{seen.planner.label}, for {since}", silent)
    _fact("jobs", f"{seen.jobs}{f', paused: {several(seen.paused, FEW)}' if seen.paused else ''}")
    if seen.alerts:
        names = several([f"{alert.kind} {alert.target}".rstrip() for alert in seen.alerts], FEW)
        _fact("alerts", f"{len(seen.alerts)} open: {names} (tenure alerts)")
    by_node = several([f"{label}: {count}" for label, count in sorted(seen.running.items())], FEW)
    counts = ", ".join(f"{n} {state}" for state, n in seen.open.items())
    _fact("runs", f"{counts}{f' ({by_node})' if seen.running else ''}; {seen.bad:,} failed or lost in the last 24 h")
    for number, run in enumerate(seen.longest):
        how_far = "" if run.progress is None else f": {run.progress}"
        over = f"; {run.should_have_ended}" if run.should_have_ended else ""
        _fact("" if number else "running", f"{run.job} {run.key}, {took(run)} on {run.node}{how_far}{over}")
    if seen.awaited:
        waits = several(seen.awaited, FEW)
        _fact("stops", f"waiting for {waits} (if that process is gone, the next node to notice takes over)")
    for number, one in enumerate(seen.waiting[:NEXT]):
        _fact("" if number else "waiting", one)
    if len(seen.waiting) > NEXT:
        _fact("", f"… and {len(seen.waiting) - NEXT} more: tenure runs --state waiting --state pending")
    for number, (at, name) in enumerate(seen.due):
        show(f"{'next' if number == 0 else '':{LABEL}}{shown_time(at)}  {name}")


def _fact(label: str, text: str) -> None:
    _say(f"{label:{LABEL}}{text}", hang=LABEL)


def _say(text: str, *, indent: int = 0, hang: int | None = None, colour: str = "") -> None:
    """Print a sentence, wrapped to the terminal."""
    for line in wrapped(text, first=" " * indent, hang=indent if hang is None else hang):
        show_text(line, colour)


def _outcome(one: JobOutcome) -> dict[str, Any]:
    return {
        "job": one.name,
        "run": one.run,
        "state": one.state.value,
        "at": moment(one.at),
        "failures": one.failures,
        "since": None if one.since is None else moment(one.since),
        "failed_last_day": one.recent,
        "error": last_line(one.reason),
    }
