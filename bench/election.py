"""Measures elections: `python3 dev.py bench-election [--quick | --long] [--only TOPIC,…] [--out FOLDER]`.

Goals stand beside the figures; a miss does not fail the run. A whole run takes about ten minutes and writes
docs/proof/election-benchmark.md and .json; `--quick` takes seconds, and its times mean nothing.
"""

import sys
from pathlib import Path

# The servers of the tests: real ones, ended with the run.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))

import belief
import course
import heartbeat
import idle
import many
import takeover
from report import Report

TOPICS = {
    "heartbeat": heartbeat.measure,
    "is_leader": belief.measure,
    "killed": takeover.killed,
    "resigned": takeover.resigned,
    "many": many.measure,
    "idle": idle.measure,
    "slow": takeover.slow,
}


if __name__ == "__main__":
    sys.exit(
        course.go(
            "elections", "bench-election", TOPICS, Report, long="also the article's lease unscaled: two minutes more"
        )
    )
