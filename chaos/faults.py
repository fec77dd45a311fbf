"""Further plays for `make chaos`: hurt servers, poolers, networks, disks and clocks.

Each can be played alone: `--only NAME`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from harness import namespaces, plays_hosts, plays_network, plays_servers, scratch
from harness.clocks import ShiftedClock
from harness.components import AVAILABLE
from harness.pgbouncer import PgBouncer
from harness.postgres import Postgres
from harness.scenes import Broken, Scene, stage
from harness.standby import Pair

Play = Callable[[Any, str, float, random.Random], None]
Make = Callable[..., Scene]


@contextmanager
def serving(**settings: str) -> Iterator[tuple[Postgres, Make]]:
    """A server of its own, and a maker of scenes."""
    with Postgres(settings=settings) as server, stage(scratch.new_folder("chaos")) as make:
        yield server, make


# Servers


def outages(result: Any, _store: str, seconds: float, dice: random.Random) -> None:
    """kill -9 and freeze of the whole server, shorter and longer than the ttl: 45 jobs due every 2 s, 60 every 12 s, 3
    workers, ttl 3 s"""
    with serving() as (server, make):
        scene = make(server.create_database(), jobs=plays_servers.SOME, ttl=3).start(3)
        result.take(scene, plays_servers.outages(scene, server, seconds, dice))


def backends(result: Any, _store: str, seconds: float, dice: random.Random) -> None:
    """Frozen backends, which keep their locks and do not answer: 45 jobs due every 2 s, 60 every 12 s, 3 workers, ttl 3
    s"""
    with serving() as (server, make):
        scene = make(server.create_database(), jobs=plays_servers.SOME, ttl=3).start(3)
        result.take(scene, plays_servers.backends(scene, server, seconds, dice))


def slots(result: Any, _store: str, seconds: float, dice: random.Random) -> None:
    """Others take all connection slots and throw out our sessions: 45 jobs due every 2 s, 60 every 12 s, 3 workers, ttl
    3 s, 40 slots"""
    with serving(max_connections="40") as (server, make):
        scene = make(server.create_database(), jobs=plays_servers.SOME, ttl=3).start(3)
        result.take(scene, plays_servers.slots(scene, server, seconds, dice))


def locks(result: Any, _store: str, seconds: float, dice: random.Random) -> None:
    """A foreign transaction holds our rows or a whole table beyond the ttl: 45 jobs due every 2 s, 60 every 12 s, 3
    workers, ttl 3 s"""
    with serving() as (server, make):
        scene = make(server.create_database(), jobs=plays_servers.SOME, ttl=3).start(3)
        result.take(scene, plays_servers.locks(scene, seconds, dice))


def failovers(result: Any, _store: str, seconds: float, dice: random.Random) -> None:
    """The primary dies and its synchronous standby is promoted: 45 jobs due every 2 s, 60 every 12 s, 3 workers, ttl 3
    s"""
    with Pair() as pair, stage(scratch.new_folder("chaos")) as make:
        name = pair.primary.create_database().rpartition("/")[2]
        scene = make(pair.url(name), jobs=plays_servers.SOME, ttl=3).start(3)
        pair.add_standby()
        result.take(scene, plays_servers.failovers(scene, pair, seconds, dice))


# Poolers


def pooler_sessions(result: Any, _store: str, seconds: float, dice: random.Random) -> None:
    """pgbouncer in session mode is killed, frozen and told to reconnect: 45 jobs due every 2 s, 60 every 12 s, 3
    workers, ttl 3 s"""
    _pooled(result, "session", seconds, dice)


def pooler_transactions(result: Any, _store: str, seconds: float, dice: random.Random) -> None:
    """pgbouncer in transaction mode, with 4 server connections, is killed, frozen and told to reconnect: 45 jobs due
    every 2 s, 60 every 12 s, 3 workers, ttl 3 s"""
    _pooled(result, "transaction", seconds, dice, pool_size=4)


def pooler_statements(result: Any, _store: str, seconds: float, dice: random.Random) -> None:
    """pgbouncer in statement mode, where there are no transactions: workers refuse to start and say why, and those with
    a direct URL go on"""
    with serving() as (server, make), PgBouncer(server, "statement") as bouncer:
        url = server.create_database()
        scene = make(url, jobs=plays_servers.SOME, ttl=3).start(2)
        verdict, refused = plays_servers.refused(scene, bouncer.url(url.rpartition("/")[2]), seconds, dice)
        result.take(scene, verdict)
        result.remarks["refused to start"] += refused


def _pooled(result: Any, mode: str, seconds: float, dice: random.Random, **settings: Any) -> None:
    with serving() as (server, make), PgBouncer(server, mode, **settings) as bouncer:
        name = server.create_database().rpartition("/")[2]
        scene = make(bouncer.url(name), jobs=plays_servers.SOME, ttl=3).start(3)
        result.take(scene, plays_servers.pooled(scene, bouncer, seconds, dice))


# Networks


def partitions(result: Any, _store: str, seconds: float, dice: random.Random) -> None:
    """Each worker in a network of its own, whose line loses packets one way, both ways, or one of 8, or is down: 45
    jobs due every 2 s, 60 every 12 s, 3 workers and one beside the server, ttl 3 s"""

    def play() -> None:
        server = Postgres(settings={"listen_addresses": "*"})
        server.admit(plays_network.NETWORKS)
        with server, namespaces.Network(3) as network, stage(scratch.new_folder("chaos")) as make:
            scene = make(server.create_database(), jobs=plays_servers.SOME, ttl=3)
            result.take(scene, plays_network.partitions(scene, server, network.lines, seconds, dice))

    _elsewhere(result, play)


def _elsewhere(result: Any, play: Callable[[], None]) -> None:
    """With mounts and a network of its own; what was seen comes back, also from a play that broke."""

    def played() -> tuple[dict[str, Any], str]:
        try:
            play()
        except Broken as error:
            result.take(error.scene, error.verdict)
            return vars(result), str(error)
        return vars(result), ""

    seen, broken = namespaces.elsewhere(played)
    vars(result).update(seen)
    if broken:
        raise AssertionError(broken)


# Hosts


def full_disk(result: Any, store: str, seconds: float, dice: random.Random) -> None:
    """The disk of the database is full for longer than the ttl, and has room again: 45 jobs due every 2 s, 60 every 12
    s, 3 workers, ttl 3 s"""

    def on_sqlite() -> None:
        disk = namespaces.SmallDisk(32)
        with stage(scratch.new_folder("chaos")) as make:
            scene = make(f"sqlite:///{disk.folder / 'tenure.db'}", jobs=plays_servers.SOME, ttl=3).start(3)
            result.take(scene, plays_hosts.full_disk(scene, disk, seconds, dice))

    def on_postgres() -> None:
        disk = namespaces.SmallDisk(250)
        settings = {"max_wal_size": "64MB", "min_wal_size": "32MB"}
        with Postgres(place=disk.folder, settings=settings) as server, stage(scratch.new_folder("chaos")) as make:
            scene = make(server.create_database(), jobs=plays_servers.SOME, ttl=3).start(3)
            result.take(scene, plays_hosts.full_disk(scene, disk, seconds, dice, server))

    _elsewhere(result, on_sqlite if store == "SQLite" else on_postgres)


def forks(result: Any, store: str, seconds: float, dice: random.Random) -> None:
    """Workers fork 20 times in a row, again and again; half of the children end, half outlive their parents: 45 jobs
    due every 2 s, 60 every 12 s, 3 workers, ttl 3 s"""
    with opened(store) as url, stage(scratch.new_folder("chaos")) as make:
        scene = make(url, jobs=plays_servers.SOME, ttl=3).start(3)
        result.take(scene, plays_hosts.forks(scene, seconds, dice))


def node_clocks(result: Any, store: str, seconds: float, dice: random.Random) -> None:
    """The wall clocks of the nodes jump by hours, each by its own, both ways: 45 jobs due every 2 s, 60 every 12 s, 3
    workers, ttl 3 s"""
    with opened(store) as url, stage(scratch.new_folder("chaos")) as make:
        scene = make(url, jobs=plays_servers.SOME, ttl=3)
        result.take(scene, plays_hosts.node_clocks(scene, 3, seconds, dice))


def host_clock(result: Any, store: str, seconds: float, dice: random.Random) -> None:
    """The wall clock of the host, by which SQLite's jobs are due, jumps by hours for some seconds: 45 jobs due every 2
    s, 60 every 12 s, 3 workers, ttl 3 s"""
    clock = ShiftedClock()
    with opened(store) as url, stage(scratch.new_folder("chaos")) as make:
        scene = make(url, jobs=plays_servers.SOME, ttl=3).start(3, env=clock.env)
        result.take(scene, plays_hosts.host_clock(scene, clock, seconds, dice))


@contextmanager
def opened(store: str) -> Iterator[str]:
    """The URL of a new database."""
    if store == "SQLite":
        yield f"sqlite:///{scratch.new_folder('file') / 'tenure.db'}"
        return
    with Postgres() as server:
        yield server.create_database()


_NEEDED: list[tuple[Play, str, float, str]] = [
    (outages, "PostgreSQL", 0.05, "postgres"),
    (backends, "PostgreSQL", 0.05, "postgres"),
    (slots, "PostgreSQL", 0.05, "postgres"),
    (locks, "PostgreSQL", 0.08, "postgres"),
    (failovers, "PostgreSQL", 0.06, "postgres"),
    (pooler_sessions, "PostgreSQL", 0.05, "pgbouncer"),
    (pooler_transactions, "PostgreSQL", 0.05, "pgbouncer"),
    (pooler_statements, "PostgreSQL", 0.02, "pgbouncer"),
    (partitions, "PostgreSQL", 0.06, "namespaces"),
    (full_disk, "SQLite", 0.05, "namespaces"),
    (full_disk, "PostgreSQL", 0.05, "namespaces"),
    (forks, "SQLite", 0.05, "postgres"),
    (forks, "PostgreSQL", 0.05, "postgres"),
    (node_clocks, "PostgreSQL", 0.04, "gcc"),
    (host_clock, "SQLite", 0.04, "gcc"),
]
"""What, where, its share of the time, and what it needs."""


def possible() -> Iterator[tuple[Play, str, float]]:
    """Those whose needs are met; of the others it is said that they are left out."""
    missing = {
        need
        for need in {need for *_, need in _NEEDED}
        if not (namespaces.available() if need == "namespaces" else AVAILABLE[need]())
    }
    for play, store, share, need in _NEEDED:
        if need in missing:
            print(f"{need} cannot be had here: {play.__name__} on {store} is left out")
        else:
            yield play, store, share


PLAYS = list(possible())
