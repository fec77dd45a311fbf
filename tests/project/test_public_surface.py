"""What users can see: exactly these names. Whatever else tenure's own modules need lies behind `service_of`, `control_of` and the like."""

import pytest

import tenure
from tenure import AsyncElection, AsyncScheduler, AsyncTerm, Election, Run, Scheduler, Term

OPERATIONS = {
    "add",
    "ask_planner_to_resign",
    "backfill",
    "cancel",
    "cancel_backfill",
    "close",
    "once",
    "pause",
    "pause_backfill",
    "remove",
    "reset",
    "restore",
    "resume_backfill",
    "retry",
    "retry_failed",
}
OPERATIONS |= {"resume", "add_many", "pool", "run_at", "run_now", "run_now_many", "update"}
QUERIES = {
    "actions",
    "alerts",
    "application",
    "attention",
    "audit",
    "backfills",
    "explain",
    "find_backfill",
    "find_job",
    "find_run",
    "health",
    "jobs",
    "label",
    "log",
    "log_lines",
    "next",
    "nodes",
    "runs",
    "started",
}
QUERIES |= {"history", "pools", "stats", "why"}
DEFINING = {"after", "around", "at", "calendar", "cron", "every", "job", "scheduled"}
TAKING_PART = {"alert_to", "lifespan", "on", "run", "start", "stop"}

SCHEDULER = OPERATIONS | QUERIES | DEFINING | TAKING_PART
RUN = {"attempt", "cancelled", "check", "complete", "id", "job", "key", "kind", "log", "lost", "once", "reason"}
RUN |= {"parent", "progress", "scheduled_for", "wait"}
TERM = {"check", "election", "fence", "fenced", "number", "reason", "remaining", "trusted", "wait"}

ELECTION = {
    "ask_to_resign",
    "history",
    "is_leader",
    "label",
    "leader",
    "name",
    "on",
    "resign",
    "stand",
    "start",
    "stop",
}
ELECTION |= {"term", "terms", "wait_until_leading", "withdraw"}
INSIDE = {"candidacy", "lock_fileno", "node"}
"""Of an election, for tenure's own modules: what its node calls, and the node itself."""


@pytest.mark.parametrize(
    ("seen", "names"),
    [
        pytest.param(Scheduler("memory://surface"), SCHEDULER | {"store"}, id="Scheduler"),
        pytest.param(AsyncScheduler("memory://surface"), SCHEDULER, id="AsyncScheduler"),
        pytest.param(Election("memory://surface", "x"), ELECTION | {"fenced"} | INSIDE, id="Election"),
        pytest.param(AsyncElection("memory://surface", "x"), ELECTION | {"lead"}, id="AsyncElection"),
        pytest.param(Run, RUN, id="Run"),
        pytest.param(AsyncTerm, TERM, id="AsyncTerm"),
        pytest.param(Term, TERM - {"election", "number"}, id="Term"),
    ],
)
def test_a_public_object_shows_these_names_alone(seen, names):
    assert {name for name in dir(seen) if not name.startswith("_")} == names


def test_the_package_exports_these_names():
    assert set(tenure.__all__) == {
        "NotYet",
        *("AsyncElection", "AsyncScheduler", "AsyncTerm", "Election", "Run", "Scheduler", "Term"),
        *("Call", "call", "TenureError", "Trigger", "at", "calendar", "closed", "cron", "current_run", "every"),
    }
