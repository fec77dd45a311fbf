"""Every metric of tenure: its name, its kind, its labels, and what it says.

The exporter, the alert rules, the dashboard and docs/reference/metrics.md go by this list.

Only processes have counters, which never fall but when their process begins anew. What the ledger says may fall: a run
that is retried leaves its outcome, and hours are forgotten. So all of it is gauges.

No label is called `job` or `instance`: Prometheus adds labels of these names itself, and would rename ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    name: str
    text: str
    labels: tuple[str, ...] = ()
    kind: Kind = "gauge"


_JOB = ("job_name",)

OF_STORE = (
    Metric("tenure_up", "1 if the store answered in time, else 0. With 0 there is no other metric of the store."),
    Metric("tenure_planner_info", "1 if this node plans and gave a sign of life within its ttl, else 0.", ("label",)),
    Metric("tenure_planner_term", "The number of the planner's term."),
    Metric("tenure_planner_since_timestamp_seconds", "When the planner's term began."),
    Metric("tenure_planned_until_timestamp_seconds", "Every due time before this one is written in the ledger."),
    Metric(
        "tenure_nodes",
        "Nodes of the application: alive, or silent (for longer than their ttl, and not declared dead).",
        ("state",),
    ),
    Metric("tenure_node_capacity", "How many runs the node may run at once.", ("label",)),
    Metric("tenure_node_running", "How many runs the node runs.", ("label",)),
    Metric(
        "tenure_node_clock_offset_seconds",
        "By how much the node's clock was ahead of the database's when it last looked.",
        ("label",),
    ),
    Metric(
        "tenure_runs_open",
        "Runs that are due and have not ended: pending, waiting (overlap, pool) or running; counted up to 10,000. "
        "Pending runs of paused jobs do not count.",
        ("state", "queue"),
    ),
    Metric(
        "tenure_overdue_runs",
        "Due times past their grace that live nodes could have begun and have not; counted up to 2,000.",
    ),
    Metric("tenure_oldest_overdue_seconds", "For how long the oldest of them has been due; 0 if there is none."),
    Metric(
        "tenure_runs_ended",
        "How the due times and requests of this hour and the 24 before it ended: succeeded, failed, lost, cancelled, "
        "skipped or missed. Falls when an hour leaves it, and when a run is retried. Counted about every 30 s, and "
        "only with up to 2,000 jobs.",
        ("outcome", "queue"),
    ),
    Metric("tenure_jobs", "Jobs of the application.", ("state",)),
    Metric("tenure_orphaned_jobs", "Active jobs that no live node can run; counted up to 1,000."),
    Metric("tenure_alerts_open", "Alerts that are open. 0 if no worker has sinks for alerts.", ("kind",)),
    Metric("tenure_jobs_not_exported", "Jobs without series of their own: left out by `jobs`, or more than 2,000."),
    Metric("tenure_job_info", "Always 1; what the job is.", (*_JOB, "queue", "trigger", "tz")),
    Metric("tenure_job_next_due_timestamp_seconds", "When the job is due next.", _JOB),
    Metric(
        "tenure_job_since_timestamp_seconds",
        "When its trigger began to apply: when the job was added, changed or resumed.",
        _JOB,
    ),
    Metric("tenure_job_last_success_timestamp_seconds", "When the newest run that succeeded ended.", _JOB),
    Metric(
        "tenure_job_last_failure_timestamp_seconds",
        "When a run last failed for good or was lost, if it is among the newest 10,000 of the application.",
        _JOB,
    ),
    Metric("tenure_job_failures_in_a_row", "Runs that failed or were lost since the last one that succeeded.", _JOB),
    Metric("tenure_job_last_duration_seconds", "How long the last attempt of the newest run that ended took.", _JOB),
    Metric(
        "tenure_job_missed_timestamp_seconds",
        "The newest due time that was missed: no node began it within its grace. Only until a later run has ended.",
        _JOB,
    ),
    Metric("tenure_job_paused", "1 if the job is paused until it is resumed, else 0.", _JOB),
    Metric("tenure_job_orphaned", "1 if the job is active and no live node can run it, else 0.", _JOB),
    Metric(
        "tenure_job_expected_by_timestamp_seconds",
        "The dead man's switch: by when the job must have succeeded again, by `expect_within`. In the past: overdue.",
        _JOB,
    ),
    Metric("tenure_job_running_seconds", "For how long the oldest run of the job has been running.", _JOB),
    Metric(
        "tenure_job_unusual_after_seconds",
        "From when on a run of the job is unusually long: three times its 99th percentile, and at least 30 s. Only of "
        "jobs that run, and of which 20 runs are known.",
        _JOB,
    ),
)
"""What the ledger says. The answer is the same in every process."""

OF_PROCESS = (
    Metric(
        "tenure_runs_total",
        "Runs that ended for good, as this process noted: succeeded, failed, lost, cancelled or missed.",
        ("outcome",),
        "counter",
    ),
    Metric("tenure_run_duration_seconds", "How long attempts took in this process.", kind="histogram"),
    Metric("tenure_run_lateness_seconds", "How long after they were due attempts began here.", kind="histogram"),
    Metric("tenure_renewals_total", "Heartbeats of this process: renewed, late or failed.", ("result",), "counter"),
    Metric(
        "tenure_trust_seconds", "How long this process may still act without another answer; 0 or less: not at all."
    ),
    Metric("tenure_store_round_trip_seconds", "How long the last heartbeat that was answered took."),
    Metric("tenure_store_clock_offset_seconds", "By how much the clock of this machine is ahead of the store's."),
)
"""What each process counts by itself."""

ALL = (*OF_STORE, *OF_PROCESS)
