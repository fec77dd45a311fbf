"""The other ways to elect a leader that stand beside ours, each in a file of its own under peers/. What is absent says
why."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field

from bench import Bench
from report import Series
from servers import Etcd, Missing, zookeeper

from cluster import Cluster

ETCD_LEASE = 10
ZOOKEEPER_SESSION = 10
BEAT, EXPIRY = 25.0, 75.0
"""The row lease of the article."""
SCALE = 25.0
"""It is run this many times faster, so that a trial takes seconds."""


@dataclass
class Others:
    """Those that could be started, and those that could not."""

    clusters: dict[str, Cluster] = field(default_factory=dict)
    absent: list[Series] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)

    def add(self, bench: Bench, name: str, start: Callable[[], Cluster], *needed: str, note: str = "") -> None:
        try:
            for module in needed:
                if importlib.util.find_spec(module) is None:
                    raise Missing(f"not installed here ({module})")  # noqa: TRY301 - told like a failed start
            self.clusters[name], self.notes[name] = start().settle(), note
        except (Missing, OSError, TimeoutError, RuntimeError) as why:
            reason = str(why).partition("\n")[0]
            bench.report.say(f"  {name}: {reason}")
            self.absent.append(Series(name, note=reason))


def advisory(bench: Bench) -> Others:
    """Locks that PostgreSQL itself holds: as fast as it gets for a dead process, and for ever for a frozen one."""
    found, url = Others(), bench.database()
    found.add(bench, "raw pg_advisory_lock", lambda: bench.peers("advisory", "advisory.py", url))
    if not bench.quick:
        name = "tooz, PostgreSQL driver"
        found.add(bench, name, lambda: bench.peers(name, "tooz_lock.py", url, "bench"), "tooz", "psycopg2")
    return found


def leases(bench: Bench) -> Others:
    """Whoever waits for a time to pass."""
    found = Others()
    _article(bench, found)
    if bench.quick:
        return found
    etcd = Etcd(bench)
    lease = f"etcd's own election, lease {ETCD_LEASE} s"
    found.add(bench, lease, lambda: bench.peers(lease, "etcd_election.py", etcd.port, ETCD_LEASE))
    tooz = "tooz, etcd driver, its default lock_timeout of 30 s"
    url = "etcd3+http://127.0.0.1:{}"
    start = lambda: bench.peers(tooz, "tooz_lock.py", url.format(etcd.port), "bench")  # noqa: E731 - as its neighbours
    found.add(bench, tooz, start, "tooz", "etcd3gw")
    kazoo = f"kazoo on ZooKeeper, session {ZOOKEEPER_SESSION} s"
    start = lambda: bench.peers(kazoo, "kazoo_election.py", zookeeper(bench), ZOOKEEPER_SESSION)  # noqa: E731
    found.add(bench, kazoo, start, "kazoo")
    return found


def _article(bench: Bench, found: Others) -> None:
    """A beat every 25 s and an expiry of 75 s: run at another scale, where it is the same arithmetic."""
    url, real = bench.database(), bench.database()
    arithmetic = (
        f"unscaled {SCALE:g} times as long: {EXPIRY:g} s less the age of the last beat, plus the wait for a standby's next try, "
        f"so {EXPIRY - BEAT:g}..{EXPIRY + BEAT:g} s for one standby"
    )
    scaled = f"row lease, beat {BEAT:g} s and expiry {EXPIRY:g} s, run {SCALE:g} times faster"
    start = lambda: bench.peers(scaled, "lease.py", url, BEAT / SCALE, EXPIRY / SCALE)  # noqa: E731
    found.add(bench, scaled, start, note=arithmetic)
    if bench.long:
        unscaled = f"row lease, beat {BEAT:g} s and expiry {EXPIRY:g} s, unscaled"
        found.add(bench, unscaled, lambda: bench.peers(unscaled, "lease.py", real, BEAT, EXPIRY))
