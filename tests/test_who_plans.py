"""A job goes on as long as some live node can run it, whichever node plans."""

import sqlite3
from contextlib import closing

import psycopg
import pytest

from harness.scratch import eventually
from tenure import Run, Scheduler


@pytest.fixture(params=["postgres", "sqlite"])
def url(request) -> str:
    return request.getfixturevalue("database" if request.param == "postgres" else "sqlite_url")


def execute(url: str, postgres: str, sqlite: str) -> None:
    """As time, or a person, does it to the tables."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=10)) as file, file:
            file.executescript(sqlite)
    else:
        with psycopg.connect(url, autocommit=True) as server:
            server.execute(postgres)


def node(url: str, label: str, *names: str, every: str = "1s", **options) -> tuple[Scheduler, dict[str, list[str]]]:
    """A scheduler with some functions, and the keys that each of them ran."""
    made = Scheduler(
        url, application="shop", label=label, drain=1, ttl=6, heartbeat_every=0.5, attempt_timeout=1, **options
    )
    ran: dict[str, list[str]] = {name: [] for name in names}
    for name in names:

        def body(run: Run) -> None:
            ran[run.job].append(run.key)

        made.every(every, name=name)(body)
    return made, ran


def test_a_job_whose_function_the_planner_lacks_is_planned_after_a_long_absence(url):
    web, _ = node(url, "web", "f")
    with web:
        eventually(lambda: web.health().plans, what="the web node plans")
        batch, ran = node(url, "batch", "f", "g")
        with batch:
            eventually(lambda: ran["g"], what="g runs where its function is")
        # No node with g for longer than a clock may jump: nothing of it was planned meanwhile.
        execute(
            url,
            "DELETE FROM tenure.run WHERE job = (SELECT id FROM tenure.job WHERE name = 'g');"
            " UPDATE tenure.job SET next_due = next_due - interval '90 s', since = since - interval '90 s' WHERE name = 'g'",
            "DELETE FROM tenure_run WHERE job = (SELECT id FROM tenure_job WHERE name = 'g');"
            " UPDATE tenure_job SET next_due = next_due - 90000000, since = since - 90000000 WHERE name = 'g'",
        )
        again, ran = node(url, "batch 2", "f", "g")
        with again:
            assert web.health().plans
            eventually(lambda: len(set(ran["g"])) >= 4, what="g goes on")
        with web.ledger() as ledger:
            assert [facts.label for facts in ledger.nodes("shop")] == ["web"], "who stopped brings nothing any more"


def test_nodes_write_down_what_they_have(url):
    web, _ = node(url, "web", "f", capacity=3, queues=["slow"], release=7)
    with web:
        with web.ledger() as ledger:
            eventually(lambda: [facts for facts in ledger.nodes("shop") if facts.plans], what="it plans")
            (facts,) = ledger.nodes("shop")
        assert (facts.label, facts.functions, facts.queues) == ("web", {"f"}, ("slow",))
        assert (facts.capacity, facts.release) == (3, 7)
        assert facts.node == web.health().node
        web.job(lambda: None, name="g")
        with web.ledger() as ledger:
            eventually(lambda: ledger.nodes("shop")[0].functions == {"f", "g"}, what="a function more", within=15)
