"""What a developer does on Windows, with as much of Python as there is: `on_windows.py URL WHAT`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import harness.windows  # noqa: F401 - before tenure
import tenure.testing
from tenure import Election, Scheduler
from tenure.cli import main
from tenure.errors import ConfigurationError

url, what = sys.argv[1:]


def starts() -> None:
    scheduler = Scheduler(url)

    @scheduler.every("1s")
    def tick() -> None: ...

    for start in (scheduler.start, scheduler.run, Election(url, "billing").start):
        try:
            start()
        except ConfigurationError as error:
            print(error)
    print("started:", scheduler.started)
    if not url.startswith("memory"):
        command = ["--", sys.executable, "-c", "pass"]
        print("lead", main(["lead", "x", "--url", url, *command]), "once", main(["once", "y", "--url", url, *command]))


def asks() -> None:
    scheduler = Scheduler(url, capacity=0)

    @scheduler.job
    def tick() -> None: ...

    scheduler.start()
    scheduler.run_now("tick")
    scheduler.pause("tick")
    with scheduler.once("warm") as first:
        print([run.state for run in scheduler.runs()], scheduler.find_job("tick").state, first)
    scheduler.stop()
    if not url.startswith("memory"):
        print(main(["runs", "--url", url]))


def in_virtual_time() -> None:
    scheduler = Scheduler(url)

    @scheduler.every("1h")
    def tick() -> None: ...

    @scheduler.every("1h")
    async def tock() -> None: ...

    with tenure.testing.virtual(scheduler, now="2026-11-15T00:30Z") as world:
        world.advance(by="3h")
        print(len(world.runs("tick")), len(world.runs("tock")))


{"starts": starts, "asks": asks, "virtual": in_virtual_time}[what]()
