"""What becomes of jobs when workers start again: with the same code, with other code, after people changed jobs by hand. The log says it."""

import asyncio
import re
import sqlite3
import subprocess
import sys
import uuid
from contextlib import closing
from typing import Any

import psycopg
import pytest

from tenure import AsyncScheduler, Scheduler, at, every
from tenure.errors import JobError
from tenure.util.instants import moment

APP = """
import logging
from tenure import Scheduler

logging.basicConfig(level="INFO", format="%(message)s")
scheduler = Scheduler({url!r}, application="shop", capacity=0)
scheduler.every({period!r}, name="poll")(lambda: None)
scheduler.start()
"""


def _start(url: str, period: str) -> str:
    """What a process with this code logs when it starts."""
    code = APP.format(url=url, period=period)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, timeout=30).stderr


def test_an_update_by_hand_outlives_the_restarts_of_all_workers(url):
    people = Scheduler(url, application="shop")
    assert "job 'poll' is new: Every 5 h" in _start(url, "5h")
    people.update("poll", trigger=every("9h"), by="ada")
    said = _start(url, "5h")
    assert re.search(
        r"'poll' runs as changed by ada at .*trigger: Every 9 h.* \(code: Every 5 h.*tenure reset poll", said
    )
    assert people.find_job("poll").trigger.startswith("Every 9 h")
    said = _start(url, "6h")
    assert re.search(
        r"'poll' runs as defined here again, because its definition has changed \(trigger: Every 5 h.* → Every 6 h",
        said,
    )
    assert re.search(r"changed by ada at .*: trigger: Every 9 h", said)
    assert people.find_job("poll").trigger.startswith("Every 6 h")


@pytest.fixture
def shop(any_url, caplog):
    """Starts with this code, and gives the lines that were logged about its jobs."""
    caplog.set_level("INFO", "tenure")

    def start(period: str = "5h", release: int = 0, **policy: object) -> list[tuple[str, str]]:
        caplog.clear()
        scheduler = Scheduler(any_url, application="shop", release=release, capacity=0)
        scheduler.every(period, name="poll", **policy)(lambda: None)
        scheduler.start()
        return [(record.levelname, record.getMessage()) for record in caplog.records if "poll" in record.getMessage()]

    start.people = Scheduler(any_url, application="shop")
    return start


def test_what_was_changed_and_then_removed_comes_back_with_other_code_alone(shop):
    people = shop.people
    shop("5h")
    people.update("poll", trigger=every("9h"), by="ada")
    people.remove("poll", by="ada")
    ((level, said),) = shop("5h")
    assert (level, "'poll' is defined here, but was removed by ada at" in said) == ("WARNING", True)
    assert people.jobs() == []
    ((level, said),) = shop("6h")
    assert level == "WARNING"
    assert re.search(
        r"'poll' was removed by ada at .* and is back: .*has changed \(trigger: Every 5 h.* → Every 6 h", said
    )
    assert [job.trigger[:9] for job in people.jobs()] == ["Every 6 h"]


def test_two_releases_that_start_in_turn_are_named_in_the_log(shop):
    ((level, said),) = shop("5h")
    assert (level, said.startswith("job 'poll' is new: Every 5 h")) == ("INFO", True)
    for old, new in (("5 h", "6 h"), ("6 h", "5 h"), ("5 h", "6 h")):
        ((level, said),) = shop(new.replace(" ", ""))
        assert level == "INFO"
        assert re.search(
            rf"'poll': its definition in the code has changed \(trigger: Every {old}.* → Every {new}", said
        )
    ((_, said),) = shop("6h", retries=2)
    assert said.endswith("has changed (retries: 0 → 2)")


def test_code_that_a_newer_release_keeps_out_says_so(shop):
    shop("5h", release=2)
    ((level, said),) = shop("6h", release=1)
    assert level == "INFO"
    assert re.search(r"'poll' runs as release 2 defines it, which is newer than 1 here: trigger: Every 5 h", said)


def test_people_see_who_changed_a_job_and_what_the_code_says(shop):
    people = shop.people
    shop("5h", retries=1)
    assert (people.find_job("poll").changed_at, people.find_job("poll").code) == (None, None)
    before = people.find_job("poll")
    changed = people.update("poll", trigger=every("9h"), retries=3, by="ada", why="too often")
    assert (changed.changed_by, changed.changed_why) == ("ada", "too often")
    assert changed.changed_at is not None
    assert changed.code is not None
    assert (sorted(changed.code), changed.code["retries"]) == (["retries", "trigger"], "1")
    assert changed.code["trigger"].startswith("Every 5 h")
    assert people.jobs() == [changed]
    assert re.search(
        r"It runs as changed by ada \(too often\) at .*, not as the code defines it: trigger: Every 9 h.* \(code: Every 5 h.*retries: 3 \(code: 1\)",
        people.why("poll"),
    )
    back = people.reset("poll", by="ada")
    assert (back.trigger, back.rules, back.changed_at, back.code) == (before.trigger, before.rules, None, None)
    assert "changed" not in people.why("poll")
    with pytest.raises(JobError, match="nothing to reset"):
        people.reset("poll")
    assert shop("5h", retries=1) == []


def test_a_job_that_is_added_where_one_of_the_code_was_removed_is_kept(shop):
    people = shop.people
    shop("5h")
    people.remove("poll")
    people.job(name="poll")(lambda: None)
    people.add("poll", every("9h"), name="poll", by="ada")
    ((level, said),) = shop("5h")
    assert (level, "runs as changed by ada" in said) == ("INFO", True)
    assert people.find_job("poll").trigger.startswith("Every 9 h")
    assert people.reset("poll").in_code


def test_a_one_off_that_is_added_again_where_one_of_the_code_was_removed_is_kept(shop):
    people = shop.people
    shop("5h")
    people.remove("poll")
    people.job(name="poll")(lambda: None)
    with people._service.ledger() as ledger:
        now = ledger.now()
    assert people.add("poll", at(moment(now - 86400)), name="poll", missed="skip").state == "done"
    again = people.add("poll", at(moment(now + 86400)), name="poll", by="ada")
    assert (again.state, again.changed_by) == ("active", "ada")
    shop("5h")
    assert people.find_job("poll") == again
    assert people.reset("poll").in_code


def test_changes_by_hand_may_be_part_of_a_transaction(url):
    _bring(url)
    people = Scheduler(url, application="shop")
    with closing(_connect(url)) as connection:
        assert people.update("poll", trigger=every("9h"), by="ada", conn=connection).changed_by == "ada"
        assert people.reset("poll", conn=connection).changed_at is None
        people.update("poll", retries=7, by="eve", conn=connection)
        connection.rollback()
        assert people.find_job("poll").changed_at is None
        people.update("poll", retries=7, by="eve", conn=connection)
        connection.commit()
    assert people.find_job("poll").changed_by == "eve"


def _bring(url: str) -> None:
    scheduler = Scheduler(url, application="shop", capacity=0)
    scheduler.every("5h", name="poll")(lambda: None)
    scheduler.start()


def _connect(url: str) -> Any:
    return psycopg.connect(url) if url.startswith("postgres") else sqlite3.connect(url.removeprefix("sqlite:///"))


def test_a_date_in_the_past_is_told_once(any_url, caplog):
    with Scheduler(any_url, application="shop")._service.ledger() as ledger:
        yesterday = moment(float(int(ledger.now())) - 86400)
    for _ in range(2):
        scheduler = Scheduler(any_url, application="shop", capacity=0)
        scheduler.scheduled(at(yesterday), name="launch")(lambda: None)
        scheduler.start()
        told = [record.getMessage() for record in caplog.records if "launch" in record.getMessage()]
        assert len(told) == 1
        assert re.search(r"'launch' was added, but its due time .* past, so it is skipped as missed", told[0])


def test_reset_in_the_other_colour():
    scheduler = Scheduler(f"memory://{uuid.uuid4()}", capacity=0)
    scheduler.every("5h", name="poll")(lambda: None)
    scheduler.start()

    async def change_and_reset() -> None:
        same = AsyncScheduler(scheduler)
        assert (await same.update("poll", trigger=every("9h"), by="ada")).changed_by == "ada"
        assert (await same.reset("poll")).changed_at is None

    asyncio.run(change_and_reset())


FOLLOWS = """
import logging, threading
from tenure import Scheduler

logging.basicConfig(level="INFO", format="%(message)s")
scheduler = Scheduler({url!r}, application="shop")

@scheduler.job
def load(): pass

@scheduler.after("load")
def transform(): pass

threading.Timer(1.0, scheduler.stop).start()
scheduler.run(lines=True)
"""


def test_a_start_tells_what_a_new_job_follows(url, tenure):
    code = FOLLOWS.format(url=url)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, timeout=60)
    said = done.stdout + done.stderr
    assert "job 'transform' is new: after load (success)\n" in said
    assert re.search(r"transform'?:? +runs after load$", said, re.MULTILINE)
    assert re.search(r"load'?:? +runs on request$", said, re.MULTILINE)
    assert "due any more" not in said
    assert "after load (success)" in tenure("jobs")[1]
