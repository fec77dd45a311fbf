"""Changes of jobs commit, or do not, with the caller's own work: every driver, PostgreSQL and SQLite."""

import contextlib
import sqlite3
import uuid
from dataclasses import replace

import psycopg
import pytest
import sqlalchemy

import callers
from callers import ON_POSTGRES, ON_SQLITE, awaited, scene
from tenure import AsyncScheduler, Scheduler, every
from tenure.core.messages import Action, ActionQuery, JobChange, NewRun, RunQuery, RunRequest
from tenure.core.records import Change, JobSpec, Rules, RunState
from tenure.errors import ConfigurationError, JobExists, StoreError, UnknownJob, WrongDatabase
from tenure.stores import store_for
from tenure.transactions import job_changes

ASYNC_SQLITE = [callers.Aiosqlite, callers.AsyncAlchemySqlite, callers.AsyncAlchemySqliteSession]
SPAN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ACTION = Action("retry", "ops", "fixed", "a test")
RULES = Rules(missed="skip", retries=2, timeout=1.5, queue="slow")


@pytest.fixture(scope="module")
def shared(postgres):
    url = postgres.create_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE work (what text)")
    yield url
    postgres.drop_database(url)


@pytest.fixture(
    params=[*ON_POSTGRES, *(kind for kind in ON_SQLITE if kind not in ASYNC_SQLITE)], ids=lambda kind: kind.__name__
)
def client(request):
    if request.param in ON_POSTGRES:
        return request.param(request.getfixturevalue("shared"))
    url = request.getfixturevalue("sqlite_url")
    create_work(url)
    return request.param(url)


@pytest.fixture
def office(client):
    with Office(client.url) as office:
        yield office


class Office:
    """An application of its own, and what the ledger has of it."""

    def __init__(self, url):
        self.store = store_for(url)
        self.name = f"app {uuid.uuid4()}"

    def __enter__(self):
        self.store.prepare()
        self.session = self.store.session("test", 2.0)
        self.ledger = self.session.ledger
        return self

    def __exit__(self, *_):
        self.session.close()

    def adds(self, name="report"):
        due = self.ledger.now() + 3600.0
        spec = JobSpec(self.name, name, "send", '{"every": 60}', RULES, kwargs="""{"to": "a'b%%"}""", in_code=False)
        return JobChange(
            self.name, name, Change.ADDED, spec, due + 60.0, (NewRun(due, due, due + 60.0),), by="ops", why="because"
        )

    def jobs(self):
        return self.ledger.jobs(self.name)

    def run(self, run):
        (row,) = self.ledger.runs(RunQuery(self.name, id=run))
        return row

    def runs(self):
        return self.ledger.runs(RunQuery(self.name))


async def change(client, office, wanted):
    return await awaited(job_changes.change(client.connection, office.store, wanted))


def test_a_job_is_added_with_the_transaction(client, office):
    wanted = office.adds()

    async def body():
        async with client.transaction():
            row = await change(client, office, wanted)
            assert (row.spec, row.generation, row.state) == (wanted.spec, 1, "active")
            assert office.jobs() == [], "nobody else sees it before the commit"
        assert office.jobs() == [row]

    scene(client, body)
    (run,) = office.runs()
    assert (run.state, run.scheduled_for) == (RunState.PENDING, pytest.approx(wanted.runs[0].scheduled_for))
    assert [(c.what, c.by, c.why) for c in office.ledger.changes(office.name)] == [(Change.ADDED, "ops", "because")]


def test_a_job_is_not_added_when_the_transaction_is_rolled_back(client, office):
    async def body():
        with pytest.raises(ZeroDivisionError):
            async with client.transaction():
                await client.execute("INSERT INTO work (what) VALUES ('work')")
                assert await change(client, office, office.adds())
                raise ZeroDivisionError

    scene(client, body)
    assert office.jobs() == []


def test_what_cannot_be_changed_is_none_and_the_transaction_goes_on(client, office):
    office.ledger.change(office.adds())

    async def body():
        async with client.transaction():
            assert await change(client, office, office.adds()) is None
            assert await change(client, office, JobChange(office.name, "nobody", Change.REMOVED)) is None
            assert await change(client, office, JobChange(office.name, "report", Change.PAUSED, why="later"))

    scene(client, body)
    assert [(job.state, job.paused_why) for job in office.jobs()] == [("paused", "later")]


def test_a_run_is_asked_for_with_the_transaction(client, office):
    office.ledger.change(office.adds())

    async def body():
        async with client.transaction():
            asked = RunRequest(office.name, "report", "mine", None, kwargs='{"a": 1}', by="ops")
            row = await awaited(job_changes.request_run(client.connection, office.store, asked))
            assert (row.key, row.kind, row.state, row.by, row.kwargs) == (
                "mine",
                "manual",
                "pending",
                "ops",
                '{"a": 1}',
            )
            assert "mine" not in [run.key for run in office.runs()]
            unknown = RunRequest(office.name, "nobody", "mine", None)
            assert await awaited(job_changes.request_run(client.connection, office.store, unknown)) is None

    scene(client, body)
    assert "mine" in [run.key for run in office.runs()]


@pytest.mark.parametrize("commits", [True, False])
def test_a_run_is_retried_with_the_transaction(client, office, commits):
    office.ledger.change(office.adds())
    (failed,) = office.ledger.request_runs([RunRequest(office.name, "report", "mine", None)])
    office.ledger.cancel(failed.id, "ops", "")

    async def body():
        with contextlib.suppress(ZeroDivisionError):
            async with client.transaction():
                retry = job_changes.retry_run(
                    client.connection, office.store, failed.id, "ops", ACTION, traceparent=SPAN
                )
                row = await awaited(retry)
                assert (row.id, row.state, row.by) == (failed.id, "pending", "ops")
                again = await awaited(job_changes.retry_run(client.connection, office.store, failed.id, "ops", None))
                assert again is None, "it is open"
                assert office.run(failed.id).state is RunState.CANCELLED, "nobody else sees it before the commit"
                _ = commits or 1 / 0

    scene(client, body)
    assert office.run(failed.id).state is (RunState.PENDING if commits else RunState.CANCELLED)
    assert len(office.ledger.actions(ActionQuery(office.name))) == commits
    assert office.ledger.traceparents([failed.id]) == ({failed.id: SPAN} if commits else {})


def test_without_a_transaction_it_refuses(client, office):
    async def body():
        await awaited(client.autocommit())
        with pytest.raises(ConfigurationError, match=r"scheduler\.add\(conn=…\): .*(transaction|autocommit)"):
            await change(client, office, office.adds())

    scene(client, body)
    assert office.jobs() == []


@pytest.mark.parametrize("kind", ASYNC_SQLITE, ids=lambda kind: kind.__name__)
def test_asynchronous_sqlite_is_told_what_to_do(kind, sqlite_url):
    client = kind(sqlite_url)
    with Office(sqlite_url) as office:

        async def body():
            with pytest.raises(ConfigurationError, match="or leave `conn` out"):
                await change(client, office, office.adds())

        scene(client, body)


def test_a_connection_of_another_kind_of_database(shared, sqlite_url):
    with (
        Office(sqlite_url) as office,
        psycopg.connect(shared) as connection,
        pytest.raises(ConfigurationError, match=r"psycopg.*cannot change what sqlite:"),
    ):
        job_changes.change(connection, office.store, office.adds())


def test_another_file(tmp_path, sqlite_url):
    connection = sqlite3.connect(tmp_path / "another.db")
    with (
        Office(sqlite_url) as office,
        pytest.raises(WrongDatabase, match=r"another\.db.*Pass a connection to that file"),
    ):
        job_changes.change(connection, office.store, office.adds())
    connection.close()


def test_a_database_without_tenure(postgres, shared):
    url = postgres.create_database()
    with Office(shared) as office, psycopg.connect(url) as connection, pytest.raises(WrongDatabase, match="no tenure"):
        job_changes.change(connection, office.store, office.adds())
    postgres.drop_database(url)


def test_a_role_that_may_not(shared):
    role = f"modest_{uuid.uuid4().hex[:8]}"
    with Office(shared) as office, psycopg.connect(shared, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN")
        with (
            psycopg.connect(shared.replace("postgres@", f"{role}@")) as connection,
            pytest.raises(StoreError, match=r"scheduler\.add\(conn=…\): this role may not"),
        ):
            job_changes.change(connection, office.store, office.adds())
        owner.execute(f"DROP ROLE {role}")


def test_a_failed_change_on_sqlite_leaves_nothing_of_itself(sqlite_url):
    create_work(sqlite_url)
    with Office(sqlite_url) as office:
        connection = sqlite3.connect(office.store.path)
        with connection:
            connection.execute("INSERT INTO work (what) VALUES ('work')")
            broken = replace(office.adds(), runs=(NewRun(None, None, None),))  # fails at the last step
            with pytest.raises(TypeError):
                job_changes.change(connection, office.store, broken)
        assert connection.execute("SELECT what FROM work").fetchall() == [("work",)]
        connection.close()
        assert office.jobs() == []


def create_work(url):
    store_for(url).prepare()
    connection = sqlite3.connect(sqlalchemy.make_url(url).database)
    connection.execute("CREATE TABLE work (what text)")
    connection.close()


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("what", [Change.UPDATED, Change.PAUSED, Change.RESUMED, Change.REMOVED, "added again"])
def test_a_transaction_that_does_not_see_the_latest_runs_changes_no_job(shared, level, what):
    with Office(shared) as office:
        adds = office.adds()
        office.ledger.change(adds)
        if what == "added again":
            office.ledger.change(JobChange(office.name, "report", Change.REMOVED))
        before = office.ledger.jobs(office.name, removed=True)
        wanted = adds if what == "added again" else replace(adds, what=what)
        with psycopg.connect(shared) as connection:
            connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
            connection.execute("INSERT INTO work VALUES ('with it')")
            with pytest.raises(ConfigurationError, match="Write `SET TRANSACTION ISOLATION LEVEL READ COMMITTED`"):
                job_changes.change(connection, office.store, wanted)
            assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR
            connection.rollback()
        assert office.ledger.jobs(office.name, removed=True) == before


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_new_jobs_and_runs_come_at_any_level(shared, level):
    with Office(shared) as office, psycopg.connect(shared) as connection:
        connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        assert job_changes.change(connection, office.store, office.adds())
        assert job_changes.change(connection, office.store, office.adds()) is None, "it is there"
        assert job_changes.request_run(connection, office.store, RunRequest(office.name, "report", "mine", None))
        connection.commit()
        assert [job.state for job in office.jobs()] == ["active"]


def test_the_first_verb_of_a_process_works_inside_a_writing_transaction(sqlite_url):
    create_work(sqlite_url)
    first = Scheduler(sqlite_url, capacity=0)
    first.job(lambda: None, name="mail")
    first.start()
    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as connection:
        connection.execute("INSERT INTO work VALUES ('an order')")
        asked = Scheduler(sqlite_url).run_now("mail", conn=connection)
    connection.close()
    assert first.find_run(asked.id).state == "pending"


def test_verbs_see_what_their_transaction_did_before(client):
    threaded = Scheduler(client.url, application=f"app {uuid.uuid4()}")
    threaded.job(lambda: None, name="send")
    verbs = AsyncScheduler(threaded) if client.is_async else threaded

    async def body():
        async with client.transaction():
            conn = {"conn": client.connection}
            await awaited(verbs.add("send", every("1h"), name="report", **conn))
            with pytest.raises(JobExists):
                await awaited(verbs.add("send", every("1h"), name="report", **conn))
            asked = await awaited(verbs.run_now("report", **conn))
            later = await awaited(verbs.run_at("report", in_="5m", slot="a", **conn))
            assert await awaited(verbs.run_at("report", in_="9m", slot="a", **conn)) == later
            paused = await awaited(verbs.pause("report", why="first", **conn))
            updated = await awaited(verbs.update("report", trigger=every("2h"), **conn))
            assert (paused.generation, updated.generation, updated.state) == (2, 3, "paused")
            resumed = await awaited(verbs.resume("report", **conn))
            assert (resumed.state, resumed.trigger[:9]) == ("active", "Every 2 h")
            assert threaded_jobs() == [], "nobody else sees it before the commit"
        assert threaded_jobs() == ["report"]
        async with client.transaction():
            conn = {"conn": client.connection}
            assert (await awaited(verbs.remove("report", **conn))).state == "removed"
            with pytest.raises(UnknownJob, match="has no job 'report'"):
                await awaited(verbs.run_now("report", **conn))
        assert threaded.find_run(asked.id).state == "cancelled"
        async with client.transaction():
            conn = {"conn": client.connection}
            with pytest.raises(UnknownJob, match="was removed"):
                await awaited(verbs.retry(asked.id, **conn))

    def threaded_jobs():
        with threaded._service.ledger() as ledger:
            return [row.spec.name for row in ledger.jobs(threaded.application)]

    with threaded._service.ledger():
        pass  # the tables are there, as Django must not wait for them inside its transaction
    scene(client, body)
