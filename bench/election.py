"""Measures elections: `python3 dev.py bench-election [--quick | --long] [--only TOPIC,…] [--out FOLDER]`.

Goals stand beside the figures; a miss does not fail the run. A whole run takes about ten minutes and writes
docs/proof/election-benchmark.md and .json; `--quick` takes seconds, and its times mean nothing.
"""

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # the servers of the tests: real ones, ended with the run

import belief  # noqa: E402 - after the path
import heartbeat  # noqa: E402
import idle  # noqa: E402
import many  # noqa: E402
import takeover  # noqa: E402
from bench import Bench  # noqa: E402
from report import Report  # noqa: E402

from harness.postgres import Postgres  # noqa: E402

TOPICS = {
    "heartbeat": heartbeat.measure,
    "is_leader": belief.measure,
    "killed": takeover.killed,
    "resigned": takeover.resigned,
    "many": many.measure,
    "idle": idle.measure,
    "slow": takeover.slow,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure elections.")
    parser.add_argument("--quick", action="store_true", help="tiny counts, to see that everything works")
    parser.add_argument("--long", action="store_true", help="also the article's lease unscaled: two minutes more")
    parser.add_argument("--only", default=",".join(TOPICS), help=f"some of {', '.join(TOPICS)}")
    parser.add_argument("--out", type=Path, help="where to write the report (a whole run: docs/proof)")
    options = parser.parse_args()
    topics = options.only.split(",")
    if unknown := set(topics) - TOPICS.keys():
        parser.error(f"no such topic: {', '.join(sorted(unknown))}")
    command = " ".join(
        [
            "python3 dev.py bench-election",
            *(["--quick"] if options.quick else []),
            *(["--long"] if options.long else []),
        ]
    )
    report = Report(command)
    settings = {"log_line_prefix": "%m [%d] "}
    with Postgres(fsync=True, settings=settings) as server, ExitStack() as stack:
        report.facts["server"] = server.execute("SELECT split_part(version(), ' on ', 1)")[0][0] + ", fsync on"
        bench = Bench(report, server, options.quick, options.long, stack)
        for topic in topics:
            TOPICS[topic](bench)
    report.finish()
    whole = not options.quick and topics == list(TOPICS)
    if folder := options.out or (ROOT / "docs" / "proof" if whole else None):
        report.write(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
