"""What is done to a scene: the same plays for `make test`, where they are short, and for `make chaos`, where they are
not."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import cycle

from harness import chronicle
from harness.chronicle import Verdict
from harness.clocks import ShiftedClock
from harness.postgres import Postgres
from harness.proxy import Proxy
from harness.scenes import Job, Scene, SchedulerWorker

_SPREAD = {"spread": 1.5, "max_lost": 10, "missed": "all"}
MANY: list[Job] = [
    {"name": "allow", "every": 2, "copies": 150, "for": 0.2, "policy": {"overlap": "allow", **_SPREAD}},
    {"name": "skip", "every": 2, "copies": 50, "for": 0.2, "policy": _SPREAD},
]
"""200 jobs, so many at every moment that each blow hits some."""
EFFECT: list[Job] = [{"name": "effect", "body": "completes", "policy": {"overlap": "allow", "max_lost": 100}}]
"""Lost as often as its neighbours bring its node down."""
REST = 0.5
"""Between blows."""
LOOK = 0.02
"""Between two looks at the ledger."""
YEAR = 365 * 86400.0
FAILPOINTS = ("plan:before", "plan:after", "claim:after", "finish:before", "finish:after")
MOMENTS = ("work", "commit", "acknowledgement")


def storm(scene: Scene, seconds: float, dice: random.Random, server: Postgres | None = None) -> Verdict:
    """Kill, freeze and replace workers, and restart their database, in turn; at least once each. Every due time is run
    once."""
    scene.planner()
    since, until = scene.now(), scene.now() + seconds
    blows: list[Callable[[], None]] = [lambda: _kill(scene, dice), lambda: _freeze(scene, dice), lambda: _roll(scene)]
    if server is not None:
        blows.append(lambda: _restart(scene, server))
    for blow in dice.sample(blows, len(blows)):
        blow()
        time.sleep(REST * dice.random())
    while scene.now() < until:
        dice.choice(blows)()
        time.sleep(REST * dice.random())
    return scene.verify(since, scene.now())


def _kill(scene: Scene, dice: random.Random) -> None:
    scene.kill(dice.choice(scene.alive))
    scene.add()


def _freeze(scene: Scene, dice: random.Random) -> None:
    worker = dice.choice(scene.alive)
    scene.freeze(worker)
    time.sleep(1.5 * scene.options["ttl"])
    scene.thaw(worker)


def _roll(scene: Scene) -> None:
    """As a deployment does: a new one, then one of the old goes."""
    for worker in scene.alive:
        scene.add()
        scene.retire(worker)


def _restart(scene: Scene, server: Postgres) -> None:
    scene.struck("database restart", "database")
    server.restart()


def cuts(scene: Scene, server: Postgres, seconds: float, dice: random.Random) -> Verdict:
    """Each worker has a network of its own, which breaks in all ways, shorter and longer than the ttl."""
    ttl, database = scene.options["ttl"], scene.url.rpartition("/")[2]
    with ExitStack() as networks:
        lines: list[tuple[SchedulerWorker, Proxy]] = []
        for _ in range(3):
            proxy = networks.enter_context(Proxy(server.port))
            lines.append((scene.add(url=proxy.url(database)), proxy))
        since, until = scene.now(), scene.now() + seconds
        ways: dict[str, Callable[[Proxy], None]] = {
            "network down": Proxy.black_hole,
            "answers lost": lambda proxy: proxy.black_hole(answers_only=True),
            "network late": Proxy.hold,
            "connections reset": Proxy.cut,
        }
        turns = dice.sample(sorted(ways), len(ways))
        while turns or scene.now() < until:
            way = turns.pop() if turns else dice.choice(sorted(ways))
            worker, proxy = dice.choice(lines)
            scene.cut_off(worker, way)
            ways[way](proxy)
            time.sleep(dice.choice((0.2, 1.5)) * ttl)
            proxy.heal()
            scene.mend(worker)
            time.sleep(REST + dice.random())
        return scene.verify(since, scene.now())


def jumps(
    scenes: Sequence[tuple[Scene, ShiftedClock, float]], *, believed: float, lasts: float, dice: random.Random
) -> Iterator[Verdict]:
    """The clocks of these databases jump, some seconds after the workers began, and jump back."""
    for _ in range(2):
        for worker in [scene.add(wait=False) for scene, _, _ in scenes]:
            worker.wait_event(event="started", within=30)
    for scene, _, _ in scenes:
        scene.planner()
    since = [scene.now() for scene, _, _ in scenes]
    time.sleep(believed + dice.random())
    for scene, clock, jump in scenes:
        scene.struck("database clock jump", "database", lasts)
        clock.wall(jump)
    time.sleep(lasts)
    for _, clock, _ in scenes:
        clock.wall(0)
    time.sleep(2)
    for (scene, _, _), began in zip(scenes, since, strict=True):
        yield scene.verify(began, scene.now())


def steps(scene: Scene) -> Verdict:
    """Whoever plans dies at each step of its work, in turn."""
    scene.planner()
    since = scene.now()
    for failpoint in FAILPOINTS:
        scene.eventually(lambda: len(scene.present) > 1)
        planner = scene.planner()
        planner.say(do="arm", failpoint=failpoint)
        scene.fell(planner)
        scene.add(wait=False)
    return scene.verify(since, scene.now())


def succession(scene: Scene, kills: int, dice: random.Random) -> Verdict:
    """Kill whoever plans, at random moments. What it had not claimed is hardly late; `late_again` is what it had."""
    scene.planner()
    since = scene.now()
    for _ in range(kills):
        scene.eventually(lambda: len(scene.present) > 1)
        worker = scene.planner()
        time.sleep(0.2 * dice.random())
        scene.kill(worker)
        scene.add(wait=False)
        scene.planner()
    time.sleep(1.0)
    return scene.verify(since, scene.now())


def effects(scene: Scene, rounds: int, zombies: int) -> Counter[str]:
    """Runs that commit their effect with their completion, and die at a moment of it.

    How often each effect was made, and what else happened.
    """
    before, moments = len(scene.rows(job="effect")), cycle(MOMENTS)
    watch: list[SchedulerWorker] = list(scene.alive)
    for _ in range(rounds):
        scene.scheduler.run_now("effect", kwargs={"moment": next(moments)})
        watch = list(_fallen_replaced(scene, watch))
    _zombies(scene, zombies)
    _all_ended(scene, before + rounds + zombies)
    made = Counter(row.key for row in scene.table)
    rows = scene.rows(job="effect")
    found = Counter({f"effects made {times} times": count for times, count in Counter(made.values()).items()})
    found.update(row.state.value for row in rows)
    found["without effect"] = sum(row.key not in made for row in rows)
    found["refused"] = sum(line.what == "refused" for line in scene.lines)
    return found


def _fallen_replaced(scene: Scene, watch: list[SchedulerWorker]) -> Iterator[SchedulerWorker]:
    """Wait until one of them has died, and put another in its place."""
    scene.eventually(lambda: any(not worker.alive for worker in watch))
    for worker in watch:
        if worker.alive:
            yield worker
        else:
            scene.fell(worker)
            yield scene.add(wait=False)


def _zombies(scene: Scene, count: int) -> None:
    """One worker has them all in hand, is frozen beyond its ttl, and goes on when another has completed them."""
    scene.eventually(lambda: scene.present == scene.alive)
    for worker in scene.alive:
        scene.retire(worker)
    frozen = scene.add(capacity=count)
    keys = {scene.scheduler.run_now("effect", kwargs={"moment": "zombie"}).key for _ in range(count)}
    scene.eventually(lambda: keys <= _said(scene, "start"))
    scene.freeze(frozen)
    scene.add()
    scene.eventually(lambda: keys <= _said(scene, "end"))
    frozen.say(do="go")
    scene.thaw(frozen)
    scene.eventually(lambda: keys <= _said(scene, "refused"))


def _said(scene: Scene, what: str) -> set[str]:
    return {line.key for line in scene.lines if line.what == what}


def _all_ended(scene: Scene, count: int) -> None:
    scene.settled(scene.now())
    assert len(scene.rows(job="effect")) == count


def places(scene: Scene, rounds: int, limit: int, *, frozen: bool) -> Counter[str]:
    """Many nodes claim the same jobs at the same instant.

    The ledger is looked at all the while: how many of a job are under way.
    """
    scene.planner()
    began, period = scene.now(), next(iter(scene.grids.values())).period
    until = began + rounds / len(scene.grids) * period
    most: Counter[str] = Counter()
    victim = scene.alive[0] if frozen else None
    if victim is not None:
        scene.freeze(victim)
    while scene.now() < until:
        for name, count in under_way(scene):
            most[name] = max(most[name], count)
        time.sleep(LOOK)
        if victim is not None and scene.now() > until - 0.3 * (until - began):
            scene.thaw(victim)
            victim = None
    scene.settled(until)
    assert most, "nothing was ever seen under way: this proves nothing"
    for name, count in chronicle.most_at_once(scene.lines, scene.doubts).items():
        most[name] = max(most[name], count)
    assert max(most.values()) <= limit, f"{most}\n{scene.stories()}"
    return most


def under_way(scene: Scene) -> list[tuple[str, int]]:
    """Runs that began and are not final, per job, in one snapshot."""
    p = scene.prefix
    rows = scene.query(
        f"SELECT j.name, count(*) FROM {p}run r JOIN {p}job j ON j.id = r.job"
        " WHERE r.state = 'running' OR (r.state = 'pending' AND r.attempt > 0) GROUP BY j.name"
    )
    return [(str(name), int(count)) for name, count in rows]
