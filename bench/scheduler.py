"""Measures the scheduler: `python3 dev.py bench [--quick] [--only TOPIC,…] [--out FOLDER]`.

Goals stand beside the figures; a miss does not fail the run. A whole run takes about eight minutes and writes
docs/proof/scheduler-benchmark.md and .json; `--quick` takes a minute, and its times mean nothing.
"""

import sys
from pathlib import Path

# The servers of the tests: real ones, ended with the run.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))

import course
import scheduler_operations
import scheduler_planning
import scheduler_running
import scheduler_small
from scheduler_report import SchedulerReport

TOPICS = {
    "planning": scheduler_planning.planning,
    "backlog": scheduler_running.many,
    "at-1hz": scheduler_running.at_1hz,
    "instant": scheduler_running.instant,
    "four-nodes": scheduler_running.four_nodes,
    "sqlite": scheduler_running.sqlite,
    "tick": scheduler_planning.tick,
    "start": scheduler_planning.start,
    "operations": scheduler_operations.operations,
    "idle": scheduler_small.idle,
    "triggers": scheduler_small.triggers,
    "is-leader": scheduler_small.is_leader,
}


if __name__ == "__main__":
    sys.exit(course.go("the scheduler", "bench", TOPICS, SchedulerReport))
