"""What nodes write down about themselves: for people and for planning, never for a claim."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psycopg
import pytest

from harness.scratch import eventually
from stores.ledger.scene import Scene
from tenure.core.cluster import Acquire
from tenure.core.keys import planner_of
from tenure.core.records import NodeFacts
from tenure.core.unfit import UnfitArguments, read
from tenure.stores import store_for


def _facts(scene, worker, *functions, **more):
    given = {"queues": ("default", "slow"), "capacity": 4, "release": 20261116, "library": "0.1.0", "tzdata": "2026a",
             "host": "web", "signatures": "abc", "clock_offset": -1.5}  # fmt: skip
    return NodeFacts(worker.id, scene.application, frozenset(functions), **{**given, **more})


def test_the_facts_of_a_live_node_are_read_as_they_were_written(scene, ledger):
    one, two = scene.worker("b"), scene.worker("a")
    written = _facts(scene, one, "f", "g"), _facts(scene, two, "f", queues=None, capacity=0)
    for facts in written:
        ledger.write_facts(facts)
    found = ledger.nodes(scene.application)
    assert all(scene.start - 60 < facts.since < ledger.now() + 1 for facts in found)
    assert [replace(facts, since=0.0) for facts in found] == [
        replace(written[1], label="a"),
        replace(written[0], label="b"),
    ]
    assert ledger.nodes("another application") == []


UNFIT = (
    UnfitArguments("f", "f has no parameter 'id'", True, 2, ("a", "b"), 1, ((7, "c"),), (("id",), ())),
    UnfitArguments("g", "g takes id: str", False, 1, ("d",)),
)


def test_the_facts_tell_of_arguments_that_do_not_fit(scene, ledger, worker):
    ledger.write_facts(_facts(scene, worker, "f", unfit=UNFIT))
    assert ledger.nodes(scene.application)[0].unfit == UNFIT
    ledger.write_facts(_facts(scene, worker, "f"))
    assert ledger.nodes(scene.application)[0].unfit == ()


@pytest.mark.parametrize("text", ["", "[", "{}", "7", "[7]", '[{"function": "f"}]', '[{"function": []}, null]'])
def test_what_cannot_be_read_of_unfit_arguments_is_nothing(text):
    assert read(text) == ()


def test_what_a_node_writes_replaces_what_it_wrote_before(scene, ledger, worker):
    ledger.write_facts(_facts(scene, worker, "f"))
    ledger.write_facts(_facts(scene, worker, "f", "g", tzdata="2026b", queues=None))
    (facts,) = ledger.nodes(scene.application)
    assert (facts.functions, facts.tzdata, facts.queues) == ({"f", "g"}, "2026b", None)


def test_a_node_has_facts_for_each_application_that_it_serves(scene, ledger, worker):
    other = f"{scene.application} 2"
    ledger.write_facts(_facts(scene, worker, "f"))
    ledger.write_facts(replace(_facts(scene, worker, "g"), application=other))
    assert [facts.functions for facts in ledger.nodes(scene.application)] == [{"f"}]
    assert [facts.functions for facts in ledger.nodes(other)] == [{"g"}]
    ledger.remove_facts(worker.id, scene.application)
    assert ledger.nodes(scene.application) == []
    assert len(ledger.nodes(other)) == 1


def test_a_node_that_is_not_alive_has_no_facts(scene, ledger):
    left, dead, unknown = scene.worker("left"), scene.worker("dead"), scene.worker("unknown")
    for worker in (left, dead):
        ledger.write_facts(_facts(scene, worker, "f"))
    left.session.leave(left.id, "it stops")
    assert scene.session.declare(dead.id, None, "a test")
    assert ledger.nodes(scene.application) == []
    ledger.write_facts(_facts(scene, dead, "f"))
    ledger.write_facts(replace(_facts(scene, unknown, "f"), node="00000000-0000-0000-0000-000000000000"))
    assert ledger.nodes(scene.application) == []


def test_the_facts_say_who_plans(scene, ledger):
    one, two = scene.worker("one"), scene.worker("two")
    for worker in (one, two):
        ledger.write_facts(_facts(scene, worker, "f"))
    two.session.acquire(Acquire(two.id, planner_of(scene.application), fenced=True))
    assert [(facts.label, facts.plans) for facts in ledger.nodes(scene.application)] == [("one", False), ("two", True)]


def test_a_claim_does_not_look_at_facts(scene, ledger, worker):
    scene.add("job", 5.0)
    ledger.write_facts(_facts(scene, worker, "another", capacity=0, queues=()))
    assert [run.name for run in worker.claim().runs] == ["job"]


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_set_of_functions_is_written_once_and_goes_with_the_last_node_that_has_it(kind, database):
    store = store_for(database)
    store.prepare()
    scene = Scene(store)
    try:
        workers = [scene.worker(f"{number}") for number in range(3)]
        for worker in workers:
            scene.ledger.write_facts(_facts(scene, worker, "f", "g"))
        with psycopg.connect(database, autocommit=True) as server:
            assert server.execute("SELECT names FROM tenure.function_set").fetchall() == [(["f", "g"],)]
            server.execute("UPDATE tenure.node SET state = 'left', ended_at = now() - interval '8 days'")
            scene.session.sweep()
            for table in ("node", "node_facts", "function_set"):
                assert server.execute(f"SELECT count(*) FROM tenure.{table}").fetchone() == (0,), table
    finally:
        scene.close()


def test_a_sweep_passes_by_the_set_of_a_node_that_writes_its_facts(ledger_database):
    scene = Scene(store_for(ledger_database))
    worker = scene.worker()
    set_of = f"set {worker.id}"
    with psycopg.connect(ledger_database) as writes:
        writes.execute("INSERT INTO tenure.function_set (hash, names) VALUES (%s, '{f}')", [set_of])
        writes.commit()
        writes.execute(
            "SELECT tenure.write_facts(%s, %s, %s, '{f}', NULL, 1, 0, '1', '', 'web', '', NULL)",
            [worker.id, scene.application, set_of],
        )
        scene.session.sweep()
    (facts,) = scene.ledger.nodes(scene.application)
    assert (facts.functions, facts.unfit) == ({"f"}, ()), "a release without `unfit` writes it without"
    scene.close()


def test_a_sweep_leaves_a_set_that_a_node_refers_to_since_the_sweep_began(database):
    """The set comes last among many, so that facts are written between the sweep's look at them and its look at the set."""
    store = store_for(database)
    store.prepare()
    scene, sweeper = Scene(store), store.session("sweeper", 10.0)
    worker = scene.worker()
    ledger, facts = worker.ledger, _facts(scene, worker, "f")
    ledger.write_facts(facts)
    with psycopg.connect(database, autocommit=True) as server, ThreadPoolExecutor(1) as pool:
        (ours,) = server.execute("SELECT hash FROM tenure.function_set").fetchone()
        ledger.remove_facts(worker.id, scene.application)
        server.execute("DELETE FROM tenure.function_set")
        server.execute("INSERT INTO tenure.function_set SELECT 'set ' || n, '{}' FROM generate_series(1, 30000) n")
        server.execute("INSERT INTO tenure.function_set VALUES (%s, '{f}')", [ours])
        swept = pool.submit(sweeper.sweep)
        sweeps = "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND application_name = 'tenure:sweeper' AND query LIKE '%function%'"
        eventually(lambda: swept.done() or server.execute(sweeps).fetchone())
        ledger.write_facts(facts)
        swept.result(10)
        assert server.execute("SELECT hash FROM tenure.function_set").fetchall() == [(ours,)]
    assert [found.functions for found in scene.ledger.nodes(scene.application)] == [{"f"}]
    sweeper.close()
    scene.close()
