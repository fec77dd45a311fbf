"""Hurt real clusters of schedulers for a while, and write down what became of every due time.

`python3 dev.py chaos --minutes 10` does it for ten minutes.

The plays are those of the tests (tests/support/harness/plays.py) and of faults.py, each repeated until its share of the
time is over, in rounds with seeds of their own. The report goes to docs/proof/scheduler-chaos.md, with a picture beside
it; a broken promise is told there, and on the terminal with everything that the workers said and the command that plays
that round again. Ctrl-C ends it with a report of what was seen.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "tests/support"))

from chaos import picture, report  # noqa: E402 - the tests are no package
from chaos.faults import PLAYS as FAULTS  # noqa: E402
from chaos.progress import Progress  # noqa: E402
from chaos.report import Failure, Occasion, Result  # noqa: E402
from harness import plays, plays_kinds, processes, scratch  # noqa: E402
from harness.clocks import ShiftedClock, available  # noqa: E402
from harness.postgres import Postgres  # noqa: E402
from harness.scenes import Broken, stage  # noqa: E402

REPORT = ROOT / "docs" / "proof" / "scheduler-chaos.md"
TICK = {"name": "tick", "every": 0.1, "copies": 3, "policy": {"overlap": "allow", "missed": "all", "max_lost": 10}}
PLACES = 2
ROUND = 60.0
"""Seconds that a round takes at most, about: so much is lost by Ctrl-C."""
STOPPED = 130
"""The exit status of what Ctrl-C ended."""
ENOUGH = 2
"""So many broken rounds of a play are enough."""

Play = Callable[[Result, str, float, random.Random], None]
"""Plays on a store for so many seconds. Its docstring is 'Title: setting'."""


def storm(result: Result, store: str, seconds: float, dice: random.Random) -> None:
    """Kill -9, freeze and thaw beyond the ttl, rolling restart, restart of the database: 200 jobs, each due every 2 s,
    4 workers, ttl 2.5 s"""
    with opened(store) as (url, server), stage(scratch.new_folder("chaos")) as make:
        scene = make(url, jobs=plays.MANY, ttl=2.5).start(4)
        result.take(scene, plays.storm(scene, seconds, dice, server))


def cuts(result: Result, store: str, seconds: float, dice: random.Random) -> None:
    """The network of each worker breaks in all ways, shorter and longer than the ttl: 200 jobs, each due every 2 s, 3
    workers, ttl 3 s"""
    with opened(store) as (url, server), stage(scratch.new_folder("chaos")) as make:
        assert server is not None
        scene = make(url, jobs=plays.MANY, ttl=3)
        result.take(scene, plays.cuts(scene, server, seconds, dice))


def succession(result: Result, store: str, seconds: float, dice: random.Random) -> None:
    """Kill -9 of the planner, at random moments: 3 jobs every 100 ms, 3 workers, ttl 30 s"""
    with opened(store) as (url, _), stage(scratch.new_folder("chaos")) as make:
        scene = make(url, jobs=[TICK], ttl=30).start(3)
        result.take(scene, plays.succession(scene, max(int(seconds), 20), dice))


def steps(result: Result, store: str, _seconds: float, _dice: random.Random) -> None:
    """The planner dies before and after a plan's commit, after a claim, before and after a completion: 3 jobs every 100
    ms, 3 workers, ttl 30 s"""
    with opened(store) as (url, _), stage(scratch.new_folder("chaos")) as make:
        scene = make(url, jobs=[TICK], ttl=30).start(3)
        result.take(scene, plays.steps(scene))


def effects(result: Result, store: str, _seconds: float, _dice: random.Random) -> None:
    """`run.complete(conn)`: dead between work and commit and between commit and acknowledgement; zombies that swallow
    the refusal"""
    with opened(store) as (url, _), stage(scratch.new_folder("chaos")) as make:
        scene = make(url, jobs=plays.EFFECT, ttl=2.5).start(2)
        found = plays.effects(scene, 6, 80)
        result.take(scene)
        result.remarks += found
        wrong = found["succeeded"] - found["effects made 1 times"] + found["without effect"]
        assert not wrong, f"{wrong} effects were not made once: {found}\n{scene.stories()}"


def places(result: Result, store: str, _seconds: float, _dice: random.Random) -> None:
    """`max_running=2`, claimed by six workers at the same instants, one of them frozen meanwhile"""
    with opened(store) as (url, _), stage(scratch.new_folder("chaos")) as make:
        policy = {"overlap": "allow", "max_running": PLACES, "max_lost": 10}
        jobs = [{"name": "narrow", "every": 0.4, "copies": 5, "body": "note", "for": 0.6, "policy": policy}]
        scene = make(url, jobs=jobs, ttl=2, capacity=6).start(6)
        most = plays.places(scene, 150, PLACES, frozen=True)
        result.take(scene)
        result.remarks["claimed at once"] += 150
        result.remarks["most of a job at once"] = max(result.remarks["most of a job at once"], *most.values())


def kinds(result: Result, store: str, seconds: float, dice: random.Random) -> None:
    """Kill -9, freeze and replacement of workers, while runs are requested for later and in slots, and are retried: 18
    jobs that follow 6 others, 3 that look for something, a pool, 3 workers, ttl 2.5 s"""
    with opened(store) as (url, _), stage(scratch.new_folder("chaos")) as make:
        scene = make(url, jobs=plays_kinds.KINDS, ttl=2.5).start(3)
        found = plays_kinds.kinds(scene, seconds, dice)
        result.take(scene)
        most = {name: found.pop(name) for name in list(found) if name.startswith("most ")}
        result.remarks += found
        result.remarks |= Counter(most)


def jumps(result: Result, _store: str, _seconds: float, dice: random.Random) -> None:
    """The clock of the database jumps by a year, or by 65 s, for ten seconds: 3 jobs every 100 ms, 2 workers"""
    clock, jump = ShiftedClock(), dice.choice((plays.YEAR, -plays.YEAR, 65.0))
    with Postgres(env=clock.env) as server, stage(scratch.new_folder("chaos")) as make:
        scene = make(server.create_database(), jobs=[TICK], ttl=10)
        for verdict in plays.jumps([(scene, clock, jump)], believed=11.0, lasts=10.0, dice=dice):
            result.take(scene, verdict)
        scene.close()


PLAYS: list[tuple[Play, str, float]] = [
    (storm, "PostgreSQL", 0.22),
    (storm, "SQLite", 0.18),
    (cuts, "PostgreSQL", 0.08),
    (succession, "PostgreSQL", 0.2),
    (succession, "SQLite", 0.05),
    (steps, "PostgreSQL", 0.03),
    (steps, "SQLite", 0.03),
    (effects, "PostgreSQL", 0.1),
    (effects, "SQLite", 0.05),
    (places, "PostgreSQL", 0.05),
    (places, "SQLite", 0.03),
    (kinds, "PostgreSQL", 0.1),
    (kinds, "SQLite", 0.05),
    (jumps, "PostgreSQL", 0.06),
    *FAULTS,
]
"""What, where, and its share of the time."""

PICTURED = {"storm", "cuts", "succession", "outages"}
"""What the picture shows, if it was played."""


@contextmanager
def opened(store: str) -> Iterator[tuple[str, Postgres | None]]:
    """The URL of a new database, and its server."""
    if store == "SQLite":
        yield f"sqlite:///{scratch.new_folder('file') / 'tenure.db'}", None
        return
    with Postgres() as server:
        yield server.create_database(), server


def main() -> int:
    options = parsed()
    chosen = [
        (play, store, share)
        for play, store, share in PLAYS
        if options.only in {None, play.__name__} and options.store in {None, store}
    ]
    if not available():
        print("gcc is missing: the play that shifts clocks is left out")
        chosen = [entry for entry in chosen if entry[0] is not jumps]
    began, load = time.monotonic(), os.getloadavg()[0]
    results: list[Result] = []
    with Progress(results) as progress:
        interrupted = played(chosen, options, results, progress)
    minutes = (time.monotonic() - began) / 60
    occasion = Occasion(command(options), minutes, options.seed, load, interrupted)
    path = options.report or (None if options.only else REPORT)
    if path is not None:
        written(path, results, occasion)
    else:
        print("\n".join(report.table(report.kinds_of(results))))
    print(f"\n{report.verdict(results)}" + (f" The report is in {path}." if path else ""))
    return int(any(result.failures for result in results)) or (STOPPED if interrupted else 0)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long, about (10)")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="for the same order of faults again")
    names = sorted({play.__name__ for play, *_ in PLAYS})
    parser.add_argument("--only", choices=names, metavar="PLAY", help=f"one play alone: {', '.join(names)}")
    parser.add_argument("--store", choices=sorted({store for _, store, _ in PLAYS}), help="one store alone")
    where = REPORT.relative_to(ROOT)
    parser.add_argument("--report", type=Path, help=f"where to write it ({where}; with --only nowhere)")
    return parser.parse_args()


def command(options: argparse.Namespace) -> str:
    """What was typed, with the seed."""
    words = ["python3 dev.py chaos", f"--minutes {options.minutes:g}", f"--seed {options.seed}"]
    words += [f"--{name} {value}" for name in ("only", "store") if (value := getattr(options, name))]
    return " ".join(words)


def played(
    chosen: list[tuple[Play, str, float]], options: argparse.Namespace, results: list[Result], progress: Progress
) -> bool:
    """Play them all. Whether somebody interrupted."""
    interrupted = Interrupted()
    whole = sum(share for *_, share in chosen)
    left = options.minutes * 60.0
    for play, store, share in chosen:
        title = " ".join((play.__doc__ or "").split())
        result = Result(play.__name__, title, store)
        results.append(result)
        seconds = options.minutes * 60 * share / whole
        began = time.monotonic()
        progress.next(result.name, left)
        left -= seconds
        while not interrupted.so and len(result.failures) < ENOUGH:
            remaining = seconds - (time.monotonic() - began)
            if result.rounds and remaining < ROUND / 4:
                break
            one_round(play, result, min(ROUND, max(remaining, 0.0)), options.seed + result.rounds, interrupted)
        result.took = time.monotonic() - began
        progress.tell(f"{result.name}:", *report.told(result))
        if interrupted.so:
            return True
    return False


def one_round(play: Play, result: Result, seconds: float, seed: int, interrupted: Interrupted) -> None:
    try:
        play(result, result.store, seconds, random.Random(seed))
    except (Exception, KeyboardInterrupt) as error:  # the other plays are still worth playing
        if interrupted.so:  # whatever failed failed because of that
            result.rounds -= 1
            return
        if isinstance(error, Broken):
            result.take(error.scene, error.verdict)
        traceback.print_exc()
        again = f"python3 dev.py chaos --only {result.play} --store {result.store} --seed {seed} --minutes {max(seconds, 1) / 60:.2g}"
        print(f"{result.name} broke a promise with seed {seed}. Again with: {again}", flush=True)
        what = f"{type(error).__name__}: {error}".partition("\nworker ")[0][:2000]
        result.failures.append(Failure(what, again))
    finally:
        result.rounds += 1
        processes.end_all()


class Interrupted:
    """Whether somebody pressed Ctrl-C, or ended us as a supervisor does."""

    def __init__(self) -> None:
        self.so = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._heard)

    def _heard(self, *_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        self.so = True
        raise KeyboardInterrupt


def written(path: Path, results: list[Result], occasion: Occasion) -> None:
    """The page, and the picture beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shown = sorted(results, key=lambda result: result.play not in PICTURED)
    films = [result.film for result in shown if result.film is not None]
    drawn = path.with_suffix(".svg") if films else None
    if drawn is not None:
        drawn.write_text(picture.draw(films))
    path.write_text(report.page(results, occasion, drawn, path.parent))


if __name__ == "__main__":
    sys.exit(main())
