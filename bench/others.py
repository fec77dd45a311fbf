"""The other ways to elect a leader that stand beside ours, each in a file of its own under peers/. What is absent says why."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field

from bench import Bench
from cluster import Cluster
from report import Series
from servers import Etcd, Missing, zookeeper

ETCD_TTL = 10
ZOOKEEPER_SESSION = 10.0
ARTICLE = (25.0, 75.0)
SCALE = 25.0


@dataclass
class Others:
    clusters: dict[str, Cluster] = field(default_factory=dict)
    absent: list[Series] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)

    def add(self, bench: Bench, name: str, start: Callable[[], Cluster], note: str = "") -> None:
        try:
            self.clusters[name], self.notes[name] = start(), note
        except (Missing, OSError, TimeoutError, RuntimeError) as why:
            reason = str(why).partition("\n")[0]
            bench.report.say(f"  {name}: {reason}")
            self.absent.append(Series(name, note=reason))


def advisory(bench: Bench) -> Others:
    """Locks that PostgreSQL itself holds: as fast as it gets for a dead process, and for ever for a frozen one."""
    found = Others()
    url = bench.database()
    found.add(bench, "raw pg_advisory_lock", lambda: bench.peers("advisory", "advisory.py", url))
    if not bench.quick:
        found.add(
            bench, "tooz, PostgreSQL driver", lambda: need("tooz") and bench.peers("tooz", "tooz_lock.py", url, "bench")
        )
    return found


def leases(bench: Bench) -> Others:
    """Whoever waits for a time to pass."""
    found = Others()
    beat, expiry = ARTICLE
    url = bench.database()
    found.add(
        bench,
        f"row lease of the article, scaled 1 : {SCALE:g}",
        lambda: bench.peers("lease", "lease.py", url, beat / SCALE, expiry / SCALE),
        f"unscaled {SCALE:g} times as long: expiry {expiry:g} s less the age of the last beat plus the wait for a standby's next try: "
        f"{expiry - beat:g}..{expiry + beat:g} s",
    )
    if bench.long:
        real = bench.database()
        found.add(
            bench, "row lease of the article, unscaled", lambda: bench.peers("lease", "lease.py", real, beat, expiry)
        )
    if bench.quick:
        return found
    server = Etcd(bench)
    found.add(
        bench,
        f"etcd's own election, lease {ETCD_TTL} s",
        lambda: bench.peers("etcd", "etcd_election.py", server.port, ETCD_TTL),
    )
    found.add(
        bench,
        "tooz, etcd driver, lock_timeout 30 s",
        lambda: (
            need("tooz", "etcd3gw")
            and bench.peers("tooz", "tooz_lock.py", f"etcd3+http://127.0.0.1:{server.port}", "bench")
        ),
    )
    found.add(
        bench,
        f"kazoo on ZooKeeper, session {ZOOKEEPER_SESSION:g} s",
        lambda: need("kazoo") and bench.peers("kazoo", "kazoo_election.py", zookeeper(bench), ZOOKEEPER_SESSION),
    )
    return found


def need(*modules: str) -> bool:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise Missing(f"not installed here ({module})")
    return True
