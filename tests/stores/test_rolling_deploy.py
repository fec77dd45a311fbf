"""Two releases share the tables while workers are replaced one by one: docs/internals/schema.md.

The next release is a copy of this one with a migration, a function under a new name, and a statement that calls it.
"""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import uuid
from contextlib import closing
from importlib import resources
from pathlib import Path

import psycopg
import pytest

from harness.processes import SUPPORT, TESTS
from harness.scenes import APPLICATION, stage
from tenure import Election, __version__
from tenure.cli import main
from tenure.errors import SchemaOutdated, SchemaTooNew
from tenure.stores import store_for

JOBS = [
    {"name": "allow", "every": 1, "copies": 20, "for": 0.1, "policy": {"overlap": "allow"}},
    {"name": "skip", "every": 1, "copies": 10, "for": 0.1},
]
PRIORITY = {
    "postgres": "".join(
        f"ALTER TABLE {{schema}}.{table} ADD COLUMN priority int NOT NULL DEFAULT 0;\n"
        for table in ("run", "job", "node", "election", "node_facts", "lane")
    ),
    "sqlite": "".join(
        f"ALTER TABLE tenure_{table} ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;\n"
        for table in ("run", "job", "node", "election", "node_facts", "lane")
    ),
}


@pytest.fixture
def make(tmp_path):
    with stage(tmp_path) as make:
        yield make


class Release:
    """A copy of the library, to be changed."""

    def __init__(self, folder: Path) -> None:
        self._package = folder / "tenure"
        shutil.copytree(str(resources.files("tenure")), self._package, ignore=shutil.ignore_patterns("__pycache__"))
        self.env = {"PYTHONPATH": os.pathsep.join([str(folder), str(SUPPORT), str(TESTS)])}

    def migration(self, number: int, **stores: str) -> None:
        for store, text in stores.items():
            (self._package / f"stores/{store}/sql/migrations/{number:03}_next.sql").write_text(text)

    def change(self, file: str, pattern: str, by: str) -> None:
        path = self._package / file
        text, count = re.subn(pattern, by, path.read_text(), flags=re.DOTALL)
        assert count == 1, (file, pattern)
        path.write_text(text)

    def tenure(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tenure", *words]
        return subprocess.run(
            command, env={**os.environ, **self.env}, capture_output=True, text=True, check=False, timeout=60
        )


@pytest.fixture
def following(tmp_path):
    """The next release: it adds columns, and claims by a function with one argument more."""
    release = Release(tmp_path / "next")
    release.change("util/version.py", r'__version__ = "[^"]+"', '__version__ = "next"')
    release.migration(5, **PRIORITY)
    claims = "stores/postgres/sql/functions/claims.sql"
    release.change(
        claims,
        r"(CREATE OR REPLACE FUNCTION \{schema\}\.)claim_runs(\(\n)(.*\Z)",
        r"\1claim_runs\2\3\n\1claim_runs_v2(of_priority int,\n\3",
    )
    release.change("stores/postgres/sql/runs.sql", r"claim_runs\(", r"claim_runs_v2(0, ")
    return release


@pytest.fixture
def after_next(following):
    """The release after that: nothing is left of the old function, and of those who call it."""
    following.migration(
        6,
        postgres="-- oldest: 5\nDROP FUNCTION {schema}.claim_runs;\nALTER TABLE {schema}.run DROP COLUMN priority;\n",
        sqlite="-- oldest: 5\nALTER TABLE tenure_run DROP COLUMN priority;\n",
    )
    following.change(
        "stores/postgres/sql/functions/claims.sql",
        r"CREATE OR REPLACE FUNCTION \{schema\}\.claim_runs\(\n.*(?=\nCREATE OR REPLACE FUNCTION \{schema\}\.claim_runs_v2)",
        "",
    )
    return following


def apply(url: str, script: str) -> None:
    """As an administrator does with what was printed."""
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=10)
        connection.executescript(script)
        connection.close()
        return
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(script)


def goes_on(scene, *workers) -> None:
    """Wait until each of these has run something that was due after now."""
    since, labels = scene.now(), {worker.label for worker in workers}
    scene.eventually(lambda: labels <= {line.label for line in scene.lines if line.due > since and line.what == "end"})


def deploy(scene, old, following, **more) -> None:
    """Start workers of the next release beside the old ones, then stop these."""
    new = [scene.add(env=following.env, **more) for _ in old]
    goes_on(scene, *old, *new)
    with scene.scheduler._service.ledger() as ledger:
        assert sorted(node.library for node in ledger.nodes(APPLICATION)) == [
            *(__version__ for _ in old),
            *("next" for _ in new),
        ]
    for worker in old:
        scene.retire(worker)
    goes_on(scene, *new)


def each_due_time_ran_once(scene, since: float) -> None:
    verdict = scene.verify(since, scene.now())
    print(verdict)
    assert verdict.states["ran"] > 100
    assert scene.query(f"SELECT version, oldest FROM {scene.prefix}schema_version") == [(5, 4)]


@pytest.mark.timeout(120)
def test_the_first_new_worker_migrates_while_old_ones_run(url, make, following):
    scene = make(url, jobs=JOBS, ttl=2.5, capacity=20).start(2)
    scene.planner()
    since, old = scene.now(), list(scene.workers)
    deploy(scene, old, following)
    each_due_time_ran_once(scene, since)


@pytest.mark.timeout(120)
def test_new_workers_refuse_to_start_before_the_migration_and_old_ones_go_on(url, make, following):
    scene = make(url, jobs=JOBS, ttl=2.5, capacity=20, migrate=False)
    assert main(["migrate", "--url", url]) == 0
    scene.start(2).planner()
    since, old = scene.now(), list(scene.workers)
    early = scene.add(wait=False, env=following.env)
    assert early.wait(within=30) != 0
    refusal = (
        r"SchemaOutdated: .* is at version 4, this library needs version 5\. Run `tenure migrate`.*--print --from 4"
    )
    assert re.search(refusal, early.story())
    goes_on(scene, *old)
    assert following.tenure("migrate", "--url", url).returncode == 0
    goes_on(scene, *old)
    deploy(scene, old, following)
    each_due_time_ran_once(scene, since)


@pytest.mark.timeout(120)
def test_nodes_of_a_role_without_rights_on_the_schema(database, postgres, make, following):
    role = f"web_{uuid.uuid4().hex[:8]}"
    name = database.rpartition("/")[2]
    scene = make(database, jobs=JOBS, ttl=2.5, capacity=20)
    postgres.execute(f"CREATE ROLE {role} LOGIN")
    try:
        store_for(database).prepare()
        apply(database, store_for(database).grants(role))
        scene.make_table()
        apply(database, f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
        apply(database, f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}")
        web = {"url": database.replace("postgres@", f"{role}@")}
        scene.start(2, **web).planner()
        since, old = scene.now(), list(scene.workers)
        early = scene.add(wait=False, env=following.env, **web)
        assert early.wait(within=30) != 0
        assert re.search(
            r"SchemaOutdated: .* may not use or migrate .*`tenure migrate --print --from 4`", early.story()
        )
        assert following.tenure("migrate", "--url", database).returncode == 0
        goes_on(scene, *old)  # functions that are replaced keep their grants
        apply(database, following.tenure("migrate", "--url", database, "--grants", role).stdout)
        deploy(scene, old, following, **web)
        each_due_time_ran_once(scene, since)
    finally:
        scene.close()
        postgres.execute(f"DROP OWNED BY {role}", dbname=name)
        postgres.execute(f"DROP ROLE {role}")


def test_a_printed_upgrade_can_be_applied_by_hand(url, following):
    assert main(["migrate", "--url", url]) == 0
    apply(url, following.tenure("migrate", "--print", "--from", "4", "--url", url).stdout)
    assert following.tenure("migrate", "--url", url).returncode == 0
    assert re.search(r"schema +.* ha(s|ve) version 5\n", following.tenure("doctor", "--url", url).stdout)
    with Election(url, "x", migrate=False) as election:
        assert election.wait_until_leading(10)


def test_a_transaction_that_keeps_the_tables_is_named(database, following):
    store_for(database).prepare()
    with psycopg.connect(database) as busy:
        busy.execute("SELECT FROM tenure.run")
        done = following.tenure("migrate", "--url", database)
        assert (done.returncode, done.stdout) == (3, "")
        assert f"role postgres (server process {busy.info.backend_pid})" in done.stderr
    assert following.tenure("migrate", "--url", database).returncode == 0


def test_a_column_that_is_gone_is_told_from_a_database_that_is_away(url):
    with Election(url, "x") as election:
        assert election.wait_until_leading(10)
    table = "tenure.term" if url.startswith("postgresql") else "tenure_term"
    apply(url, f"ALTER TABLE {table} RENAME COLUMN gap TO pause")
    with (
        closing(store_for(url).session("test", 5.0)) as session,
        pytest.raises(SchemaOutdated, match="`tenure migrate`"),
    ):
        session.terms("x", 10)


@pytest.mark.timeout(120)
def test_a_release_that_is_cut_off_says_so_and_no_due_time_is_lost(url, make, after_next):
    scene = make(url, jobs=JOBS, ttl=2.5, capacity=20).start(1)
    scene.planner()
    since, old = scene.now(), scene.workers[0]
    goes_on(scene, old)
    assert after_next.tenure("migrate", "--url", url).returncode == 0
    refusal = r"has version 6 and needs a library that knows version 5; this one knows 4\. Upgrade tenure here"
    with pytest.raises(SchemaTooNew, match=refusal):
        Election(url, "x").start()
    if url.startswith("postgresql"):  # the function by which it claims is gone
        scene.eventually(lambda: re.search(refusal, old.story()))
    new = scene.add(env=after_next.env)
    goes_on(scene, new)
    scene.retire(old)
    until = scene.now()
    goes_on(scene, new)
    scene.eventually(lambda: not scene.judge(since, until).problems)
