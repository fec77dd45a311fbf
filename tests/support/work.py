"""The table that transactions under test write to, and what was committed there."""

# ruff: noqa: ANN001, ANN201 - untyped, as the tests that use it

import sqlite3
from contextlib import closing

import psycopg
import sqlalchemy

from callers import level

TABLE = "CREATE TABLE IF NOT EXISTS work (what text)"
NUMBERED = "ALTER TABLE work ADD COLUMN IF NOT EXISTS rowid bigint GENERATED ALWAYS AS IDENTITY"
"""SQLite numbers rows itself. On PostgreSQL, rows may take the place of older ones that autovacuum has removed."""
WORK = "INSERT INTO work (what) VALUES ('work')"
LATER = "INSERT INTO work (what) VALUES ('later')"


def lay(url):
    """The table, empty."""
    with closing(connected(url)) as connection, connection:
        connection.execute(TABLE)
        if not url.startswith("sqlite"):
            connection.execute(NUMBERED)
        connection.execute("DELETE FROM work")


def done(url):
    """What was committed, in order of insertion."""
    with closing(connected(url)) as connection:
        return [what for (what,) in connection.execute("SELECT what FROM work ORDER BY rowid")]


def connected(url, isolation=None):
    """As an application would be."""
    if url.startswith("sqlite"):
        return sqlite3.connect(path(url), timeout=0.05)
    connection = psycopg.connect(url)
    connection.isolation_level = level(isolation)
    return connection


def path(url):
    """Of a SQLite file."""
    return sqlalchemy.make_url(url).database


def limit(connection):
    """How long the server lets this transaction idle."""
    return connection.execute("SHOW idle_in_transaction_session_timeout").fetchone()[0]
