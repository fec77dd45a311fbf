"""A job goes on as long as some live node can run it, whichever node plans."""

import sqlite3
from contextlib import closing

import psycopg
import pytest

from doctor.examining import finding
from harness import constants
from harness.scratch import eventually
from tenure import Run, Scheduler
from tenure.core.keys import due_key
from tenure.triggers import tzdata_version


@pytest.fixture(autouse=True)
def nodes_learn_soon_and_plan_less_far_ahead(monkeypatch) -> None:
    constants.give(monkeypatch.setattr, LEARN_EVERY=2.0, LOOK_AHEAD=5.2, REFILL=3.2, UNATTENDED=1.5)


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
        with web._service.ledger() as ledger:
            assert [facts.label for facts in ledger.nodes("shop")] == ["web"], "who stopped brings nothing any more"


def test_a_job_of_newer_zone_rules_goes_on_by_older_ones_and_that_is_said_until_newer_ones_are_back(url, caplog):
    def made() -> tuple[Scheduler, list[str]]:
        scheduler, keys = Scheduler(url, application="shop", drain=1, tz="Europe/Berlin"), []

        @scheduler.cron("* * * * * *")
        def tick(run: Run) -> None:
            keys.append(run.key)

        return scheduler, keys

    first, keys = made()
    with first:
        eventually(lambda: len(keys) >= 2, what="it runs")
    # A release with newer zone rules has planned it, and is gone.
    execute(
        url,
        "UPDATE tenure.job SET tzdata = '2099z', next_reading = '2099z@'",
        "UPDATE tenure_job SET tzdata = '2099z', next_reading = '2099z@'",
    )
    second, keys = made()
    with second, second._service.ledger() as ledger:
        eventually(lambda: second.health().notes, what="it is said", within=15)
        (note,) = second.health().notes
        assert "written with 2099z" in note
        assert "'tick'" in note
        assert second.health().ok
        assert "upgrade the tzdata package" in second.why("tick")
        assert finding(url, "zone-rules").severity == "warning"
        assert [record for record in caplog.records if getattr(record, "action", "") == "older_zone_rules"]
        planned = ledger.jobs("shop", "tick")[0].next_due
        eventually(lambda: keys and due_key(planned) <= keys[-1], what="what was planned since has run", within=20)
        assert len(set(keys)) == len(keys)
        # A node with newer rules is back.
        execute(
            url,
            f"UPDATE tenure.job SET tzdata = '{tzdata_version()}', next_reading = '2000a@'",
            f"UPDATE tenure_job SET tzdata = '{tzdata_version()}', next_reading = '2000a@'",
        )
        eventually(lambda: not second.health().notes, what="nothing is left to say", within=15)
        count = len(keys)
        eventually(lambda: len(keys) > count, what="it goes on")
        assert len(set(keys)) == len(keys)
        assert [audited.clean for audited in second.audit("tick", since="-1m")] == [True]
    assert finding(url, "zone-rules").severity == "ok"


def test_nodes_write_down_what_they_have(url):
    web, _ = node(url, "web", "f", capacity=3, queues=["slow"], release=7)
    with web:
        with web._service.ledger() as ledger:
            eventually(lambda: [facts for facts in ledger.nodes("shop") if facts.plans], what="it plans")
            (facts,) = ledger.nodes("shop")
        assert (facts.label, facts.functions, facts.queues) == ("web", {"f"}, ("slow",))
        assert (facts.capacity, facts.release) == (3, 7)
        assert facts.node == web.health().node
        web.job(lambda: None, name="g")
        with web._service.ledger() as ledger:
            eventually(lambda: ledger.nodes("shop")[0].functions == {"f", "g"}, what="a function more", within=15)
