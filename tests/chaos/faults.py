"""Further plays for `make chaos`: hurt servers, poolers, networks, disks and clocks. Each can be played alone: `--only NAME`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from harness import plays_servers, scratch
from harness.pgbouncer import PgBouncer
from harness.postgres import Postgres
from harness.scenes import Scene, stage
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
    """kill -9 and freeze of the whole server, shorter and longer than the ttl: 60 jobs, each due every 2 s, 3 workers, ttl 3 s"""
    with serving() as (server, make):
        scene = make(server.create_database(), jobs=plays_servers.SOME, ttl=3).start(3)
        result.take(scene, plays_servers.outages(scene, server, seconds, dice))


def backends(result: Any, _store: str, seconds: float, dice: random.Random) -> None:
    """Frozen backends, which keep their locks and answer nobody: 60 jobs, each due every 2 s, 3 workers, ttl 3 s"""
    with serving() as (server, make):
        scene = make(server.create_database(), jobs=plays_servers.SOME, ttl=3).start(3)
        result.take(scene, plays_servers.backends(scene, server, seconds, dice))


def slots(result: Any, _store: str, seconds: float, dice: random.Random) -> None:
    """Others take all connection slots and throw out our sessions: 60 jobs, each due every 2 s, 3 workers, ttl 3 s, 40 slots"""
    with serving(max_connections="40") as (server, make):
        scene = make(server.create_database(), jobs=plays_servers.SOME, ttl=3).start(3)
        result.take(scene, plays_servers.slots(scene, server, seconds, dice))


def locks(result: Any, _store: str, seconds: float, dice: random.Random) -> None:
    """A foreign transaction holds our rows or a whole table beyond the ttl: 60 jobs, each due every 2 s, 3 workers, ttl 3 s"""
    with serving() as (server, make):
        scene = make(server.create_database(), jobs=plays_servers.SOME, ttl=3).start(3)
        result.take(scene, plays_servers.locks(scene, server, seconds, dice))


def failovers(result: Any, _store: str, seconds: float, dice: random.Random) -> None:
    """The primary dies and its synchronous standby is promoted: 60 jobs, each due every 2 s, 3 workers, ttl 3 s"""
    with Pair() as pair, stage(scratch.new_folder("chaos")) as make:
        name = pair.primary.create_database().rpartition("/")[2]
        scene = make(pair.url(name), jobs=plays_servers.SOME, ttl=3).start(3)
        pair.add_standby()
        result.take(scene, plays_servers.failovers(scene, pair, seconds, dice))


# Poolers


def pooler_sessions(result: Any, _store: str, seconds: float, dice: random.Random) -> None:
    """pgbouncer in session mode is killed, frozen and told to reconnect: 60 jobs, each due every 2 s, 3 workers, ttl 3 s"""
    _pooled(result, "session", seconds, dice)


def pooler_transactions(result: Any, _store: str, seconds: float, dice: random.Random) -> None:
    """pgbouncer in transaction mode, with 4 server connections, is killed, frozen and told to reconnect: 60 jobs, each due every 2 s, 3 workers, ttl 3 s"""
    _pooled(result, "transaction", seconds, dice, pool_size=4)


def pooler_statements(result: Any, _store: str, seconds: float, dice: random.Random) -> None:
    """pgbouncer in statement mode, where there are no transactions: workers refuse to start and say why, and those with a direct URL go on"""
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


PLAYS: list[tuple[Play, str, float]] = [
    (outages, "PostgreSQL", 0.05),
    (backends, "PostgreSQL", 0.05),
    (slots, "PostgreSQL", 0.05),
    (locks, "PostgreSQL", 0.08),
    (failovers, "PostgreSQL", 0.05),
    (pooler_sessions, "PostgreSQL", 0.05),
    (pooler_transactions, "PostgreSQL", 0.05),
    (pooler_statements, "PostgreSQL", 0.02),
]
"""What, where, and its share of the time."""
