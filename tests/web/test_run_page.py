"""The page of a run: every attempt, how each ended, progress, log, result, and what ran beside it."""

import re
import sqlite3
import threading
from contextlib import closing
from datetime import UTC, datetime

from harness.scratch import eventually
from tenure import Run, Scheduler
from tenure.web.pages import run as run_page


def test_every_attempt_is_told_with_its_error_and_the_run_can_be_tried_again(sqlite_url, opened):
    scheduler = Scheduler(sqlite_url, application="shop", label="web-1")

    @scheduler.job(retries=2, backoff=("10ms", "10ms"))
    def fails(run: Run) -> None:
        run.log(f"try {run.attempt}")
        raise RuntimeError(f"broke <{run.attempt}>")

    with scheduler:
        run = scheduler.run_now("fails")
        eventually(lambda: scheduler.find_run(run.id).state == "failed", within=20)
        page = opened(scheduler).get(f"/run/{run.id}").text
    assert re.findall(r"<h3>Attempt (\d)", page) == ["3", "2", "1"]
    for number in (1, 2, 3):
        assert f"broke &lt;{number}&gt;" in page
        assert f"#{number}</span>  try {number}" in page
    assert 'aria-label="attempt 1 failed; attempt 2 failed; attempt 3 failed"' in page
    assert "after the pause before attempt 3" in page
    assert "Try again" in page
    assert "Ask it to end" not in page


def test_a_running_run_shows_how_far_it_is_what_runs_beside_it_and_can_be_asked_to_end(sqlite_url, opened):
    scheduler = Scheduler(sqlite_url, application="shop", label="web-1")

    @scheduler.job()
    def counts(run: Run) -> None:
        run.progress(30, 120, "half <way>")
        run.log("at 30")
        run.wait(30)

    @scheduler.job()
    def beside(run: Run) -> None:
        run.wait(30)

    with scheduler:
        run, other = scheduler.run_now("counts"), scheduler.run_now("beside")
        browser = opened(scheduler)
        path = f"/run/{run.id}"
        eventually(lambda: "30 of 120 (25 %), half &lt;way&gt;" in browser.get(path).text, within=20)
        eventually(lambda: 'data-follow="yes"' in browser.get(path).text, within=20)
        page = browser.get(path).text
        assert 'aria-label="25%"' in page
        assert "Ask it to end" in page
        assert "Try again" not in page
        eventually(lambda: f'href="/run/{other.id}"' in browser.get(path).text.partition("What else ran on web-1")[2])
        assert f'hx-sse:connect="/live?watch=run-{run.id}"' in page
        for one in (run, other):
            scheduler.cancel(one.id)
        eventually(lambda: scheduler.find_run(run.id).state != "running", within=20)


def test_what_a_body_returned_is_shown(sqlite_url, opened):
    scheduler = Scheduler(sqlite_url, application="shop")

    @scheduler.job()
    def answers(run: Run) -> dict[str, object]:
        return {"rows": 7, "said": "<b>"}

    with scheduler:
        run = scheduler.run_now("answers")
        eventually(lambda: scheduler.find_run(run.id).state == "succeeded", within=20)
        page = opened(scheduler).get(f"/run/{run.id}").text
    assert "&#34;rows&#34;: 7" in page
    assert "&lt;b&gt;" in page


def test_the_runs_before_and_after_are_a_step_away(resting, opened):
    browser = opened(resting)
    first, second, third = (resting.run_now("lasts") for _ in range(3))
    page = browser.get(f"/run/{second.id}").text
    assert f'href="/run/{first.id}" rel="prev"' in page
    assert f'href="/run/{third.id}" rel="next"' in page
    assert "No attempt has begun." in page
    assert "Cancel" in page


def test_log_lines_say_their_day_and_their_zone(resting, opened):
    run = resting.run_now("lasts")
    at = [
        datetime(2026, 10, 24, 21, 59, 59, tzinfo=UTC),
        *(datetime(2026, 10, 25, hour, tzinfo=UTC) for hour in (0, 1)),
    ]
    with closing(sqlite3.connect(resting.store.shown.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("UPDATE tenure_run SET attempt = 1 WHERE id = ?", (run.id,))
        for place, when in enumerate([at[0], *at]):
            line = (run.id, place, int(when.timestamp() * 1e6), f"line {place}")
            connection.execute("INSERT INTO tenure_log (run, attempt, place, at, line) VALUES (?, 1, ?, ?, ?)", line)
    page = opened(resting).get(f"/run/{run.id}").text
    assert "Times of Sat 2026-10-24 CEST and later days." in page
    log = re.sub(r"<[^>]+>", "", page.partition('<pre class="log"')[2].partition("</pre>")[0].partition(">")[2])
    assert log.splitlines() == [
        "23:59:59  line 0",
        "23:59:59  line 1",
        "Sun 2026-10-25 CEST",
        "02:00:00  line 2",
        "Sun 2026-10-25 CET",
        "02:00:00  line 3",
    ]


def test_what_else_ran_says_what_it_does_not_know(sqlite_url, opened, monkeypatch):
    scheduler = Scheduler(sqlite_url, application="shop", label="web-1", capacity=8)
    together = threading.Barrier(4)

    @scheduler.job(overlap="allow")
    def beside(run: Run) -> None:
        together.wait(20)

    @scheduler.job()
    def alone(run: Run) -> None: ...

    def said(run):
        page = opened(scheduler).get(f"/run/{run.id}").text.partition("What else ran on web-1")[2]
        return page.partition("</section>")[0]

    with scheduler:
        lonely = scheduler.run_now("alone")
        lonely.wait(20)
        assert "No other run of this application" in said(lonely)
        runs = [scheduler.run_now("beside") for _ in range(4)]
        for run in runs:
            run.wait(20)
        everything = said(runs[0])
        assert all(f'href="/run/{run.id}"' in everything for run in runs[1:])
        assert "more ran there" not in everything
        assert "were searched" not in everything
        monkeypatch.setattr(run_page, "BESIDE", 1)
        assert "2 more ran there" in said(runs[0])
        monkeypatch.setattr(run_page, "SEARCHED", 1)
        cut = said(lonely)
        assert "were searched: others may have run there as well." in cut
        assert "No other run" not in cut
