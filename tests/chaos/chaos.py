"""Hurt real clusters of schedulers for a while, and write down what became of every due time: `python3 dev.py chaos --minutes 10`.

The plays are those of the tests (tests/harness/plays.py), each repeated until its share of the time is over. The report goes to
docs/proof/scheduler-chaos.md; a broken promise is told there, and on the terminal with everything that the workers said.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from harness import chronicle, plays, processes, scratch  # noqa: E402 - the tests are no package
from harness.clocks import ShiftedClock, available  # noqa: E402
from harness.postgres import Postgres  # noqa: E402
from harness.scenes import Scene, stage  # noqa: E402

REPORT = ROOT / "docs" / "proof" / "scheduler-chaos.md"
TICK = {"name": "tick", "every": 0.1, "policy": {"overlap": "allow"}}
PLACES = 2


@dataclass
class Result:
    """What one play showed."""

    title: str
    store: str
    took: float = 0.0
    blows: Counter[str] = field(default_factory=Counter)
    due: int = 0
    states: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    twice: int = 0
    lateness: list[float] = field(default_factory=list)
    late_again: list[float] = field(default_factory=list)
    failovers: list[float] = field(default_factory=list)
    remarks: Counter[str] = field(default_factory=Counter)
    broken: str = ""

    def take(self, scene: Scene, verdict: chronicle.Verdict | None = None) -> None:
        """Add what was seen in a scene."""
        self.blows += scene.blows
        self.failovers += scene.failovers
        if verdict is not None:
            self.due += verdict.due
            self.states += verdict.states
            self.repeated += verdict.repeated
            self.twice += verdict.twice
            self.lateness += verdict.lateness
            self.late_again += verdict.late_again


Play = Callable[[Result, str, float, random.Random], None]
"""Plays on a store for so many seconds."""


def storm(result: Result, store: str, seconds: float, dice: random.Random) -> None:
    """Kill -9, freeze and thaw beyond the ttl, rolling restart, restart of the database: 200 jobs, each due every 2 s, 4 workers, ttl 2.5 s"""
    with opened(store) as (url, server), stage(scratch.new_folder("chaos")) as make:
        scene = make(url, jobs=plays.MANY, ttl=2.5).start(4)
        result.take(scene, plays.storm(scene, seconds, dice, server))


def cuts(result: Result, store: str, seconds: float, dice: random.Random) -> None:
    """The network of each worker breaks in all ways, shorter and longer than the ttl: 200 jobs, each due every 2 s, 3 workers, ttl 3 s"""
    with opened(store) as (url, server), stage(scratch.new_folder("chaos")) as make:
        assert server is not None
        scene = make(url, jobs=plays.MANY, ttl=3)
        result.take(scene, plays.cuts(scene, server, seconds, dice))


def succession(result: Result, store: str, seconds: float, dice: random.Random) -> None:
    """Kill -9 of whoever plans, at random moments: a job every 100 ms, 3 workers, ttl 30 s"""
    for _ in until_over(seconds):
        with opened(store) as (url, _), stage(scratch.new_folder("chaos")) as make:
            scene = make(url, jobs=[TICK], ttl=30).start(3)
            result.take(scene, plays.succession(scene, 20, dice))


def steps(result: Result, store: str, seconds: float, _dice: random.Random) -> None:
    """Whoever plans dies before and after a plan's commit, after a claim, before and after a completion: 3 workers, ttl 30 s"""
    for _ in until_over(seconds):
        with opened(store) as (url, _), stage(scratch.new_folder("chaos")) as make:
            scene = make(url, jobs=[TICK], ttl=30).start(3)
            result.take(scene, plays.steps(scene))


def effects(result: Result, store: str, seconds: float, _dice: random.Random) -> None:
    """`run.complete(conn)`: dead between work and commit and between commit and acknowledgement; zombies that swallow the refusal"""
    for _ in until_over(seconds):
        with opened(store) as (url, _), stage(scratch.new_folder("chaos")) as make:
            scene = make(url, jobs=plays.EFFECT, ttl=2.5).start(2)
            found = plays.effects(scene, 6, 80)
            result.take(scene)
            result.remarks += found
            wrong = found["succeeded"] - found["effects made 1 times"] + found["without effect"]
            assert not wrong, f"{wrong} effects were not made once: {found}\n{scene.stories()}"


def places(result: Result, store: str, seconds: float, _dice: random.Random) -> None:
    """`max_running=2`, claimed by six workers at the same instants, one of them frozen meanwhile"""
    for _ in until_over(seconds):
        with opened(store) as (url, _), stage(scratch.new_folder("chaos")) as make:
            policy = {"overlap": "allow", "max_running": PLACES, "max_lost": 10}
            jobs = [{"name": "narrow", "every": 0.4, "copies": 5, "for": 0.6, "policy": policy}]
            scene = make(url, jobs=jobs, ttl=2, capacity=6).start(6)
            most = plays.places(scene, 150, PLACES, frozen=True)
            result.take(scene)
            result.remarks["rounds"] += 150
            result.remarks["most of a job at once"] = max(result.remarks["most of a job at once"], *most.values())


def jumps(result: Result, _store: str, seconds: float, dice: random.Random) -> None:
    """The clock of the database jumps by a year, or by 65 s, for ten seconds: 2 workers"""
    for _ in until_over(seconds):
        for jump in (plays.YEAR, -plays.YEAR, 65.0):
            clock = ShiftedClock()
            with Postgres(env=clock.env) as server, stage(scratch.new_folder("chaos")) as make:
                scene = make(server.create_database(), jobs=[TICK], ttl=10)
                for verdict in plays.jumps([(scene, clock, jump)], believed=11.0, lasts=10.0, dice=dice):
                    result.take(scene, verdict)
                scene.close()


PLAYS: list[tuple[Play, str, float]] = [
    (storm, "PostgreSQL", 0.18),
    (storm, "SQLite", 0.14),
    (cuts, "PostgreSQL", 0.08),
    (succession, "PostgreSQL", 0.2),
    (succession, "SQLite", 0.05),
    (steps, "PostgreSQL", 0.03),
    (steps, "SQLite", 0.03),
    (effects, "PostgreSQL", 0.1),
    (effects, "SQLite", 0.05),
    (places, "PostgreSQL", 0.05),
    (places, "SQLite", 0.03),
    (jumps, "PostgreSQL", 0.06),
]
"""What, where, and its share of the time."""


@contextmanager
def opened(store: str) -> Iterator[tuple[str, Postgres | None]]:
    """The URL of a new database, and its server."""
    if store == "SQLite":
        yield f"sqlite:///{scratch.new_folder('file') / 'tenure.db'}", None
        return
    with Postgres() as server:
        yield server.create_database(), server


def until_over(seconds: float) -> Iterator[None]:
    """At least once."""
    ends = time.monotonic() + seconds
    yield
    while time.monotonic() < ends:
        yield


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long, about (10)")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="for the same order of blows again")
    parser.add_argument(
        "--only", help="the name of one play: " + ", ".join(sorted({play.__name__ for play, *_ in PLAYS}))
    )
    parser.add_argument("--report", type=Path, default=REPORT, help=f"where to write it ({REPORT.relative_to(ROOT)})")
    options = parser.parse_args()
    chosen = [entry for entry in PLAYS if options.only in {None, entry[0].__name__}]
    if not available():
        print("gcc is missing: the play that shifts clocks is left out")
        chosen = [entry for entry in chosen if entry[0] is not jumps]
    whole = sum(share for *_, share in chosen)
    results, load = [], os.getloadavg()[0]
    for play, store, share in chosen:
        result = Result((play.__doc__ or "").strip(), store)
        results.append(result)
        print(f"{play.__name__} on {store} …", flush=True)
        began = time.monotonic()
        try:
            play(result, store, options.minutes * 60 * share / whole, random.Random(options.seed))
        except Exception as error:  # the other plays are still worth playing
            result.broken = f"{type(error).__name__}: {error}".partition("\nworker ")[0][:2000]
            traceback.print_exc()
        finally:
            processes.end_all()
        result.took = time.monotonic() - began
        print("\n".join(told(result)), flush=True)
    text = "\n".join(report(results, options.minutes, options.seed, load))
    options.report.parent.mkdir(parents=True, exist_ok=True)
    options.report.write_text(text + "\n")
    print(f"\n{verdict(results)} The report is in {options.report}.")
    return int(any(result.broken for result in results))


def report(results: list[Result], minutes: float, seed: int, before: float) -> Iterator[str]:
    """The Markdown page."""
    blows: Counter[str] = Counter()
    for result in results:
        blows += result.blows
    yield "# Schedulers under fire"
    yield ""
    yield (
        "Written by `python3 dev.py chaos`. Real worker processes on real databases are killed, frozen, replaced and given wrong clocks. "
        "An outside checker counts the due times on the grid of each job, and holds the ledger and the lines that the bodies wrote against them."
    )
    yield ""
    yield f"- {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {minutes:g} minutes, seed {seed}; {os.cpu_count()} cores, Python {platform.python_version()}"
    yield f"- Load: {before:.2f} before, {os.getloadavg()[0]:.2f} at the end; lateness is that of a machine so busy"
    yield f"- Blows: {', '.join(f'{count:,} {kind}' for kind, count in blows.most_common())}"
    due = sum(result.due for result in results)
    yield f"- Due times: {due:,}. {verdict(results)}"
    yield ""
    yield (
        "*Repeated*: an attempt was cut short by a blow, and another one completed under the same key. *Ended twice*: the body had ended, but the "
        "blow came before the ledger heard of it; this is what `run.complete(conn)` is for. Lateness is from the due time to the beginning of the body."
    )
    for result in results:
        yield ""
        yield f"## {result.title.partition(':')[0]} ({result.store})"
        yield ""
        yield from told(result)


def told(result: Result) -> Iterator[str]:
    """What one play showed, line by line."""
    setting = result.title.partition(": ")[2]
    yield f"- {f'{setting}; ' if setting else ''}{result.took:.0f} s"
    if result.blows:
        yield f"- blows: {', '.join(f'{count:,} {kind}' for kind, count in result.blows.most_common())}"
    if result.due:
        states = ", ".join(f"{count:,} {state}" for state, count in result.states.most_common())
        yield f"- {result.due:,} due times: {states}; {result.repeated:,} repeated, {result.twice:,} ended twice"
        yield f"- late: {chronicle.shown(result.lateness)}"
    if result.late_again:
        yield f"- late where a blow hit the attempt: {chronicle.shown(result.late_again)}"
    if result.failovers:
        yield f"- from the death of a planner to the next one: {chronicle.shown(result.failovers)}"
    if result.remarks:
        yield f"- {'; '.join(f'{what}: {count:,}' for what, count in sorted(result.remarks.items()))}"
    if result.broken:
        yield f"- **broken:** {result.broken}"


def verdict(results: list[Result]) -> str:
    """In one sentence."""
    broken = sum(bool(result.broken) for result in results)
    if broken:
        return f"{broken} of {len(results)} plays broke a promise."
    return "None was lost and none was run twice by attempts that count."


if __name__ == "__main__":
    sys.exit(main())
