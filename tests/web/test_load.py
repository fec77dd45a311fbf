"""The page of the load ahead, and what-if: counted in the background, in slices, and nothing is written."""

import re
import threading
import uuid
from dataclasses import replace
from datetime import datetime, timedelta
from urllib.parse import quote

import pytest

from harness.scratch import eventually
from harness.web import Browser, served_wsgi
from tenure import Scheduler, cron
from tenure.core.figures import Figures, Measure, bucket_of
from tenure.core.load import MINUTES
from tenure.core.messages import JobChange
from tenure.core.records import Change
from tenure.errors import TenureError
from tenure.jobs.load_count import PAGE, SLICE, LoadCount
from tenure.web import Caller, web_wsgi
from tenure.web.load_counter import BackgroundLoad
from tenure.web.what_if import AskedOutage, AskedSchedule
from web.test_hostile import WICKED, look_at

MANY = 2000
BODY = lambda: None  # noqa: E731 - nothing of it runs here


def crowded(jobs: int = 60, **options) -> Scheduler:
    """Many jobs in one minute, and one node that takes two runs at a time."""
    scheduler = Scheduler(
        f"memory://{uuid.uuid4()}", application="shop", tz="Europe/Berlin", capacity=2, ttl=2, heartbeat_every=0.4,
        attempt_timeout=0.4, **options,
    )  # fmt: skip
    for number in range(jobs):
        scheduler.cron("30 2 * * *", name=f"nightly:{number}", queue="etl" if number % 2 else "default")(BODY)
    scheduler.scheduled(cron("0 * * * *", tz="UTC"), name="hourly", pool="warehouse")(BODY)
    return scheduler


@pytest.fixture
def crowd():
    with crowded() as scheduler:
        yield scheduler


def written(scheduler):
    """All that must stay as it is."""
    return [(job.name, job.generation, job.rules) for job in scheduler.jobs()], scheduler.actions()


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", page))


def loaded(browser, path="/load") -> str:
    """A page, as soon as the first count is complete."""
    eventually(lambda: "counted for the first time" not in browser.get("/load").text, within=20)
    answer = browser.get(path)
    assert answer.status_code == 200
    return answer.text


def test_the_page_shows_what_is_due_and_whether_it_fits(crowd, opened):
    crowd.pool("warehouse", 3)
    page = loaded(opened(crowd, authorize=lambda _request: "read"))
    said = text_of(page)
    assert re.search(r"\d+ runs may begin in the next 24 h, the most in one minute at \w+ 02:30 CES?T: 60\.", said)
    assert "61 jobs were counted" in said
    assert "61 jobs have not been measured yet" in said
    assert "60 jobs are due in the same minute, next at" in said
    assert 'spread="10m"' in page.replace("&#34;", '"')
    assert "touches 60 jobs" in said
    assert "02:30 does not exist: it runs at 03:00 instead" in said
    assert re.search(r"warehouse ?3 ?0 ?0", said), "a pool, its size, and what runs and waits"
    assert page.count('<svg class="load"') == 2
    assert "2 on 1 node" in said
    browser = opened(crowd)
    assert "the most at" in loaded(browser, "/load?queue=etl")
    assert browser.get("/load?queue=none").status_code == 404


def test_the_same_as_json(crowd, opened):
    browser = opened(crowd)
    loaded(browser)
    counted = browser.get("/api/v1/load").json()["load"]
    assert counted["ok"], "jobs that were never measured take no time"
    assert counted["slots"] == 2
    assert {one["queue"]: one["due"] for one in counted["queues"]} == {"default": 30 + 24, "etl": 30}
    assert all(len(one["starts"]) == MINUTES for one in counted["queues"])
    assert sum(hour["due"] for hour in counted["hours"]) == 84


def test_a_forecast_that_does_not_fit_is_told(crowd, opened):
    """The figures are those of runs that took ten minutes each."""
    with crowd._service.ledger() as ledger:
        now = ledger.now()
        for row in ledger.jobs("shop"):
            tables = ledger._tables
            took = Measure(600_000_000, 600_000_000, {bucket_of(600_000_000): 1})
            tables.figures[row.id].hours[now // 3600 * 3600 - 7200] = Figures(succeeded=1, took=took)
    browser = opened(crowd)
    said = text_of(loaded(browser))
    assert "more runs are due than 2 slots can take. Forecast wait: up to" in said
    assert "their runs take 10 h in all" in said.lower()
    counted = browser.get("/api/v1/load").json()["load"]
    assert not counted["ok"]
    assert counted["longest_wait"] > 4 * 3600


def test_what_is_counted_shows_its_age_and_progress(opened, monkeypatch):
    gate, reads = threading.Event(), []
    original = LoadCount.advance

    def slowly(self, steps=SLICE):
        reads.append(self.done)
        if self.done >= PAGE:
            gate.wait(20)
        return original(self, steps)

    monkeypatch.setattr(LoadCount, "advance", slowly)
    with crowded(3 * PAGE) as scheduler:
        browser = opened(scheduler)
        said = text_of(browser.get("/load").text)
        assert re.search(r"being counted for the first time: \d{3} of 301 jobs so far", said), said
        answer = browser.get("/api/v1/load").json()
        assert answer["load"] is None
        assert answer["counting"]["of"] == 301
        refused = browser.get("/api/v1/what-if?expr=30s")
        assert (refused.status_code, refused.json()["title"]) == (503, "Not counted yet")
        gate.set()
        eventually(lambda: "301 jobs were counted" in text_of(browser.get("/load").text), within=20)


def test_a_count_that_fails_says_why_and_is_made_again(crowd, opened, monkeypatch):
    browser, broken = opened(crowd), [True]
    original = LoadCount.advance

    def breaks(self, steps=SLICE):
        if broken:
            raise RuntimeError("the <b>disk</b>")
        return original(self, steps)

    monkeypatch.setattr(LoadCount, "advance", breaks)
    monkeypatch.setattr("tenure.web.load_counter.AGAIN", 0.0)
    assert "could not be counted: RuntimeError: see the log" in text_of(browser.get("/load").text)
    assert "RuntimeError" in browser.get("/api/v1/load").json()["problem"]
    broken.clear()
    eventually(lambda: "61 jobs were counted" in text_of(browser.get("/load").text), within=20)


@pytest.mark.timeout(180)
def test_many_jobs_are_counted_in_short_slices_and_pages(sqlite_url):
    scheduler = Scheduler(sqlite_url, application="shop")
    for number in range(MANY):
        scheduler.cron(f"{number % 60} {number % 24} * * *", name=f"job:{number:05}")(BODY)
    pages, opened = [], scheduler._service.ledger

    def counted_open():
        pages.append(1)
        return opened()

    with opened() as ledger:
        ledger.sync("shop", 0, scheduler._service.definitions.changes(ledger.now()))
    load = BackgroundLoad("shop", counted_open)
    eventually(lambda: load.state(1.0).counted is not None, within=150)
    counted = load.state().counted
    assert counted.load.jobs == MANY
    assert counted.load.whole.total == MANY, "each once"
    assert len(pages) >= MANY / PAGE, "the jobs are not read at once"
    assert load.longest <= 2 * SLICE, "each slice ends soon"
    assert load.state().progress is None, "and it is not counted again at once"


def test_a_schedule_is_answered_without_being_written(crowd, opened):
    browser, before = opened(crowd, authorize=lambda _request: Caller("ann", "read")), written(crowd)
    loaded(browser)
    page = browser.get("/load?expr=30+2+*+*+*&tz=Europe/Berlin&missed=all&grace=1h&overlap=wait")
    said = text_of(page.text)
    assert page.status_code == 200
    assert "It begins 1 time in the next 24 h." in said
    assert "The busiest minute of all jobs is then" in said
    assert " with 61." in said
    assert "at most 60 others begin; in the same hours minute :" in said
    assert "for 5 min: 1 due: 1 begin late, within grace" in said
    assert "for 72 h: 3 due: 1 made up for, 2 missed and never run" in said
    assert "waits for its turn" in said
    assert "clocks go forward 1 h" in said
    times = re.findall(r"<li><time datetime=\"([^\"]+)\"", page.text)
    assert len(times) == 20
    assert all(datetime.fromisoformat(time).strftime("%H:%M") in {"02:30", "03:00"} for time in times)
    instead = browser.get("/load?expr=every+10m&job=nightly:7").text
    assert "It begins 144 times in the next 24 h, instead of 1." in text_of(instead)
    assert written(crowd) == before


def test_a_question_is_asked_again_with_all_of_its_options(crowd, opened):
    asked = {"expr": "30 2 * * *", "tz": "UTC", "job": "", "queue": "reports", "spread": "5m", "grace": "1h"}
    page = opened(crowd).get("/load", params=asked).text
    form = page.partition("… a job had this schedule?")[2].partition("</form>")[0]
    held = dict(re.findall(r'<input name="(\w+)" value="([^"]*)"', form))
    assert {word: held[word] for word in asked} == asked
    filtered = opened(crowd).get("/load?queue=default").text  # which is another question
    assert 'name="queue" value=""' in filtered


def test_an_outage_is_answered_job_by_job(crowd, opened):
    browser, before = opened(crowd, authorize=lambda _request: Caller("ann", "read")), written(crowd)
    loaded(browser)
    tomorrow = (datetime.now().astimezone() + timedelta(days=2)).strftime("%Y-%m-%d")
    page = browser.get("/load", params={"from": f"{tomorrow} 02:00", "to": "4h"})
    said = text_of(page.text)
    assert "64 due times of 61 jobs fall into it: 0 begin late, within their grace; 61 are missed" in said
    assert "3 are missed and never run" in said or "2 are missed and never run" in said
    assert "61 runs are ready at once for 2 slots" in said
    one = browser.get("/load", params={"from": f"{tomorrow} 02:00", "to": f"{tomorrow} 06:00", "jobs": "HOURLY"})
    assert "of 1 job fall into it" in text_of(one.text)
    assert written(crowd) == before


@pytest.mark.parametrize(
    ("query", "trouble"),
    [
        ("expr=61+*+*+*+*", "61"),
        ("expr=30s&tz=Mars/Olympus", "Mars/Olympus"),
        ("expr=30s&job=nobody", "is not among the jobs that were counted"),
        ("expr=30s&missed=never", "Write 'latest', 'skip' or 'all'"),
        ("expr=30s&grace=-5", "grace"),
        (f"expr={'x' * 300}", "more than 200 characters"),
        ("expr=%00", "NUL"),
        ("from=soon&to=4h", "is not a time"),
        ("from=&to=tomorrow", "is not a time"),
        ("from=%2B1h", "to: it is missing"),
        ("from=%2B1h&to=-1h", "is not after the beginning"),
        ("from=%2B1h&to=40d", "Write at most 31 days"),
        ("from=9999-12-31T23:59&to=1d", "further than ten years"),
        ("from=0001-01-01&to=1d", "further than ten years"),
        ("to=4h&jobs=nobody", "contains 'nobody'"),
        ("to=999999999999d", "longer than 300 years"),
    ],
)
def test_what_is_wrong_is_said_beside_the_form_and_by_the_api(crowd, opened, query, trouble):
    browser = opened(crowd)
    loaded(browser)
    page = browser.get(f"/load?{query}")
    assert page.status_code == 200
    assert trouble in page.text.replace("&#39;", "'")
    refused = browser.get(f"/api/v1/what-if?{query}")
    assert refused.status_code == 400, refused.text
    assert trouble in refused.json()["detail"]
    assert browser.get("/api/v1/what-if").status_code == 400


def test_a_question_has_a_budget_and_says_when_it_is_spent(crowd, opened, monkeypatch):
    monkeypatch.setattr("tenure.web.what_if.STEPS", 100)
    browser = opened(crowd)
    loaded(browser)
    outage = browser.get("/api/v1/what-if", params={"to": "20d"}).json()["outage"]
    assert outage["cut"]
    assert outage["looked_at"] < 61 == outage["jobs"]
    assert "The budget was spent" in text_of(browser.get("/load", params={"to": "20d"}).text)
    assert browser.get("/api/v1/what-if?expr=*/5+*+*+*+*").json()["schedule"]["cut"]


def test_the_load_is_the_same_under_wsgi(crowd):
    app = web_wsgi(crowd, authorize=lambda _environ: "read")
    with served_wsgi(app) as base, Browser(base) as browser:
        assert "61 jobs were counted" in text_of(loaded(browser))
        assert browser.get("/api/v1/what-if?expr=30s").json()["schedule"]["due"] == 2880


def test_runs_that_were_requested_for_later_count_and_what_cannot_be_read_is_named(opened):
    scheduler = crowded(0)
    scheduler.job(name="asked")(BODY)
    with scheduler:
        scheduler.run_at("asked", datetime.now().astimezone() + timedelta(hours=2))
        scheduler.pause("hourly", why="move", until="3h")
        with scheduler._service.ledger() as ledger:
            (row,) = ledger.jobs("shop", "asked")
            unreadable = replace(row.spec, name="newer", trigger='{"v": 99}')
            ledger.change(JobChange("shop", "newer", Change.ADDED, spec=unreadable, next_due=ledger.now() + 600))
        browser = opened(scheduler)
        said = text_of(loaded(browser))
        found = browser.get("/api/v1/load").json()["load"]
    assert (found["requested"], found["unreadable"]) == (1, ["newer"])
    assert sum(hour["due"] for hour in found["hours"]) == 1 + 21, "of the paused job only what comes after its pause"
    assert "1 run requested for later: counted" in said
    assert "Not counted, because no due time can be computed: newer" in said


def test_who_may_not_see_the_page_sees_no_load(crowd, opened):
    browser = opened(crowd, authorize=lambda _request: None)
    for path in ("/load", "/api/v1/load", "/api/v1/what-if?expr=30s"):
        assert browser.get(path).status_code == 403


def test_what_is_asked_is_a_value_that_serves_others_too():
    given = {"expr": " 30s ", "tz": "", "missed": "all", "grace": ""}
    assert AskedSchedule.of(given) == AskedSchedule("30s", "", "", (("missed", "all"),))
    assert AskedSchedule.of({}) is AskedOutage.of({}) is None


def test_names_of_others_are_text_on_the_page_and_in_json(opened):
    scheduler = crowded(0)
    for number, wicked in enumerate(WICKED):
        for name, queue in ((f"{number}{wicked}"[:190], wicked[:90]), (f"plain {number}", "default")):
            try:
                scheduler.cron("30 2 * * *", name=name, queue=queue, pool=queue)(BODY)
            except TenureError:  # it cannot be called that
                continue
    with scheduler:
        browser = opened(scheduler)
        loaded(browser)
        queues = browser.get("/api/v1/load").json()["load"]["queues"]
        assert len(queues) > 5
        for path in ("/load", "/load?to=30h", *(f"/load?queue={quote(one['queue'], safe='')}" for one in queues)):
            look_at(browser.get(path))
        assert browser.get("/api/v1/load").text.isascii()
