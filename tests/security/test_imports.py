"""`tenure import apscheduler` turns rows of a foreign store into source code: a hostile row becomes none, and stops
none of the others."""

import ast
import pickle
import sqlite3
import subprocess
import sys
import traceback
from contextlib import closing
from datetime import UTC, datetime

import psycopg
import pytest
from apscheduler.triggers.interval import IntervalTrigger

from tenure.errors import ConfigurationError, TenureError
from tenure.importers import apscheduler, written

TABLE = "CREATE TABLE apscheduler_jobs (id varchar PRIMARY KEY, next_run_time float, job_state {})"


def job(**words):
    usual = {
        "version": 1,
        "id": "a job",
        "func": "mymod:work",
        "trigger": IntervalTrigger(seconds=60, timezone="UTC"),
        "args": (),
        "kwargs": {},
        "misfire_grace_time": 1,
        "coalesce": True,
        "max_instances": 1,
        "next_run_time": datetime.now(UTC),
    }
    return pickle.dumps({**usual, **words})


def doubled(times):
    """Few tuples, each twice in the next: written out, or hashed, they take for ever."""
    value = ("x",)
    for _ in range(times):
        value = (value, value)
    return value


def keyed(times):
    """A dict with such a tuple as its key. No honest program can make one: hashing it takes for ever."""
    body = pickle.dumps(doubled(times), protocol=2)[2:-1]
    return b"\x80\x02}" + body + b"K\x01s."


def circular():
    circle = []
    circle.append(circle)
    return pickle.dumps({"trigger": 1, "id": "x", "func": circle})


def left_out(folder, *rows):
    """Import these rows and a good one; check that what comes out is code of the good one alone."""
    path = folder / "jobs.sqlite"
    with closing(sqlite3.connect(path)) as file:
        file.execute(TABLE.format("blob"))
        for number, row in enumerate((*rows, job(id="good"))):
            file.execute("INSERT INTO apscheduler_jobs VALUES (?, 1.0, ?)", (f"row {number}", row))
        file.commit()
    imported = apscheduler.read(f"sqlite:///{path}")
    tree = ast.parse(written(imported))
    assert {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} == {"good"}
    return [left.why for left in imported.left]


HOSTILE = {
    "code in the module": job(func="os import path\nopen('x', 'w')\n''':path", args=("''' #",)),
    "a keyword as module": job(func="class:path"),
    "no function": job(func="mymod"),
    "code in the name of an argument": job(kwargs={"x=1) or open('x', 'w'); dict(y": 1}),
    "a keyword as argument": job(kwargs={"class": 1}),
    "code as a number": job(max_instances="1, x=__import__('os')"),
    "another number": job(func=5),
    "no grace": job(misfire_grace_time="x"),
    "no arguments": job(args=5),
    "a list for a dict": job(kwargs=[1]),
    "no trigger": job(trigger=None),
    "half a row": job()[:-20],
    "nothing": b"",
    "NULL": None,
    "text": "text",
    "a huge number": job(args=(10**1_000_000,)),
    "tuples in tuples": job(args=doubled(40)),
    "tuples in a name": job(id=doubled(40)),
    "tuples in a function": job(func=doubled(40)),
    "tuples in a key": keyed(40),
    "no func": pickle.dumps({"trigger": 1, "id": "x"}),
    "a circle": circular(),
}


@pytest.mark.parametrize("row", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_row_is_left_out_and_stops_no_other(tmp_path, row):
    assert len(left_out(tmp_path, row)) == 1


def test_what_is_odd_but_harmless_stays(tmp_path):
    path = tmp_path / 'a"""b\\.sqlite'
    with closing(sqlite3.connect(path)) as file:
        file.execute(TABLE.format("blob"))
        state = job(id="\x1b[31m\n\0import os\ud800", args=("\ud800", (1, (2, 3))), kwargs={"keys": {(1, 2): 3}})
        file.execute("INSERT INTO apscheduler_jobs VALUES ('x', 1.0, ?)", (state,))
        file.commit()
    imported = apscheduler.read(f"sqlite:///{path}")
    assert imported.left == ()
    code = written(imported)
    code.encode()
    tree = ast.parse(code)
    assert 'a"""b\\.sqlite' in ast.get_docstring(tree)
    assert "work('\\ud800', (1, (2, 3)), keys={(1, 2): 3})" in code


@pytest.fixture
def rows(database):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(TABLE.format("bytea"))
        connection.execute("INSERT INTO apscheduler_jobs VALUES ('a', 1.0, %s)", [job(id="good")])
        connection.execute("INSERT INTO apscheduler_jobs VALUES ('b', 1.0, NULL)")
    return database


def test_a_table_of_postgresql_is_read(rows):
    imported = apscheduler.read(rows)
    assert ([found.name for found in imported.found], len(imported.left)) == (["good"], 1)


def test_a_view_is_not_read_because_it_runs_functions_of_its_owner(rows):
    with psycopg.connect(rows, autocommit=True) as connection:
        connection.execute("CREATE VIEW looks_so AS SELECT * FROM apscheduler_jobs WHERE 1 / 0 = 1")
    with pytest.raises(ConfigurationError, match=r"looks_so.*it is not a table"):
        apscheduler.read(rows, table="looks_so")
    with pytest.raises(ConfigurationError, match="there is no such table"):
        apscheduler.read(rows, table="nothing")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://bob:S3cret%zz@127.0.0.1:1/x",
        "postgresql://bob@127.0.0.1:1/x?password=S3cret%zz",
        "host=127.0.0.1 port=1 password='S3cret",
    ],
)
def test_the_password_of_a_store_is_not_said(url):
    with pytest.raises(TenureError) as caught:
        apscheduler.read(url)
    assert "S3cret" not in "".join(traceback.format_exception(caught.value))


def test_the_verb_does_not_call_a_hostile_row_a_bug(tmp_path):
    left_out(tmp_path, job(args=5))
    done = subprocess.run(
        [sys.executable, "-m", "tenure", "import", "apscheduler", f"sqlite:///{tmp_path / 'jobs.sqlite'}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "def good" in done.stdout, "left out: row 0" in done.stderr) == (1, True, True)
