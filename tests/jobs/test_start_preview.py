"""What `tenure diff` says before a start is exactly what the start then logs, on every store."""

from datetime import UTC, datetime, timedelta

import pytest

from harness.scratch import eventually
from tenure import Scheduler, every
from tenure.jobs.definition_news import News
from tenure.jobs.start_preview import preview
from tenure.scheduler import service_of

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
TO_COME = datetime.now(UTC) + timedelta(days=9)


def body() -> None: ...


@pytest.fixture
def shop(any_url, caplog):
    """One process of the application: its scheduler, and what its start logs of jobs."""

    class Shop:
        people = Scheduler(any_url, application="shop", capacity=0)

        def process(self, release: int = 0) -> Scheduler:
            return Scheduler(any_url, application="shop", release=release, capacity=0)

        def diff(self, scheduler: Scheduler) -> list[News]:
            definitions = service_of(scheduler).definitions
            return service_of(self.people).look(lambda ledger: preview(ledger, definitions, definitions.registry.names))

        def started(self, scheduler: Scheduler) -> list[tuple[int, str]]:
            caplog.clear()
            with caplog.at_level("INFO", "tenure"):
                scheduler.start()
            return [
                (record.levelno, record.getMessage())
                for record in caplog.records
                if record.getMessage().startswith(("job ", "pool "))
            ]

    return Shop()


def said(news: list[News]) -> list[tuple[int, str]]:
    return [(one.kind.level, one.text) for one in news]


def kinds(news: list[News]) -> dict[str, str]:
    return {one.name: one.kind.value for one in news}


def first(scheduler: Scheduler) -> Scheduler:
    for name in ("same", "changed", "by_hand", "by_hand_and_changed", "removed", "removed_and_changed", "old"):
        scheduler.every("5h", name=name)(body)
    scheduler.at(NEW_YEAR, name="new_year")(body)
    scheduler.job(name="on_request")(body)
    return scheduler


def second(scheduler: Scheduler) -> Scheduler:
    for name in ("same", "by_hand", "removed"):
        scheduler.every("5h", name=name)(body)
    scheduler.every("5h", retries=2, pool="warehouse", name="changed")(body)
    for name in ("by_hand_and_changed", "removed_and_changed"):
        scheduler.every("6h", name=name)(body)
    scheduler.at(NEW_YEAR + timedelta(days=1), name="new_year")(body)
    scheduler.at(NEW_YEAR, name="another_year", missed="skip")(body)
    scheduler.at(TO_COME, name="to_come")(body)
    scheduler.cron("0 3 * * *", name="on_request")(body)
    scheduler.cron("0 3 * * *", name="new")(body)
    return scheduler


def test_what_the_diff_says_is_what_the_start_logs(shop):
    assert kinds(shop.diff(first(shop.process()))) == {
        **dict.fromkeys(("by_hand", "by_hand_and_changed", "changed", "old", "on_request", "removed"), "job_new"),
        "removed_and_changed": "job_new",
        "same": "job_new",
        "new_year": "added_done",
    }
    before = shop.diff(first(shop.process()))
    assert shop.started(first(shop.process())) == said(before)
    people = shop.people
    people.update("by_hand", trigger=every("9h"), by="ada")
    people.update("by_hand_and_changed", retries=7, by="ada", why="flaky")
    people.remove("removed", by="bob")
    people.remove("removed_and_changed", by="bob")
    people.pause("same")
    first(people).start()
    people.add("old", every("1h"), name="old:7")
    assert [one.kind.value for one in shop.diff(first(shop.process())) if one.changes] == []
    news = shop.diff(second(shop.process()))
    assert kinds(news) == {
        "another_year": "added_done",
        "by_hand": "overridden",
        "by_hand_and_changed": "override_ended",
        "changed": "definition_changed",
        "new": "job_new",
        "new_year": "added_done",
        "old": "gone",
        "old:7": "gone",
        "on_request": "definition_changed",
        "removed": "removed_but_defined",
        "removed_and_changed": "removed_and_back",
        "to_come": "job_new",
        "warehouse": "pool_without_size",
    }
    assert shop.diff(second(shop.process())) == news  # it has changed nothing
    assert shop.started(second(shop.process())) == said(news)
    after = shop.diff(second(shop.process()))
    assert [one.name for one in after if one.changes] == ["old", "old:7"], "they ran until the nodes stopped"
    assert shop.started(second(shop.process())) == said(after)


def test_going_back_to_older_code_is_recognised_before_it_happens(shop):
    for period in ("5h", "6h", "5h"):
        scheduler = shop.process()
        scheduler.every(period, name="poll")(body)
        news = shop.diff(scheduler)
        assert shop.started(scheduler) == said(news)
    assert [one.kind.value for one in news] == ["put_back"]
    assert [next(iter(one)) for one in news[0].differences] == ["trigger"]


def test_what_a_newer_release_defines_is_left_alone(shop):
    newer, older = shop.process(release=2), shop.process(release=1)
    newer.every("5h", name="poll")(body)
    newer.start()
    older.every("6h", name="poll")(body)
    news = shop.diff(older)
    assert [(one.kind.value, one.changes) for one in news] == [("newer_release", False)]
    assert shop.started(older) == said(news)


def test_a_job_that_live_nodes_still_run_is_gone_with_the_deploy(any_url):
    old = Scheduler(any_url, application="shop")
    old.every("5h", name="poll")(body)
    new = Scheduler(any_url, application="shop")
    new.every("5h", name="poll_orders")(body)
    definitions = service_of(new).definitions
    with old:
        eventually(old.nodes)
        added, gone = service_of(new).look(lambda ledger: preview(ledger, definitions, definitions.registry.names))
        assert (added.text, added.changes) == (
            "job 'poll_orders' is new: Every 5 h of elapsed time, counted from 1970-01-01 00:00:00 UTC",
            True,
        )
        assert (gone.kind.value, gone.name, gone.changes) == ("gone", "poll", True)
        assert gone.text.endswith("it runs until the nodes that have it are replaced")
    (_, gone) = service_of(new).look(lambda ledger: preview(ledger, definitions, definitions.registry.names))
    assert gone.changes, "it ran until the nodes stopped"
    with new:
        eventually(new.nodes)
        (gone,) = service_of(new).look(lambda ledger: preview(ledger, definitions, definitions.registry.names))
        assert (gone.name, gone.changes) == ("poll", False), "this release is deployed already"


def test_a_job_on_request_that_is_gone_while_no_node_is_alive_changes_nothing(any_url):
    old = Scheduler(any_url, application="shop")
    old.job(name="asked")(body)
    with old:
        eventually(old.nodes)
    new = Scheduler(any_url, application="shop")
    new.job(name="other")(body)
    definitions = service_of(new).definitions
    told = service_of(new).look(lambda ledger: preview(ledger, definitions, definitions.registry.names))
    assert [(one.name, one.changes) for one in told] == [("other", True), ("asked", False)]
