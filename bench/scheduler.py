"""Measures the scheduler: `python3 dev.py bench [--quick] [--only TOPIC,…] [--out FOLDER]`.

Goals stand beside the figures; a miss does not fail the run. A whole run takes about eight minutes and writes
docs/proof/scheduler-benchmark.md and .json; `--quick` takes a minute, and its times mean nothing.
"""

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # the servers of the tests: real ones, ended with the run

import scheduler_planning  # noqa: E402 - after the path
import scheduler_running  # noqa: E402
import scheduler_small  # noqa: E402
from bench import Bench  # noqa: E402
from scheduler_report import SchedulerReport  # noqa: E402

from harness.postgres import Postgres  # noqa: E402

TOPICS = {
    "planning": scheduler_planning.planning,
    "backlog": scheduler_running.many,
    "at-1hz": scheduler_running.at_1hz,
    "instant": scheduler_running.instant,
    "four-nodes": scheduler_running.four_nodes,
    "sqlite": scheduler_running.sqlite,
    "tick": scheduler_planning.tick,
    "idle": scheduler_small.idle,
    "triggers": scheduler_small.triggers,
    "is-leader": scheduler_small.is_leader,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the scheduler.")
    parser.add_argument("--quick", action="store_true", help="tiny counts, to see that everything works")
    parser.add_argument("--only", default=",".join(TOPICS), help=f"some of {', '.join(TOPICS)}")
    parser.add_argument("--out", type=Path, help="where to write the report (a whole run: docs/proof)")
    options = parser.parse_args()
    topics = options.only.split(",")
    if unknown := set(topics) - TOPICS.keys():
        parser.error(f"no such topic: {', '.join(sorted(unknown))}")
    report = SchedulerReport(" ".join(["python3 dev.py bench", *(["--quick"] if options.quick else [])]))
    settings = {"log_line_prefix": "%m [%d] "}
    with Postgres(fsync=True, settings=settings) as server, ExitStack() as stack:
        report.facts["server"] = server.execute("SELECT split_part(version(), ' on ', 1)")[0][0] + ", fsync on"
        bench = Bench(report, server, options.quick, False, stack)
        for topic in topics:
            TOPICS[topic](bench)
    report.finish()
    whole = not options.quick and topics == list(TOPICS)
    if folder := options.out or (ROOT / "docs" / "proof" if whole else None):
        report.write(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
