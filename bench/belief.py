"""What it costs to ask whether this node leads."""

from __future__ import annotations

import timeit

from bench import Bench
from report import Figure, Series

from tenure import Election


def measure(bench: Bench) -> None:
    bench.report.topic("Asking is_leader")
    calls = bench.count(200_000, 1000)
    with Election(bench.file(), "asked") as election, Election(bench.file(), "other", candidate=False) as standby:
        assert election.wait_until_leading(10)
        values = {
            name: [
                seconds / calls
                for seconds in timeit.repeat(lambda one=one: one.is_leader, number=calls, repeat=bench.count(9, 2))
            ]  # type: ignore[misc]
            for name, one in {"a leader": election, "a standby": standby}.items()
        }
        call = [seconds / calls for seconds in timeit.repeat(lambda: None, number=calls, repeat=bench.count(9, 2))]
    beside = [Series("an empty function, included in the figures", call, "ns")]
    for name, measured in values.items():
        bench.report.add(Figure("is_leader, per call", Series(name, measured, "ns"), [], beside))
