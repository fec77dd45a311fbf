"""The first page: what needs a person with one action each, who plans and for how long, and the list of jobs."""

import json
import os
import re
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import urlencode

from harness import constants
from harness.openapi import Described
from harness.scratch import eventually
from tenure import Run, Scheduler
from tenure.alerts import Log
from tenure.cli import main
from tenure.web.api.reads import OPENAPI


def names_of(page):
    table = page.partition('class="jobs"')[2].partition("</table>")[0]
    return re.findall(r'data-th="Job"><a href="/job\?name=([^"]+)"', table)


def entries_of(page):
    """What needs attention."""
    found = page.partition("Needs attention")[2].partition("Who plans")[0]
    return re.findall(r"<li .*?</li>", found, re.DOTALL)


def test_what_fails_comes_first_and_is_tried_again_by_one_button(scheduler, browser, ended):
    run = ended(scheduler, scheduler.run_now("fails").id)
    page = browser.get("/").text
    entry = page.partition("Needs attention")[2].partition("Who plans")[0]
    assert "its last run" in entry
    assert re.search(rf'name="run" value="{run.id}"><button>Try again', entry)
    assert names_of(page)[0] == "fails"
    assert names_of(browser.get("/?sort=name").text) == ["fails", "lasts", "nightly", "sync_stock"]
    assert names_of(browser.get("/?state=failing").text) == ["fails"]
    assert names_of(browser.get("/?state=late").text) == []
    assert names_of(browser.get("/?sort=next&state=active").text)[:2] == ["sync_stock", "nightly"]


def test_an_open_alert_is_on_the_page_in_status_and_in_the_api(sqlite_url, opened, monkeypatch, capsys):
    constants.give(monkeypatch.setattr, LOOK_EVERY=0.3, TELL_EVERY=0.2, LOOK_RESTS=1.0)
    scheduler, let_go = Scheduler(sqlite_url, application="shop", capacity=2), threading.Event()

    @scheduler.every("1s", expect_within="2s")
    def hangs(run: Run) -> None:
        let_go.wait()

    scheduler.alert_to(Log())
    try:
        with scheduler:
            browser = opened(scheduler)
            eventually(lambda: scheduler.runs("hangs", state="running"), within=20)
            page = browser.get("/").text
            assert '<section class="verdict fine"' in page
            assert "nothing needs attention" in page
            eventually(lambda: '<section class="verdict look"' in browser.get("/").text, within=20)
            page = browser.get("/").text
            assert "&#39;shop&#39; needs attention: 1 alert is open." in page
            [entry] = entries_of(page)
            assert "<strong>overdue</strong>" in entry
            assert "has not succeeded since its due time" in entry
            assert re.search(r"since <time[^>]*>", entry)
            assert '<a class="button" href="/job?name=hangs">Look</a>' in entry
            [alert] = [one for one in scheduler.alerts() if one.open]
            described = Described(OPENAPI)
            status, alerts = browser.get("/api/v1/status"), browser.get("/api/v1/alerts")
            described.check("get", "/status", status)
            described.check("get", "/alerts", alerts)
            assert [one["id"] for one in status.json()["alerts"]] == [alert.id]
            assert [one["id"] for one in alerts.json()] == [alert.id]
            capsys.readouterr()
            assert main(["status", "--url", sqlite_url, "--app", "shop", "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["verdict"] == status.json()["verdict"]
            assert main(["status", "--url", sqlite_url, "--app", "shop"]) == 0
            assert f"overdue: {alert.text}\n  tenure show hangs" in capsys.readouterr().out
            let_go.set()
            eventually(lambda: '<section class="verdict fine"' in browser.get("/").text, within=20)
            assert entries_of(browser.get("/").text) == []
    finally:
        let_go.set()


def test_an_alert_is_not_a_second_entry_for_what_is_there_already(sqlite_url, opened, monkeypatch):
    constants.give(monkeypatch.setattr, LOOK_EVERY=0.3, TELL_EVERY=0.2, LOOK_RESTS=1.0)
    scheduler = Scheduler(sqlite_url, application="shop")

    @scheduler.every("0.2s", overlap="allow")
    def fails(run: Run) -> None:
        raise RuntimeError("the shelf broke")

    scheduler.alert_to(Log(), failing=2)
    with scheduler:
        browser = opened(scheduler)
        eventually(lambda: any(one.open for one in scheduler.alerts()), within=20)
        eventually(lambda: browser.get("/api/v1/status").json()["alerts"], within=20)
        page = browser.get("/").text
    assert "1 job fails." in page
    assert len(entries_of(page)) == 1


def test_jobs_are_found_by_what_stands_in_the_address(resting, opened):
    browser = opened(resting)
    resting.add("fails", None, name="Money out", queue="heavy", tags=("money",))
    resting.pause("nightly", why="because")
    for query, expected in {
        (("q", "mONEY"),): ["Money%20out"],
        (("queue", "heavy"),): ["Money%20out"],
        (("tag", "money"),): ["Money%20out"],
        (("tag", "money"), ("queue", "default")): [],
        (("state", "paused"),): ["nightly"],
        (("state", "removed"),): [],
        (("q", "o"), ("state", "active"), ("sort", "name")): ["Money%20out", "sync_stock"],
    }.items():
        page = browser.get(f"/?{urlencode(query)}").text
        assert names_of(page) == expected, query
        assert f"{len(expected)} of 5 jobs." in page
    assert 'href="/?tag=money"' in browser.get("/").text
    for wrong in ("/?sort=size", "/?state=done2"):
        assert browser.get(wrong).status_code == 400


def test_jobs_are_sorted_by_duration_and_by_lateness(resting, opened, monkeypatch):
    for number in range(60):
        resting.add("fails", None, name=f"report-{number:02}", queue="heavy")
    with closing(sqlite3.connect(resting.store.shown.removeprefix("sqlite:///"))) as file, file:
        hour = int(time.time() - 3600) // 3600 * 3600 * 1_000_000
        for name, late, took in (("nightly", 1, 50), ("fails", 9, 30), ("report-33", 5, 40)):
            file.execute(
                "INSERT INTO tenure_job_hour SELECT id, application, ?, -1, 2, 0, 0, 0, 0, 0, 0, ?, ?, ?, ?, ?, ?"
                "  FROM tenure_job WHERE name = ?",
                (hour, late, 10**9, f"{late}:2", took, 10**9, f"{took}:2", name),
            )
    browser = opened(resting)
    assert names_of(browser.get("/?sort=duration").text)[:4] == ["nightly", "report-33", "fails", "lasts"]
    assert names_of(browser.get("/?sort=lateness").text)[:4] == ["fails", "report-33", "nightly", "lasts"]
    first, second = (names_of(browser.get(f"/?sort=duration&first={first}").text) for first in (0, 50))
    assert (len(first), len(second), len({*first, *second})) == (50, 14, 64)
    assert names_of(browser.get("/?sort=duration&first=999").text) == second
    assert names_of(browser.get("/?sort=duration&queue=heavy&q=33").text) == ["report-33"]
    assert names_of(browser.get("/?sort=lateness&state=failing").text) == []
    page = browser.get("/?sort=duration&queue=heavy").text
    assert re.search(r'aria-sort="descending"><a href="/\?queue=heavy&amp;sort=duration#jobs">p99<', page)
    assert '<a href="/?queue=heavy&amp;sort=lateness#jobs">Late p99<' in page
    assert "sort=duration&amp;first=50" in page
    monkeypatch.setattr("tenure.web.pages.now.SORTED", 10)
    refused = browser.get("/?sort=lateness")
    assert (refused.status_code, "at most 10 jobs can be sorted by lateness, and these are 64" in refused.text) == (
        400,
        True,
    )
    assert browser.get("/?sort=lateness&q=nightly").status_code == 200


def test_the_planner_of_this_process_shows_for_how_long_it_is_trusted_and_another_its_last_beat(
    scheduler, browser, opened, sqlite_url
):
    eventually(lambda: "trusted for" in browser.get("/").text, within=20)
    assert "of 1.6 s" in browser.get("/").text  # 0.8 of a ttl of 2 s
    looker = Scheduler(sqlite_url, application="shop")
    page = opened(looker).get("/").text
    assert re.search(r"last heartbeat [\d.]+ m?s ago, lease of 2.0 s", page)


def test_a_node_that_is_silent_is_said_in_red(sqlite_url, opened):
    scheduler = Scheduler(sqlite_url, application="shop", label="web-1", ttl=30, heartbeat_every=20, attempt_timeout=1)

    @scheduler.job()
    def idle(run: Run) -> None: ...

    with scheduler:
        [lock] = Path(f"{sqlite_url.removeprefix('sqlite:///')}-tenure").glob("*.lock")
        an_hour_ago = lock.stat().st_mtime - 3600
        os.utime(lock, (an_hour_ago, an_hour_ago))  # its next heartbeat is twenty seconds away
        page = opened(Scheduler(sqlite_url, application="shop")).get("/").text
    assert '<tr data-row class="act">' in page
    assert '<strong class="flag">silent</strong>' in page


def test_an_orphan_is_flagged_where_it_is_due_and_in_the_list(sqlite_url, opened):
    scheduler = Scheduler(sqlite_url, application="shop", label="web-1", queues=["default"])

    @scheduler.every("1h", queue="heavy")
    def lonely(run: Run) -> None: ...

    with scheduler:
        browser = opened(scheduler)
        page = browser.get("/").text
        assert names_of(browser.get("/?state=orphaned").text) == ["lonely"]
    assert '<strong class="flag">orphaned</strong>' in page.partition('class="jobs"')[2]
    assert '<strong class="flag">no node can run it</strong>' in page.partition("Next due")[2]
