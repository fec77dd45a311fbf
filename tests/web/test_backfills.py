"""Backfills from the page, as plain forms: a list first, created by who types how many runs it is, and steered."""

import re
import sqlite3
from contextlib import closing

import pytest

from harness.scratch import eventually
from tenure import Run, Scheduler
from tenure.web import Caller
from tenure.web.ledger_reads import LedgerReads

SPAN = {"since": "2026-11-01 00:00", "until": "2026-11-06 00:00"}


def shop(url, capacity):
    scheduler = Scheduler(
        url, application="shop", capacity=capacity, tz="Asia/Seoul", ttl=2, heartbeat_every=0.4, attempt_timeout=0.4
    )

    @scheduler.cron("0 3 * * *")
    def daily(run: Run) -> None:
        if run.scheduled_for.day == 3:
            raise ValueError("no such <b>day</b>")

    @scheduler.job()
    def asked(run: Run) -> None: ...

    return scheduler


@pytest.fixture
def jobs(sqlite_url):
    """Its jobs are in the ledger, and no node runs them."""
    with shop(sqlite_url, 0) as scheduler:
        yield scheduler


@pytest.fixture
def browser(jobs, opened):
    return opened(jobs, authorize=lambda _request: Caller("ann", "act"))


def fields_of(page):
    """What the form of a list would send, without what a person types."""
    form = page.partition('id="backfill"')[2].partition("</form>")[0]
    return dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', form))


def create(browser, many=5, **fields):
    """Fill in both forms. Returns the number of the new backfill."""
    listed = browser.press("/do/backfill", job="daily", **SPAN, **fields)
    answer = browser.press("/do/backfill", **fields_of(listed.text), typed=many)
    assert answer.status_code == 303, answer.text
    return int(re.search(r"/backfill\?number=(\d+)", answer.headers["location"])[1])


def test_a_backfill_is_listed_first_and_created_by_typing_the_number_of_its_runs(jobs, browser):
    assert "List the backfill" in browser.get("/job?name=daily").text
    listed = browser.press("/do/backfill", job="daily", **SPAN, at_once=2, why="the printer", include="missing")
    assert listed.status_code == 200
    assert "5 due times would run, at most 2 at once. Nothing has been changed yet." in listed.text
    times = re.findall(r'<li><time datetime="([^"]+)"', listed.text)
    assert times == [f"2026-11-{day:02}T03:00:00+09:00" for day in range(1, 6)]  # in the zone of the job
    sent = fields_of(listed.text)
    assert {"since": "2026-11-01T00:00:00+09:00", "at_once": "2", "include": "missing"}.items() <= sent.items()
    for typed in ("4", "five", "55"):
        wrong = browser.press("/do/backfill", **sent, typed=typed)
        assert (wrong.status_code, "Not created" in wrong.text) == (400, True)
    assert (jobs.backfills(), jobs.runs("daily")) == ([], [])
    created = browser.press("/do/backfill", **sent, typed="5")
    assert created.status_code == 303
    page = browser.get(created.headers["location"]).text
    [view] = jobs.backfills()
    assert (view.total, view.at_once, view.by, view.why, view.include) == (5, 2, "ann", "the printer", ("missing",))
    assert "The backfill was created." in page
    assert f"Backfill {view.number}" in page
    assert "0 of 5 finished; 2 waiting, 3 left" in page
    assert "the printer" in page
    assert f'<a href="/backfill?number={view.number}">' in browser.get("/job?name=daily").text
    assert [(one.what, one.by, one.why) for one in jobs.actions()] == [("backfill", "ann", "the printer")]
    again = browser.press("/do/backfill", **sent, typed="5")  # the same form once more: two runs are requested
    assert "5 was typed, and 3 runs would begin now" in again.text
    assert len(jobs.backfills()) == 1


def test_a_backfill_is_paused_resumed_and_cancelled(jobs, browser):
    number = create(browser, at_once=1)

    def press(verb):
        answer = browser.press(f"/do/{verb}", backfill=number, why=f"why {verb}")
        assert answer.headers["location"] == f"/backfill?number={number}&done={verb}", answer.text
        return browser.get(answer.headers["location"]).text

    def buttons(page):
        return re.findall(r"<button[^>]*>([^<]+)</button>", page.partition('id="live"')[2])

    assert buttons(browser.get(f"/backfill?number={number}").text)[:2] == ["Pause", "Cancel"]
    page = press("pause-backfill")
    assert buttons(page)[:2] == ["Resume", "Cancel"]
    assert "by ann: why pause-backfill" in page
    assert browser.press("/do/pause-backfill", backfill=number).status_code == 409
    assert buttons(press("resume-backfill"))[:2] == ["Pause", "Cancel"]
    page = press("cancel-backfill")
    assert buttons(page) == []
    assert "1 cancelled; 4 left" in page
    assert jobs.find_backfill(number).state == "cancelled"
    assert [one.what for one in reversed(jobs.actions())] == [
        "backfill", "pause-backfill", "resume-backfill", "cancel-backfill",
    ]  # fmt: skip
    for verb in ("pause-backfill", "resume-backfill", "cancel-backfill"):
        assert browser.press(f"/do/{verb}", backfill=number).status_code == 409
        assert browser.press(f"/do/{verb}", backfill=999).status_code == 404
        assert browser.press(f"/do/{verb}", backfill="x").status_code == 400
    assert browser.get("/backfill?number=999").status_code == 404
    assert browser.get("/backfill").status_code == 404


def test_its_page_says_how_far_it_is(sqlite_url, jobs, browser):
    number = create(browser)
    jobs.pause("daily", why="not now")
    eventually(lambda: "daily is paused" in browser.get(f"/backfill?number={number}").text, within=20)
    jobs.resume("daily")
    with shop(sqlite_url, 5):
        eventually(lambda: jobs.find_backfill(number).state == "done", within=30)
        eventually(lambda: "5 of 5 finished: 4 succeeded, 1 failed" in browser.get(f"/backfill?number={number}").text)
    page = browser.get(f"/backfill?number={number}").text
    assert "ValueError: no such &lt;b&gt;day&lt;/b&gt;" in page
    assert "/do/" not in page
    more = browser.press("/do/backfill", job="daily", **SPAN, include="failed").text
    assert "1 due time would run." in more


def test_each_right_opens_its_own_step(jobs, browser, opened):
    number = create(browser)
    forms = {
        "backfill": {"job": "daily", **SPAN},
        "pause-backfill": {"backfill": number},
        "resume-backfill": {"backfill": number},
        "cancel-backfill": {"backfill": number},
    }
    for right in forms:
        other = opened(jobs, authorize=lambda _request, right=right: {right})
        for verb, fields in forms.items():
            assert (other.press(f"/do/{verb}", **fields).status_code == 403) is (verb != right), (right, verb)
        assert ("List the backfill" in other.get("/job?name=daily").text) is (right == "backfill")
    reader = opened(jobs, authorize=lambda _request: "read")
    assert "/do/" not in reader.get(f"/backfill?number={number}").text
    typed = {"job": "daily", **SPAN, "typed": "5"}
    assert reader.press("/do/backfill", **typed).status_code == 403


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"since": ""}, "since: it is missing"),
        ({"since": "yesterday"}, "since: &#39;yesterday&#39; is not a time"),
        ({"since": "-7 moons"}, "since:"),
        ({"since": "0001-01-01"}, "further than a calendar reaches"),
        ({"since": "-99999999d"}, "longer than 300 years"),
        ({"since": "9999-12-31", "until": "-1h"}, "Write since, then until"),
        ({"since": "-7d", "until": "-8d"}, "Write since, then until"),
        ({"since": "-7d", "include": "all"}, "include: &#39;all&#39; is not known"),
        ({"since": "-7d", "at_once": "many"}, "at_once: &#39;many&#39; is not a number"),
        ({"since": "-7d", "at_once": "0"}, "at_once: 0 is not a whole number"),
        ({"since": "-7d", "job": "asked"}, "has no trigger"),
    ],
)
def test_what_makes_no_sense_is_refused(jobs, browser, fields, said):
    answer = browser.press("/do/backfill", **{"job": "daily", **fields})
    assert answer.status_code == 400
    assert said in answer.text
    assert browser.press("/do/backfill", since="-7d").status_code == 400
    assert browser.press("/do/backfill", job="nope", since="-7d").status_code == 404
    assert jobs.backfills() == []


def test_due_times_that_may_have_run_are_left_out_until_they_are_asked_for(sqlite_url, jobs, browser):
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as file, file:
        file.execute("UPDATE tenure_job SET kept_since = unixepoch('2026-11-03T00:00:00Z') * 1000000")
    listed = browser.press("/do/backfill", job="daily", **SPAN).text
    assert "2 due times would run." in listed
    assert "3 older due times have no run that is still kept" in listed
    assert "even_forgotten" in listed.partition("List them, too")[0].rpartition("<form")[2]
    assert "even_forgotten" not in fields_of(listed)
    more = browser.press("/do/backfill", **fields_of(listed), even_forgotten="yes").text
    assert "5 due times would run." in more
    assert "would run a second time" in more
    assert browser.press("/do/backfill", **fields_of(more), typed="5").status_code == 303
    assert jobs.backfills()[0].total == 5
    assert "List the backfill" not in browser.get("/job?name=asked").text


def test_what_a_browser_watches_differs_when_a_backfill_goes_on(jobs, browser):
    number = create(browser, at_once=1)
    topic = f"backfill-{number}"
    assert f"watch={topic}" in browser.get(f"/backfill?number={number}").text

    def stamp():
        return LedgerReads(jobs).stamps(frozenset({topic}))[topic]

    before = stamp()
    assert stamp() == before
    jobs.pause_backfill(number, by="ann")
    assert stamp() != before
