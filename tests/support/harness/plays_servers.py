"""What is done to the database of a scene, and to the pooler before it. Every due time is run once all the same.

A database that is away is away for all: whatever any worker has in hand may be tried again when it is back.
"""

import functools
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import psycopg

from harness import scratch
from harness.chronicle import Verdict
from harness.pgbouncer import PgBouncer
from harness.plays import REST
from harness.postgres import Postgres
from harness.scenes import Job, Scene
from harness.standby import Pair

_PATIENT = {"spread": 1.0, "max_lost": 20, "missed": "all"}
SOME: list[Job] = [
    {"name": "allow", "every": 2, "copies": 45, "for": 0.2, "policy": {"overlap": "allow", **_PATIENT}},
    {"name": "skip", "every": 12, "copies": 60, "for": 0.2, "policy": _PATIENT},
]
"""Enough that each blow hits some.

No blow lasts for two due times of a job that skips overlaps: of two that are late together either may run.
"""
BEYOND = 1.6
"""Of the ttl: how long a blow lasts that outlasts every lease."""
TABLES = ("node", "election", "job", "run", "epoch", "application")
OURS = "application_name LIKE 'tenure:%'"

Blow = Callable[[], None]
Stretch = tuple[float, float]


def in_turn(scene: Scene, seconds: float, dice: random.Random, blows: Sequence[Blow]) -> Verdict:
    """Each of them once, then any of them, until the time is over."""
    scene.planner()
    since, until = scene.now(), scene.now() + seconds
    turns = dice.sample(blows, len(blows))
    while turns or scene.now() < until:
        (turns.pop() if turns else dice.choice(blows))()
        time.sleep(REST + dice.random())
    return scene.verify(since, scene.now())


def on_workers(scene: Scene, dice: random.Random) -> list[Blow]:
    """kill -9, a freeze beyond the ttl, and a replacement of one worker."""

    def kill() -> None:
        scene.kill(dice.choice(scene.alive))
        scene.add()

    def freeze() -> None:
        worker = dice.choice(scene.alive)
        scene.freeze(worker)
        time.sleep(beyond(scene))
        scene.thaw(worker)

    def replace() -> None:
        worker = dice.choice(scene.alive)
        scene.add()
        scene.retire(worker)

    return [kill, freeze, replace]


def beyond(scene: Scene) -> float:
    return float(BEYOND * scene.options["ttl"])


@contextmanager
def away(scene: Scene, kind: str, target: str, lasts: float) -> Iterator[None]:
    """Meanwhile the database is of no use to anybody."""
    hit = scene.alive
    scene.struck(kind, target, lasts)
    for worker in hit:
        scene.doubt(worker)
    try:
        yield
    finally:
        for worker in hit:
            scene.mend(worker)


# The whole server


def outages(scene: Scene, server: Postgres, seconds: float, dice: random.Random) -> Verdict:
    """kill -9 and freeze of the whole server, shorter and longer than the ttl."""

    def crash() -> None:
        lasts = dice.choice((0.0, beyond(scene)))
        with away(scene, "server kill -9", "server", lasts):
            server.crash()
            time.sleep(lasts)
            server.start()

    def freeze() -> None:
        lasts = dice.choice((0.3 * scene.options["ttl"], beyond(scene)))
        with away(scene, "server freeze", "server", lasts):
            server.freeze()
            time.sleep(lasts)
            server.thaw()

    return in_turn(scene, seconds, dice, [crash, freeze, *on_workers(scene, dice)])


# Single backends, connection slots, locks


def backends(scene: Scene, server: Postgres, seconds: float, dice: random.Random) -> Verdict:
    """SIGSTOP of single backends, busy ones if there are any: they keep their locks, and answer nobody."""
    return in_turn(scene, seconds, dice, [lambda: freeze_backends(scene, server, dice), *on_workers(scene, dice)])


def freeze_backends(scene: Scene, server: Postgres, dice: random.Random, count: int = 2) -> None:
    busy = _backends(server, f"{OURS} AND state <> 'idle'")
    for _ in range(20):
        if len(busy) >= count:
            break
        busy = _backends(server, f"{OURS} AND state <> 'idle'")
    pids = (busy + dice.sample(every := _backends(server, OURS), len(every)))[:count]
    with away(scene, "backend freeze", f"{len(busy[:count])} busy", beyond(scene)):
        scratch.send(pids, signal.SIGSTOP)
        time.sleep(beyond(scene))
        scratch.send(pids, signal.SIGCONT)


def _backends(server: Postgres, where: str) -> list[int]:
    return [pid for (pid,) in server.execute(f"SELECT pid FROM pg_stat_activity WHERE {where}")]


def slots(scene: Scene, server: Postgres, seconds: float, dice: random.Random) -> Verdict:
    """Others take all of max_connections and throw our sessions out."""

    def take() -> None:
        take_all_slots(scene, server)

    return in_turn(scene, seconds, dice, [take, *on_workers(scene, dice)])


def take_all_slots(scene: Scene, server: Postgres) -> int:
    """How many of our sessions were thrown out."""
    thrown_out = 0
    with ExitStack() as hogs, away(scene, "no connection slots", "server", beyond(scene)):

        def hog() -> psycopg.Connection[tuple[object, ...]]:
            return hogs.enter_context(psycopg.connect(server.url(), autocommit=True, application_name="hog"))

        first = hog()
        ends = time.monotonic() + beyond(scene)
        while time.monotonic() < ends:
            ended = first.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}".encode())
            thrown_out += ended.rowcount
            try:
                while True:
                    hog()
            except psycopg.OperationalError as error:
                if "too many clients" not in str(error) and "remaining connection slots" not in str(error):
                    raise
            time.sleep(0.05)
    return thrown_out


def locks(scene: Scene, seconds: float, dice: random.Random) -> Verdict:
    """Somebody's transaction holds our rows or tables, longer than the ttl."""

    def blow(hold: Callable[[Scene, str], Stretch], table: str) -> None:
        hold(scene, table)

    blows = [functools.partial(blow, hold, table) for hold in (hold_rows, hold_table) for table in TABLES]
    return in_turn(scene, seconds, dice, blows)


def hold_rows(scene: Scene, table: str) -> Stretch:
    return _hold(scene, f"rows of {table} locked", table, f"SELECT 1 FROM tenure.{table} FOR UPDATE")


def hold_table(scene: Scene, table: str) -> Stretch:
    return _hold(scene, f"table {table} locked", table, f"LOCK TABLE tenure.{table} IN ACCESS EXCLUSIVE MODE")


def _hold(scene: Scene, kind: str, table: str, statement: str) -> Stretch:
    """From when to when it was held, by the real wall clock."""
    with psycopg.connect(scene.url, application_name="holder") as holder:
        _patiently(holder, statement)
        with away(scene, kind, table, beyond(scene)):
            since = scene.now()
            time.sleep(beyond(scene))
            until = scene.now()
            holder.rollback()
    return since, until


def _patiently(holder: psycopg.Connection[tuple[object, ...]], statement: str) -> None:
    """Ours come and go all the time, so that one who locks many of their rows may meet a deadlock; the server then
    picks one of the two."""
    while True:
        try:
            holder.execute(statement.encode())
        except psycopg.errors.DeadlockDetected:
            holder.rollback()
        else:
            return


# The pooler


def pooled(scene: Scene, bouncer: PgBouncer, seconds: float, dice: random.Random) -> Verdict:
    """The pooler is killed, stays away, and is frozen; its clients are killed, frozen and replaced."""

    def kill() -> None:
        lasts = dice.choice((0.0, beyond(scene)))
        with away(scene, "pooler kill -9", "pgbouncer", lasts):
            bouncer.close()
            time.sleep(lasts)
            bouncer.start()

    def freeze() -> None:
        with away(scene, "pooler freeze", "pgbouncer", beyond(scene)):
            bouncer.freeze()
            time.sleep(beyond(scene))
            bouncer.thaw()

    def reconnect() -> None:
        with away(scene, "pooler reconnects", "pgbouncer", 0.0):
            bouncer.console("RECONNECT")

    return in_turn(scene, seconds, dice, [kill, freeze, reconnect, *on_workers(scene, dice)])


def refused(scene: Scene, through: str, seconds: float, dice: random.Random) -> tuple[Verdict, int]:
    """Workers that are sent through a pooler in statement mode end at once, and say why. How many did."""
    ended = 0

    def send() -> None:
        nonlocal ended
        scene.struck("sent through a pooler in statement mode")
        worker = scene.add(wait=False, url=through)
        assert worker.wait(within=30) == 1, worker.story("was not refused")
        assert any("ConfigurationError" in line and "statement mode" in line for line in worker.errors), worker.story()
        ended += 1

    verdict = in_turn(scene, seconds, dice, [send, *on_workers(scene, dice)])
    return verdict, ended


# Failover


def failovers(scene: Scene, pair: Pair, seconds: float, dice: random.Random) -> Verdict:
    """The primary dies, its synchronous standby is promoted, the address moves, and a new standby is made."""

    def fail_over() -> None:
        with away(scene, "primary kill -9, standby promoted", "primary", 0.0):
            pair.fail_over(after=dice.choice((0.0, beyond(scene))))
        pair.add_standby()

    return in_turn(scene, seconds, dice, [fail_over, *on_workers(scene, dice)])
