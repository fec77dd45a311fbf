"""What it costs to ask whether this node leads."""

from __future__ import annotations

import timeit
from collections.abc import Callable

from bench import Bench
from report import Figure, Series

from tenure import Election


def measure(bench: Bench) -> None:
    bench.report.topic("Asking is_leader")
    calls, rounds = bench.count(200_000, 1000), bench.count(9, 2)

    def timed(call: Callable[[], object]) -> list[float]:
        return [seconds / calls for seconds in timeit.repeat(call, number=calls, repeat=rounds)]

    with Election(bench.file(), "asked") as election, Election(bench.file(), "other", candidate=False) as standby:
        assert election.wait_until_leading(10)
        values = {"a leader": timed(lambda: election.is_leader), "a standby": timed(lambda: standby.is_leader)}
        call = timed(lambda: None)
    beside = [Series("an empty function, included in the figures", call, "ns")]
    for name, measured in values.items():
        bench.report.add(Figure("is_leader, per call", Series(name, measured, "ns"), [], beside))
