"""Guards: who is first."""

import sqlite3
from contextlib import closing
from uuid import uuid4

import psycopg
import pytest

from tenure.stores.memory.store import MemoryStore
from tenure.stores.sqlite.store import SqliteStore


@pytest.fixture
def name():
    return f"guard {uuid4()}"


def test_the_first_passes_and_nobody_after(ledger, name):
    assert ledger.guard(name, "k", None, "one")
    assert not ledger.guard(name, "k", None, "one")
    assert not ledger.guard(name, "k", None, "another")


def test_names_and_keys_are_apart(ledger, name):
    assert ledger.guard(name, "k", None, "one")
    assert ledger.guard(name, "other", None, "one")
    assert ledger.guard(name + " too", "k", None, "one")


def test_within_a_span_one_passes(ledger, name):
    assert ledger.guard(name, "k", 60.0, "one")
    assert not ledger.guard(name, "k", 60.0, "another")
    assert ledger.guard(name, "k", 0.0, "another"), "the last is at least that long ago"
    assert not ledger.guard(name, "k", 60.0, "one")


def test_a_refusal_does_not_begin_the_span_anew(ledger, scene, name):
    assert ledger.guard(name, "k", 0.2, "one")
    began = ledger.now()
    while ledger.now() < began + 0.2:
        ledger.guard(name, "k", 60.0, "another")
    assert ledger.guard(name, "k", 0.2, "one")


def test_what_failed_may_be_tried_again(ledger, name):
    assert ledger.guard(name, "k", None, "one")
    ledger.unguard(name, "k", "one")
    assert ledger.guard(name, "k", None, "another")


def test_taking_back_what_was_not_given(ledger, name):
    ledger.unguard(name, "k", "one")
    assert ledger.guard(name, "k", None, "one")


def test_the_pass_of_another_is_not_taken_back(ledger, name):
    assert ledger.guard(name, "k", None, "one")
    ledger.unguard(name, "k", "another")
    assert not ledger.guard(name, "k", None, "another")


def age(scene, name, days):
    """Let the spans of these guards have been over for so long."""
    if isinstance(scene.store, MemoryStore):
        guards = scene.ledger._tables.guards
        for key, (at, by, until) in list(guards.items()):
            if key[0] == name and until is not None:
                guards[key] = at, by, scene.ledger.now() - days * 86400
    elif isinstance(scene.store, SqliteStore):
        until = round((scene.ledger.now() - days * 86400) * 1_000_000)
        with closing(sqlite3.connect(scene.store.path, timeout=5)) as file, file:
            file.execute("UPDATE tenure_guard SET until = ? WHERE name = ? AND until IS NOT NULL", (until, name))
    else:
        with psycopg.connect(scene.store._url.conninfo) as connection:
            connection.execute(
                "UPDATE tenure.guard SET until = now() - %s * interval '1 day' WHERE name = %s AND until IS NOT NULL",
                (days, name),
            )


def test_a_guard_is_removed_a_day_after_its_span(ledger, scene, name):
    assert ledger.guard(name, "k", 60.0, "one")
    scene.session.sweep()
    age(scene, name, 0.9)
    scene.session.sweep()
    assert not ledger.guard(name, "k", 3600.0, "another"), "it is still there"
    age(scene, name, 1.1)
    scene.session.sweep()
    assert ledger.guard(name, "k", 3600.0, "another"), "nothing is left of it"


@pytest.mark.parametrize("later", [[], [0.0], [0.0, 0.0]])
def test_a_guard_without_a_span_stays_for_ever(ledger, scene, name, later):
    assert ledger.guard(name, "k", None, "one")
    for within in later:
        assert ledger.guard(name, "k", within, "another")
    age(scene, name, 400)
    scene.session.sweep()
    assert not ledger.guard(name, "k", None, "one")
