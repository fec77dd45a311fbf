"""What is done to the hosts of a scene: disks that fill up, processes that fork without end, clocks that jump."""

import random
import signal
import time

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
    """The disk of the database is full for longer than the ttl. A server panics when it finds no room for its log; it is started again."""

    def fill() -> None:
        with away(scene, "disk full", "database", beyond(scene)):
            disk.fill()
            if server is not None and dice.random() < 0.5:
                _find_no_room(scene, server)
            time.sleep(beyond(scene))
            disk.empty()
            if server is not None:
                _serving_again(server)

    def start_meanwhile() -> None:
        """Somebody dies when the disk is full, and a new one starts."""
        with away(scene, "disk full", "database", beyond(scene)):
            disk.fill()
            scene.kill(dice.choice(scene.alive))
            newcomer = scene.add(wait=False)
            time.sleep(beyond(scene))
            disk.empty()
        scene.joined(newcomer)

    return in_turn(scene, seconds, dice, [fill, start_meanwhile, *on_workers(scene, dice)])


def _find_no_room(scene: Scene, server: Postgres) -> None:
    """Ask for the next segment of the log."""
    try:
        server.execute("SELECT pg_switch_wal()")
        server.execute("CREATE TABLE IF NOT EXISTS room AS SELECT 1")
    except psycopg.OperationalError:
        scene.struck("server panics", "database")


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
