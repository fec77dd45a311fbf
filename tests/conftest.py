"""Fixtures on real servers. Each test gets a database of its own; nothing that it starts outlives it."""

import gc
import logging
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness import processes
from harness.clocks import ShiftedClock
from harness.components import need
from harness.pgbouncer import PgBouncer
from harness.postgres import Postgres, installed
from harness.proxy import Proxy
from tenure import Election, Scheduler
from tenure.cli import main
from tenure.stores import store_for

BEATING = ("tenure heartbeat", "tenure advisory loop", "tenure callbacks")
"""Threads that an election or a scheduler has as long as it runs."""
DATABASES = {"sqlite": "sqlite_url", "postgres": "database"}
"""Each kind, and the fixture that makes one."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell; workers would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # under nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The run's shared server. Do not crash, freeze or reconfigure it: take `own_postgres` for that."""
    need("postgres")
    with Postgres() as server:
        yield server


@pytest.fixture(scope="session", params=sorted({"wheel", *installed()}, reverse=True))
def each_postgres(request: pytest.FixtureRequest) -> Iterator[Postgres]:
    """As `postgres`, once for every version that is installed."""
    if request.param == "wheel":
        yield request.getfixturevalue("postgres")
        return
    with Postgres(request.param) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_versions(postgres: Postgres) -> Iterator[Callable[[str], Postgres]]:
    """A running server of any installed version, shared by the whole run."""
    running = {"wheel": postgres}

    def server(version: str) -> Postgres:
        if version not in running:
            running[version] = Postgres(version).start()
        return running[version]

    yield server
    for version, started in running.items():
        if version != "wheel":
            started.close()


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """A server for this test alone, to crash, freeze and promote."""
    need("postgres")
    with Postgres() as server:
        yield server


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    """The URL of a fresh database."""
    url = postgres.create_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture(scope="module")
def prepared_database(postgres: Postgres) -> Iterator[str]:
    """One database for a whole module, with tenure in it: each of its tests needs an election or an application of its
    own."""
    url = postgres.create_database()
    store_for(url).prepare()
    yield url
    postgres.drop_database(url)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'tenure.db'}"


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest) -> str:
    """A fresh database of each kind."""
    return str(request.getfixturevalue(DATABASES[request.param]))


@pytest.fixture(params=["memory", *DATABASES])
def any_url(request: pytest.FixtureRequest) -> str:
    """As `url`, and in memory."""
    in_memory = request.param == "memory"
    return f"memory://{uuid.uuid4()}" if in_memory else str(request.getfixturevalue(DATABASES[request.param]))


@pytest.fixture
def tenure(url: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a verb in this process: its exit code, what it printed, and what it said beside that."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main([words[0], "--url", url, *words[1:]])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def pgbouncer(postgres: Postgres) -> Iterator[PgBouncer]:
    """A pooler in transaction mode before the shared server; any database goes through it."""
    need("pgbouncer")
    with PgBouncer(postgres) as bouncer:
        yield bouncer


@pytest.fixture
def proxy(postgres: Postgres) -> Iterator[Proxy]:
    """A breakable network before the shared server."""
    with Proxy(postgres.port) as network:
        yield network


@pytest.fixture
def shifted_clock() -> ShiftedClock:
    """Clocks to give to a worker or a server as `env=shifted_clock.env`."""
    need("gcc")
    return ShiftedClock()


@pytest.fixture(autouse=True)
def no_worker_outlives_its_test() -> Iterator[None]:
    yield
    processes.end_all()


@pytest.fixture(autouse=True)
def nothing_beats_on() -> Iterator[None]:
    """What a test left running would write into the logs of the next ones, and draw their lots: it is stopped, and
    named."""
    yield
    left = [thread for thread in threading.enumerate() if thread.name.startswith(BEATING)]
    if left:
        for running in [thing for thing in gc.get_objects() if isinstance(thing, (Scheduler, Election))]:
            running.stop(1)
        for thread in left:
            thread.join(2)
        pytest.fail(f"left running: {', '.join(thread.name for thread in left)}")


@pytest.fixture(autouse=True)
def our_logs_are_heard() -> None:
    """A framework in an earlier test may have switched off all loggers that it did not know, their way up, or warnings
    altogether."""
    ours = logging.getLogger("tenure")
    ours.disabled, ours.propagate = False, True
    ours.setLevel(logging.NOTSET)
    logging.getLogger().setLevel(logging.WARNING)
    logging.disable(logging.NOTSET)


@pytest.fixture
def run_together() -> Callable[[int, Callable[[int], object]], None]:
    """Call a function in so many threads at the same moment; the first exception is raised."""

    def run(count: int, what: Callable[[int], object]) -> None:
        gate = threading.Barrier(count)

        def one(number: int) -> None:
            gate.wait()
            what(number)

        with ThreadPoolExecutor(count) as pool:
            list(pool.map(one, range(count)))

    return run
