"""What is done to the hosts of a scene: disks that fill up, processes that fork without end, clocks that jump."""

import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from harness import scratch
from harness.chronicle import Verdict
from harness.clocks import ShiftedClock
from harness.namespaces import SmallDisk
from harness.plays_servers import away, beyond, in_turn, on_workers
from harness.postgres import Postgres
from harness.scenes import Scene

HOUR = 3600.0
FORKS = 20
"""Of one worker in one storm."""


# Disks


def full_disk(
    scene: Scene, disk: SmallDisk, seconds: float, dice: random.Random, server: Postgres | None = None
) -> Verdict:
    """The disk of the database is full for longer than the ttl.

    A server that finds no room for its log panics, and is started again.
    """

    def fill() -> None:
        with _full(scene, disk, "disk full", server):
            time.sleep(beyond(scene))

    def start() -> None:
        """Somebody has died; a new one starts on the full disk."""
        scene.kill(dice.choice(scene.alive))
        with _full(scene, disk, "disk full", server):
            newcomer = scene.add(wait=False)
            time.sleep(beyond(scene))
        scene.joined(newcomer)

    def panic() -> None:
        assert server is not None
        with (
            psycopg.connect(server.url(), autocommit=True) as connection,
            _full(scene, disk, "disk full, server panics", server),
        ):
            _find_no_room(connection)
            time.sleep(beyond(scene))

    blows = [fill, start, *on_workers(scene, dice)]
    return in_turn(scene, seconds, dice, blows if server is None else [panic, *blows])


@contextmanager
def _full(scene: Scene, disk: SmallDisk, kind: str, server: Postgres | None) -> Iterator[None]:
    with away(scene, kind, "database", beyond(scene)):
        disk.fill()
        yield
        disk.empty()
        if server is not None:
            _serving_again(server)


def _find_no_room(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Ask for one segment of the log after another, until the server dies of it."""
    with suppress(psycopg.OperationalError):
        while True:
            connection.execute("SELECT pg_logical_emit_message(false, 'room', 'x'), pg_switch_wal()")


def _serving_again(server: Postgres) -> None:
    assert server.process is not None
    try:
        server.wait_until_it_answers(within=10)
    except RuntimeError:
        server.start()


# Forks


def forks(scene: Scene, seconds: float, dice: random.Random) -> Verdict:
    """All workers fork all the time. Some children end at once, some outlive their parents."""
    children: list[int] = []

    def storm() -> None:
        for worker in scene.alive:
            scene.struck("fork storm", worker.label)
        for _ in range(FORKS):
            for worker in scene.alive:
                worker.say(do="fork")
                children.append(worker.wait_event(event="forked")["child"])
        dice.shuffle(children)
        half = len(children) // 2
        scratch.send(children[half:], signal.SIGKILL)
        del children[half:]

    try:
        return in_turn(scene, seconds, dice, [storm, storm, *on_workers(scene, dice)])
    finally:
        scratch.send(children, signal.SIGKILL)


# Clocks


def node_clocks(scene: Scene, count: int, seconds: float, dice: random.Random) -> Verdict:
    """The wall clock of each node jumps by hours, both ways; due times are the database's."""
    clocks: dict[str, ShiftedClock] = {}

    def settle() -> None:
        clock = ShiftedClock(wall=_hours(dice))
        clocks[scene.add(env=clock.env).label] = clock

    def jump() -> None:
        worker = dice.choice(scene.alive)
        scene.struck("node clock jump", worker.label)
        clocks[worker.label].wall(_hours(dice))

    def kill() -> None:
        scene.kill(dice.choice(scene.alive))
        settle()

    for _ in range(count):
        settle()
    return in_turn(scene, seconds, dice, [jump, jump, jump, kill])


def host_clock(scene: Scene, clock: ShiftedClock, seconds: float, dice: random.Random) -> Verdict:
    """The wall clock of the host jumps by hours, for a few seconds, under all workers at once."""

    def jump() -> None:
        scene.struck("host clock jump", "host", lasts := 3 + 3 * dice.random())
        clock.wall(_hours(dice))
        time.sleep(lasts)
        clock.wall(0)

    return in_turn(scene, seconds, dice, [jump])


def _hours(dice: random.Random) -> float:
    return dice.choice((-1, 1)) * dice.uniform(1, 12) * HOUR
