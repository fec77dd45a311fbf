"""One scene on every store. PostgreSQL's tables are shared by all cases: each has an application of its own."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from stores.ledger.scene import Scene, Worker
from tenure.core.records import Instant
from tenure.stores import Store, store_for
from tenure.stores.ledger import Ledger

STORES = ("memory", "sqlite", "postgres")


@pytest.fixture(scope="session")
def ledger_database(postgres) -> Iterator[str]:
    url = postgres.create_database()
    store_for(url).prepare()
    yield url
    postgres.drop_database(url)


def _store(kind: str, request: pytest.FixtureRequest, folder: Path) -> Store:
    match kind:
        case "memory":
            url = f"memory://{uuid4()}"
        case "sqlite":
            url = f"sqlite:///{folder / 'jobs.db'}"
        case _:
            url = request.getfixturevalue("ledger_database")
    store = store_for(url)
    store.prepare()
    return store


@pytest.fixture(params=STORES)
def store(request, tmp_path) -> Store:
    return _store(request.param, request, tmp_path)


@pytest.fixture(params=STORES[1:])
def real_store(request, tmp_path) -> Store:
    """A store with real locks."""
    return _store(request.param, request, tmp_path)


@pytest.fixture
def scene(store) -> Iterator[Scene]:
    opened = Scene(store)
    yield opened
    opened.close()


@pytest.fixture
def real_scene(real_store) -> Iterator[Scene]:
    opened = Scene(real_store)
    yield opened
    opened.close()


@pytest.fixture
def ledger(scene) -> Ledger:
    return scene.ledger


@pytest.fixture
def worker(scene) -> Worker:
    return scene.worker()


@pytest.fixture
def about_now(ledger) -> Callable[[Instant | None], bool]:
    """Whether an instant lies within the last few seconds by the ledger's clock."""

    def check(instant: Instant | None) -> bool:
        return instant is not None and ledger.now() - 30 <= instant <= ledger.now()

    return check


@pytest.fixture
def forget_node(scene) -> Callable[[Worker], None]:
    """Make the row of a node vanish, as a restored backup does."""

    def forget(worker: Worker) -> None:
        session = worker.session
        match scene.store.shown.partition(":")[0]:
            case "memory":
                del session._db.nodes[worker.id]  # type: ignore[attr-defined]
            case "sqlite":
                with sqlite3.connect(scene.store.shown.removeprefix("sqlite:///")) as file:
                    file.execute("DELETE FROM tenure_node WHERE id = ?", (worker.id,))
                file.close()
            case _:
                with psycopg.connect(scene.store.shown, autocommit=True) as server:
                    server.execute("DELETE FROM tenure.node WHERE id = %s", (worker.id,))

    return forget
