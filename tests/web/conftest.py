"""A small application with a page, on a real socket."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from harness.scratch import eventually
from harness.web import Browser, served
from tenure import Run, Scheduler
from tenure.web import web


def shop(url: str, **options: Any) -> Scheduler:
    """An application with one job of each kind."""
    options = {
        "ttl": 2,
        "heartbeat_every": 0.4,
        "attempt_timeout": 0.4,
        "tz": "Europe/Berlin",
        "label": "web-1",
        **options,
    }
    scheduler = Scheduler(url, application="shop", **options)

    @scheduler.every("1s")
    def sync_stock(run: Run) -> None:
        run.log("stock <read>")

    @scheduler.cron("30 2 * * *", retries=1)
    def nightly(run: Run, password: str = "hunter2") -> None:  # noqa: S107 - to be hidden
        """Due at night only."""

    @scheduler.job()
    def fails(run: Run) -> None:
        run.log("about to fail")
        raise RuntimeError("the shelf <b>broke</b>")

    @scheduler.job()
    def lasts(run: Run) -> None:
        run.wait(60)

    return scheduler


@pytest.fixture
def scheduler(sqlite_url: str) -> Iterator[Scheduler]:
    """The application, taking part."""
    with shop(sqlite_url) as started:
        yield started


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database in which the application has been defined, and in which no node is alive any more."""
    path = tmp_path_factory.mktemp("laid-out") / "tenure.db"
    with shop(f"sqlite:///{path}"):
        pass
    return path


@pytest.fixture
def resting(laid_out: Path, tmp_path: Path) -> Scheduler:
    """The same application in a copy of that database, taking no part: made in a moment."""
    path = tmp_path / "resting.db"
    with closing(sqlite3.connect(laid_out)) as source, closing(sqlite3.connect(path)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = WAL")
    return shop(f"sqlite:///{path}")


@pytest.fixture
def opened() -> Iterator[Callable[..., Browser]]:
    """Opens a page for a scheduler: `opened(scheduler, authorize=…)`."""
    with ExitStack() as stack:

        def opened(scheduler: Scheduler, **options: Any) -> Browser:
            options.setdefault("authorize", lambda _request: "act")
            base = stack.enter_context(served(web(scheduler, **options)))
            return stack.enter_context(Browser(base))

        yield opened


@pytest.fixture
def browser(scheduler: Scheduler, opened: Callable[..., Browser]) -> Browser:
    """A browser whose user may do everything."""
    return opened(scheduler)


@pytest.fixture
def ended() -> Callable[..., Any]:
    """Waits until a run is over."""

    def ended(scheduler: Scheduler, number: int) -> Any:
        def over() -> bool:
            return scheduler.find_run(number).state not in {"pending", "waiting", "running"}

        eventually(over, within=20)
        return scheduler.find_run(number)

    return ended
