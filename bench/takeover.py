"""The leader is killed, frozen, or resigns: how long until another leads?

Other ways to elect are struck in the same rounds.
"""

from __future__ import annotations

import random
import signal
import time

import others
from bench import Bench
from report import Figure, Goal, Series

from cluster import Cluster, resignation

SMALL_TTL = 1.0


def killed(bench: Bench) -> None:
    """kill -9 on the same host, four standbys: the kernel's word is enough, on both stores."""
    bench.report.topic(f"Leader killed (kill -9), {bench.standbys} standbys on the same host")
    ours = {store: bench.candidates(store, url) for store, url in bench.urls().items()}
    instant = others.advisory(bench)
    series = {name: Series(name) for name in [*ours, *instant.clusters]}
    pause = 0.2 if bench.quick else 2.5 / len(series)  # so that everybody has seen everybody in a beat since the last
    for _ in range(bench.count(50, 1)):
        for name, cluster in {**ours, **instant.clusters}.items():
            time.sleep(pause * random.uniform(0.8, 1.2))
            record(series[name], cluster.strike(signal.SIGKILL).result(within=20.0))
    peers = [series[name] for name in instant.clusters] + instant.absent
    goals = [Goal("p50", 0.010), Goal("p99", 0.050)]
    for store, cluster in ours.items():
        ended = Series("of which until the kernel has ended such a process", cluster.deaths(pause=pause))
        bench.report.add(
            Figure(
                "killed leader → successor", series[store], goals, [ended, *(peers if store == "PostgreSQL" else [])]
            )
        )
    close(*ours.values(), *instant.clusters.values())


def resigned(bench: Bench) -> None:
    """From the call of resign() to the successor's first true is_leader; the body of the term stops in between."""
    bench.report.topic(f"Leader resigns, {bench.standbys} standbys")
    ours = {store: bench.candidates(store, url) for store, url in bench.urls().items()}
    series = {store: Series(store) for store in ours}
    for _ in range(bench.count(120, 1)):
        for store, cluster in ours.items():
            time.sleep(random.uniform(0.2, 0.4) if bench.quick else random.uniform(0.5, 0.7))
            record(series[store], resignation(cluster))
    for store in ours:
        bench.report.add(Figure("resign() → successor", series[store], [Goal("p50", 0.030), Goal("p99", 0.080)]))
    close(*ours.values())


def slow(bench: Bench) -> None:
    """Everything that waits for a time to pass, struck in the same rounds: no host evidence, frozen leaders, leases of
    others."""
    bench.report.topic(f"Takeovers that wait for a time to pass, {bench.standbys} standbys")
    rounds: dict[str, tuple[Cluster, signal.Signals, float, int]] = {}

    def enter(name: str, cluster: Cluster, number: signal.Signals, within: float, times: int) -> None:
        rounds[name] = (cluster, number, within, times)

    few, kill, stop = bench.count(12, 1), signal.SIGKILL, signal.SIGSTOP
    url = bench.database()
    enter("session", bench.candidates("session evidence", url, host_evidence=False), kill, 15, few)
    enter("fenced", bench.candidates("fenced", url, host_evidence=False, fenced=True), kill, 15, few)
    for store, at in bench.urls().items():
        small = bench.candidates(store, at, ttl=SMALL_TTL)
        enter(f"frozen {store} small", small, stop, 15, few)
        if not bench.quick:
            enter(f"frozen {store}", bench.candidates(store, at), stop, 30, few)
    if not bench.quick:
        sqlite = bench.candidates("SQLite, no host evidence", bench.file(), host_evidence=False)
        enter("ttl", sqlite, kill, 30, 4)
    frozen = others.advisory(bench) if not bench.quick else others.Others()
    for name, cluster in frozen.clusters.items():
        enter(f"frozen {name}", cluster, stop, 30, 1)
    leases = others.leases(bench)
    for name, cluster in leases.clusters.items():
        enter(name, cluster, kill, 120, 1 if "unscaled" in name else bench.count(4, 1))

    series = {name: Series(name, unit="s") for name in rounds}
    for turn in range(max(times for *_, times in rounds.values())):
        time.sleep(random.uniform(0.2, 0.4) if bench.quick else random.uniform(2.5, 4.5))
        struck = {
            name: (cluster.strike(number), within)
            for name, (cluster, number, within, times) in rounds.items()
            if turn < times
        }
        for name, (strike, within) in struck.items():
            record(series[name], strike.result(within))
    _tell_slow(bench, series, frozen, leases)
    close(*(cluster for cluster, *_ in rounds.values()))


def _tell_slow(bench: Bench, series: dict[str, Series], frozen: others.Others, leases: others.Others) -> None:
    def named(name: str, what: str, note: str = "") -> Series:
        series[name].what, series[name].note = what, note
        return series[name]

    add = bench.report.add
    beside = [named(name, name, leases.notes.get(name, "")) for name in leases.clusters] + leases.absent
    killed_by_session = named("session", "PostgreSQL, session evidence")
    add(Figure("killed leader, host evidence off", killed_by_session, [Goal("max", 3.5)], beside))
    fenced = named("fenced", "PostgreSQL, fenced=True")
    fenced.unit = "ms"
    add(Figure("killed leader, host evidence off", fenced, [Goal("max", 0.7)]))
    if "ttl" in series:
        add(
            Figure(
                "killed leader, host evidence off",
                named("ttl", "SQLite, ttl 10 s"),
                [Goal("max", 12.0, "ttl + a beat")],
            )
        )
    never = [named(f"frozen {name}", name, "30 s watched") for name in frozen.clusters] + frozen.absent
    for store in ("PostgreSQL", "SQLite"):
        if f"frozen {store}" in series:
            at_default = named(f"frozen {store}", f"{store}, ttl 10 s, a beat every 2 s")
            goal = Goal("max", 12.0, "ttl + a beat")
            add(Figure("frozen leader (SIGSTOP)", at_default, [goal], never if store == "PostgreSQL" else []))
        small = named(f"frozen {store} small", f"{store}, ttl {SMALL_TTL:g} s, a beat every {SMALL_TTL / 5:g} s")
        add(Figure("frozen leader (SIGSTOP)", small, [Goal("max", 1.2 * SMALL_TTL, "ttl + a beat")]))


def record(series: Series, seconds: float | None) -> None:
    if seconds is None:
        series.missing += 1
    else:
        series.values.append(seconds)


def close(*clusters: Cluster) -> None:
    for cluster in clusters:
        cluster.close()
