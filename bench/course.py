"""Goes through the topics of one benchmark, on a server of its own, and writes the report."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from bench import Bench
from report import Report

from harness.postgres import Postgres

ROOT = Path(__file__).resolve().parents[1]
AT_ONCE = 2
"""Topics of a quick run that are measured at the same time."""


def go(
    what: str,
    command: str,
    topics: Mapping[str, Callable[[Bench], object]],
    report_of: Callable[[str], Report],
    *,
    long: str = "",
) -> int:
    """Measure what the command line asks for. `long` says what `--long` adds, where there is such a thing."""
    parser = argparse.ArgumentParser(description=f"Measure {what}.")
    parser.add_argument("--quick", action="store_true", help="tiny counts, to see that everything works")
    parser.add_argument("--only", default=",".join(topics), help=f"some of {', '.join(topics)}")
    parser.add_argument("--out", type=Path, help="where to write the report (a whole run: docs/proof)")
    parser.set_defaults(long=False)
    if long:
        parser.add_argument("--long", action="store_true", help=long)
    options = parser.parse_args()
    chosen = options.only.split(",")
    if unknown := set(chosen) - topics.keys():
        parser.error(f"no such topic: {', '.join(sorted(unknown))}")
    said = [word for word in ("quick", "long") if getattr(options, word)]
    report = report_of(" ".join([f"python3 dev.py {command}", *(f"--{word}" for word in said)]))
    with Postgres(fsync=True, settings={"log_line_prefix": "%m [%d] "}) as server, ExitStack() as stack:
        report.facts["server"] = server.execute("SELECT split_part(version(), ' on ', 1)")[0][0] + ", fsync on"
        bench = Bench(report, server, options.quick, options.long, stack)
        if options.quick:  # most of it is waiting, and its times mean nothing
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(lambda topic: topics[topic](bench), chosen))
        else:
            for topic in chosen:
                topics[topic](bench)
    report.finish()
    whole = not options.quick and chosen == list(topics)
    if folder := options.out or (ROOT / "docs" / "proof" if whole else None):
        report.write(folder)
    return 0
