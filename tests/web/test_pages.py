"""What the pages show, read over real HTTP: every page is whole without JavaScript."""

import json
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from urllib.parse import quote

import pytest

from harness.scratch import eventually
from tenure import Run, Scheduler, closed, cron
from tenure.cli import main
from tenure.stores.sqlite.ledger import SqliteLedger
from tenure.web.pages import audit


def text_of(answer):
    """What a person reads."""
    text = re.sub(r"<(head|title|script|style)\b.*?</\1>", " ", answer.text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text)).replace("&#39;", "'").replace("&#34;", '"')


def test_the_first_page_says_how_everything_is_and_agrees_with_status(scheduler, browser, capsys, sqlite_url):
    eventually(lambda: scheduler.runs("sync_stock", state="succeeded"), within=20)
    eventually(lambda: "is fine" in browser.get("/").text, within=20)
    shown = text_of(browser.get("/"))
    assert "'shop' is fine: web-1 plans 4 jobs, and nothing needs attention." in shown
    assert "Nothing needs you." in shown
    for name in ("sync_stock", "nightly", "fails", "lasts"):
        assert name in shown
    assert main(["status", "--url", sqlite_url, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    found = browser.get("/api/v1/status").json()
    assert (found["verdict"], found["ok"], found["attention"]) == (said["verdict"], True, said["attention"])
    assert main(["status", "--url", sqlite_url]) == 0
    assert found["verdict"] in capsys.readouterr().out


def test_without_a_node_the_page_shouts_and_status_ends_with_1(resting, opened, capsys):
    browser = opened(resting)
    page, found = browser.get("/"), browser.get("/api/v1/status").json()
    assert 'class="verdict act"' in page.text
    assert "no node of this application is running" in text_of(page)
    assert main(["status", "--url", resting.store.shown, "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["verdict"]) == (False, said["verdict"])


def test_a_failure_is_found_with_its_traceback_and_its_log(scheduler, browser, ended):
    run = ended(scheduler, scheduler.run_now("fails", by="bob").id)
    now = text_of(browser.get("/"))
    assert "RuntimeError: the shelf &lt;b&gt;broke&lt;/b&gt;" in now
    page = browser.get(f"/run/{run.id}")
    shown = text_of(page)
    assert "RuntimeError: the shelf &lt;b&gt;broke&lt;/b&gt;" in shown
    assert "about to fail" in shown
    assert "requested by bob" in shown
    assert "<b>broke" not in page.text


def test_a_job_page_says_when_through_the_next_clock_change_and_why_not(resting, opened):
    browser = opened(resting)
    shown = text_of(browser.get("/job?name=nightly"))
    assert "At 02:30 every day, Europe/Berlin" in shown
    assert "Written as 30 2 * * * ." in shown
    resting.update(
        "nightly", trigger=cron("@daily") | cron("0 9 * * MON-FRI") - closed("holidays", dates=["2026-12-25"])
    )
    both = "Written as 0 9 * * MON-FRI , @daily ."
    eventually(lambda: both in text_of(browser.get("/job?name=nightly")), within=20)
    assert "Written as" not in text_of(browser.get("/job?name=sync_stock"))
    resting.reset("nightly")
    assert shown.count("clocks go") == 2
    assert "retries 1" in shown
    asked = text_of(browser.get(f"/job?name=nightly&at={quote('2020-01-01 02:30')}"))
    assert "'nightly' did not exist at 2020-01-01 02:30:00+01:00" in asked
    wrong = browser.get("/job?name=nightly&at=soon")
    assert wrong.status_code == 400
    assert "is not a time" in wrong.text


def test_arguments_are_hidden_until_asked_for_and_redacted(resting, opened):
    def redact(job, kwargs):
        return {name: "***" if name == "password" else value for name, value in kwargs.items()} | {"seen": job}

    run = resting.run_now("nightly", kwargs={"password": "swordfish"})
    plain, careful = opened(resting), opened(resting, redact=redact)
    for path in (f"/run/{run.id}", "/job?name=nightly", f"/api/v1/runs/{run.id}", "/api/v1/runs", "/api/v1/jobs"):
        for browser in (plain, careful):
            assert "swordfish" not in browser.get(path).text
    paths = [f"/run/{run.id}?arguments=shown", f"/api/v1/runs/{run.id}?arguments=shown", "/api/v1/runs?arguments=shown"]
    for path in paths:
        assert "swordfish" in plain.get(path).text
        hidden = careful.get(path).text
        assert "swordfish" not in hidden
        assert "***" in hidden


def test_pages_of_jobs_and_runs_are_turned_and_searched_by_address(resting, opened):
    for number in range(60):
        resting.add("fails", None, name=f"report-{number:02}")
    for number in range(70):
        resting.run_now("lasts", key=f"k{number}")
    browser = opened(resting)
    first, second = browser.get("/"), browser.get("/?first=50")
    tables = [answer.text.partition('class="jobs"')[2] for answer in (first, second)]
    assert sum(table.count("/job?name=report-") for table in tables) == 60
    assert browser.get("/?first=999999").status_code == 200
    found = browser.get("/?q=PORT-07").text.partition('class="jobs"')[2]
    assert found.count("/job?name=report-07") == 1
    assert "report-08" not in found
    assert "No job matches." in browser.get("/?q=nothing-like-it").text
    assert browser.get("/?state=asleep").status_code == 400
    older = re.search(r'href="(/job\?name=lasts&amp;before=[^"]+)">Older', browser.get("/job?name=lasts").text)
    pages = [browser.get("/job?name=lasts").text, browser.get(older[1].replace("&amp;", "&")).text]
    shown = [set(re.findall(r'<a href="/run/(\d+)">\1</a>', page)) for page in pages]
    assert not shown[0] & shown[1]
    assert len(shown[0] | shown[1]) == 70


def test_older_leads_to_every_run_of_one_due_time(resting, opened):
    at = datetime.now(UTC)
    asked = [resting.run_at("lasts", at).id for _ in range(120)]
    browser, path, seen = opened(resting), "/job?name=lasts", []
    while path:
        page = browser.get(path).text
        seen += map(int, re.findall(r'<a href="/run/(\d+)">\1</a>', page.partition('<section id="runs">')[2]))
        older = re.search(r'href="([^"]+)">Older', page)
        path = older and older[1].replace("&amp;", "&")
    assert seen == sorted(asked, reverse=True)
    assert browser.get("/job?name=lasts&before=2026-11-14T00:00Z&below=-1").status_code == 400
    middle = browser.get(f"/run/{asked[60]}").text
    assert f'href="/run/{asked[59]}" rel="prev"' in middle
    assert f'href="/run/{asked[61]}" rel="next"' in middle
    assert 'rel="prev"' not in browser.get(f"/run/{asked[0]}").text
    assert 'rel="next"' not in browser.get(f"/run/{asked[-1]}").text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/job?name=nope", 404),
        ("/job", 404),
        ("/job?name=nightly&before=yesterday", 400),
        ("/job?name=nightly&before=2026-01-01T00:00", 400),
        ("/job?name=nightly&before=9999-12-31T23:59:59%2B00:00", 200),
        ("/job?name=%00", 400),
        ("/job?name=%ed%a0%80", 404),
        ("/run/999999", 404),
        ("/run/x", 400),
        ("/run/-1", 400),
        ("/run/" + "9" * 40, 400),
        ("/?first=-1", 400),
        ("/?first=" + "9" * 5000, 400),
        ("/audit?since=never", 400),
        ("/audit?since=-90d", 400),
        ("/audit?job=nope", 404),
        ("/audit?since=9999-01-01T00:00Z", 400),
        ("/audit?since=-1h&until=2h", 400),
        ("/audit?since=-1h&until=9999-01-01T00:00Z", 400),
        ("/audit?since=-1h&until=-2h", 400),
        ("/audit?since=-1h&until=-1h", 400),
        ("/api/v1/audit?since=9999-01-01T00:00Z", 400),
        ("/nowhere", 404),
        ("/static/0/../page.py", 404),
        ("/static/0/vendored.json", 404),
        ("/static/0/page.css", 200),
        ("/api/v1/nowhere", 404),
        ("/api/v1/runs?limit=100000", 400),
        ("/api/v1/runs?state=asleep", 400),
        ("/api/v1/job?name=nope", 404),
    ],
)
def test_an_address_that_makes_no_sense_is_answered_in_words(resting, opened, caplog, path, status):
    answer = opened(resting).get(path)
    assert answer.status_code == status
    assert "Traceback" not in answer.text
    assert "could not answer" not in caplog.text
    if path.startswith("/api") and status >= 400:
        problem = answer.json()
        assert (problem["status"], bool(problem["title"]), bool(problem["detail"])) == (status, True, True)


def test_the_audit_names_what_is_not_accounted_for(scheduler, browser):
    eventually(lambda: len(scheduler.runs("sync_stock", state="succeeded")) >= 3, within=20)
    assert "all accounted for." in browser.get("/audit").text
    path = scheduler.store.shown.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as connection, connection:  # as no tenure would: two runs for one due time
        columns = [row[1] for row in connection.execute("PRAGMA table_info(tenure_run)") if row[1] != "id"]
        forged = {"key": "'forged'", "state": "'cancelled'"}
        copied = ", ".join(forged.get(column, column) for column in columns)
        victim = "SELECT min(id) FROM tenure_run WHERE state = 'succeeded' AND kind = 'due'"
        into = ", ".join(columns)
        connection.execute(f"INSERT INTO tenure_run ({into}) SELECT {copied} FROM tenure_run WHERE id = ({victim})")
    eventually(lambda: browser.get("/api/v1/audit").json()["clean"] is False)
    page = browser.get("/audit")
    assert "Not everything is accounted for." in page.text
    assert "belong to one due time" in text_of(page)


@pytest.mark.parametrize("asked", ["?job=", "?job=sync_stock"])
def test_an_audit_rests_and_goes_through_so_many_due_times_and_no_more(resting, opened, monkeypatch, asked):
    with closing(sqlite3.connect(resting.store.shown.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("UPDATE tenure_change SET at = at - 2 * 86400000000")  # as if it were there for two days
    browser, rests = opened(resting), []
    monkeypatch.setattr(audit.Pacer, "rest", lambda _self: rests.append(1))
    [found] = [one for one in browser.get(f"/api/v1/audit{asked}").json()["jobs"] if one["job"] == "sync_stock"]
    assert 86_400 <= found["due"] <= 86_401
    assert len(rests) >= found["due"] // audit.SLICE
    monkeypatch.setattr(audit, "STEPS", 40_000)
    read = []
    monkeypatch.setattr(SqliteLedger, "past", lambda *_: read.append(1))
    monkeypatch.setattr(SqliteLedger, "runs", lambda *_: read.append(1))
    for path in (f"/audit{asked}&since=-23h", f"/api/v1/audit{asked}&since=-22h"):  # other questions than before
        answer = browser.get(path)
        assert answer.status_code == 400
        assert "More than 20,000 due times are in the span." in text_of(answer) + answer.text
    assert read == []  # it is refused before their runs are read


def test_json_has_a_tag_and_the_same_views(resting, opened):
    browser = opened(resting)
    answer = browser.get("/api/v1/job?name=nightly")
    expected = {**resting.find_job("nightly").as_dict(), "kwargs": None}
    assert {**answer.json(), "next_due": None} == {**json.loads(json.dumps(expected)), "next_due": None}
    again = browser.get("/api/v1/job?name=nightly", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert {job["name"] for job in browser.get("/api/v1/jobs").json()} == {"nightly", "sync_stock", "fails", "lasts"}
    assert "nightly" in browser.get("/api/v1/why?name=nightly").json()["why"]


def test_a_database_that_does_not_answer_is_said(resting, opened):
    browser = opened(resting)
    assert browser.get("/").status_code == 200
    path = resting.store.shown.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE tenure_job RENAME TO elsewhere")
    answer = eventually_status(browser, "/", 503)
    assert 'class="verdict act"' in answer.text
    assert 'id="live" hx-get="/"' in answer.text  # it goes on asking
    assert browser.get("/api/v1/status").status_code == 503


def eventually_status(browser, path, status):
    """Answers are shared for a second."""
    eventually(lambda: browser.get(path).status_code == status)
    return browser.get(path)


def test_a_name_with_every_character_has_its_page(resting, opened):
    browser = opened(resting)
    for name in ("a/b", "..", "a b&c=d#e?f", "<script>", "Ünïcödé", "100%", "'\"`"):
        resting.add("fails", None, name=name)
        link = f"/job?name={quote(name, safe='')}"
        assert f'href="{link}"' in browser.get(f"/?q={quote(name, safe='')}").text, name
        assert browser.get(link).status_code == 200
        assert browser.press("/do/run-now", job=name).status_code == 303
        assert len(resting.runs(name)) == 1


def test_updates_can_be_switched_off_and_stay_off(resting, opened):
    browser = opened(resting)
    assert 'hx-sse:connect="/live"' in browser.get("/").text
    off = browser.get("/?updates=off").text
    assert "hx-sse:connect" not in off
    assert "hx-get" not in off
    assert "/job?name=nightly&amp;updates=off" in off
    assert "Turn on" in off


def test_an_async_scheduler_has_the_same_page(sqlite_url, opened):
    from tenure import AsyncScheduler

    scheduler = AsyncScheduler(sqlite_url, application="shop")
    assert "There are no jobs yet" in opened(scheduler).get("/").text


def test_the_page_of_a_job_counts_from_its_last_runs(sqlite_url, opened):
    scheduler = Scheduler(sqlite_url, application="shop")

    @scheduler.job()
    def quick(run: Run) -> None: ...

    with scheduler:
        for _ in range(3):
            scheduler.run_now("quick")
        eventually(lambda: len(scheduler.runs("quick", state="succeeded")) == 3, within=20)
        page = opened(scheduler).get("/job?name=quick")
    assert "3 of 3 that ran" in text_of(page)
    assert 'aria-label="Last 60 runs: 3 succeeded"' in page.text
    assert datetime.now(UTC).strftime("%Y-%m-%d") in page.text
