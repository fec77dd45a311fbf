"""What people do from the page, as plain forms."""

import re
from html.parser import HTMLParser

import pytest

from harness.scratch import eventually
from tenure.web import Caller


def follow(browser, answer):
    assert answer.status_code == 303, answer.text
    return browser.get(answer.headers["location"])


class Forms(HTMLParser):
    """The forms of a page as a browser reads them: where each goes, and what its fields hold."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "form":
            self.found.append((given.get("action", ""), {}))
        elif tag == "input" and "name" in given:
            self.found[-1][1][given["name"]] = given.get("value", "")


def press(browser, page, operation, **typed):
    """Press a button of a page with what its form holds, and follow."""
    [(action, fields)] = [one for one in Forms(page).found if one[0].partition("?")[0] == f"/do/{operation}"]
    return follow(browser, browser.press(action, **{**fields, **typed}))


NAMES = ["月次\u3000集計", "a\u00a0b", "👩\u200d💻", "right\u202eto left", "<b>\"'&amp;"]


@pytest.mark.parametrize("name", NAMES)
def test_every_button_works_whatever_the_name_of_the_job(resting, opened, name):
    resting.add("nightly", None, name=name)
    browser = opened(resting)
    page = browser.get("/job", params={"name": name}).text
    assert [fields["name"] for _, fields in Forms(page).found if "at" in fields] == [name]
    press(browser, page, "run-now")
    assert [run.job for run in resting.runs(name)] == [name]
    paused = press(browser, page, "pause", why="test").text
    assert resting.find_job(name).state == "paused"
    active = press(browser, paused, "resume").text
    as_shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    press(browser, active, "remove", typed=as_shown)
    assert name not in {job.name for job in resting.jobs()}


def test_updates_that_were_switched_off_stay_off_after_every_action(resting, opened):
    browser = opened(resting)
    page = browser.get("/job?name=nightly&updates=off").text
    for operation, typed in {
        "run-now": {},
        "pause": {"why": "test"},
        "resume": {},
        "remove": {"typed": "nightly"},
    }.items():
        left = press(browser, page, operation, **typed).text
        assert "Updates are off." in left, operation
        page = left if operation == "pause" else page
    audit = browser.get("/audit?updates=off").text
    assert [fields["updates"] for action, fields in Forms(audit).found if "/audit" in action] == ["off"]
    assert "Updates are off." not in press(browser, browser.get("/job?name=fails").text, "run-now").text


def test_run_now_leads_to_the_run_and_pressing_twice_asks_once(scheduler, opened, ended):
    browser = opened(scheduler, authorize=lambda _request: Caller("ann", "act"))
    key = re.search(r'name="key" value="([^"]+)"', browser.get("/job?name=nightly").text)[1]
    answers = [browser.press("/do/run-now", job="nightly", key=key) for _ in range(2)]
    assert len({answer.headers["location"] for answer in answers}) == 1
    assert "A run was requested." in follow(browser, answers[0]).text
    [run] = scheduler.runs("nightly")
    assert ended(scheduler, run.id).state == "succeeded"
    assert run.by == "ann"
    assert key not in browser.get("/job?name=nightly").text.replace(f"<code>{key}</code>", "")


def test_run_now_with_arguments(resting, opened):
    browser = opened(resting)
    follow(browser, browser.press("/do/run-now", job="nightly", kwargs='{"password": "swordfish"}'))
    assert resting.runs("nightly")[0].kwargs == {"password": "swordfish"}
    wrong = browser.press("/do/run-now", job="nightly", kwargs="{password}")
    assert wrong.status_code == 400
    assert "Write a JSON object" in wrong.text


def test_pause_wants_a_reason_and_resume_goes_on(scheduler, opened):
    browser = opened(scheduler, authorize=lambda _request: Caller("ann", "act"))
    assert browser.press("/do/pause", job="sync_stock").status_code == 400
    page = follow(browser, browser.press("/do/pause", job="sync_stock", why="stock <taking>", until="2h"))
    assert "The job is paused" in page.text
    assert "stock &lt;taking&gt;" in page.text
    job = scheduler.find_job("sync_stock")
    assert (job.state, job.paused_by, job.paused_why) == ("paused", "ann", "stock <taking>")
    assert job.paused_until is not None
    for wrong in ("yesterday", "2020-01-01T00:00Z", "2026-01-01 00:00"):
        assert browser.press("/do/pause", job="sync_stock", why="x", until=wrong).status_code == 400
    assert "Pause</button>" not in browser.get("/job?name=sync_stock").text
    follow(browser, browser.press("/do/resume", job="sync_stock"))
    assert scheduler.find_job("sync_stock").state == "active"


def test_a_job_is_removed_by_typing_its_name(resting, opened):
    browser = opened(resting)
    answer = browser.press("/do/remove", job="nightly", typed="nightl")
    assert answer.status_code == 400
    assert resting.find_job("nightly").state == "active"
    page = follow(browser, browser.press("/do/remove", job="nightly", typed="nightly", why="no longer"))
    assert "The job was removed." in page.text
    assert "<h2>Actions</h2>" not in page.text
    assert "nightly" not in {job.name for job in resting.jobs()}


def test_a_removed_job_is_restored_where_it_is_missed_and_on_its_own_page(scheduler, opened):
    browser = opened(scheduler, authorize=lambda _request: Caller("ann", "act"))
    for place in ("/", "/job?name=nightly"):
        scheduler.remove("nightly", why="by mistake")
        eventually(lambda place=place: 'action="/do/restore"' in browser.get(place).text, within=20)
        page = follow(browser, browser.press("/do/restore", job="nightly", why="needed after all"))
        assert "The job is back" in page.text
        assert scheduler.find_job("nightly").state == "active"
        assert "/do/restore" not in page.text
    assert [(one.what, one.by, one.why) for one in scheduler.actions() if one.what == "restore"] == [
        ("restore", "ann", "needed after all")
    ] * 2
    assert browser.press("/do/restore", job="nightly").status_code == 409
    may_not = opened(scheduler, authorize=lambda _request: {"remove"})
    scheduler.remove("nightly")
    assert "/do/restore" not in may_not.get("/job?name=nightly").text
    assert may_not.press("/do/restore", job="nightly").status_code == 403


def test_a_changed_job_goes_back_to_its_code(resting, opened):
    browser = opened(resting, authorize=lambda _request: Caller("ann", "act"))
    assert "Back to the code" not in browser.get("/job?name=nightly").text
    resting.update("nightly", retries=7, why="the disk is slow")
    eventually(lambda: "Back to the code" in browser.get("/job?name=nightly").text, within=20)
    page = follow(browser, browser.press("/do/reset", job="nightly", why="it is quick again"))
    assert "as the code defines it from now on" in page.text
    assert "Back to the code" not in page.text
    assert resting.find_job("nightly").rules.retries == 1
    assert [(one.what, one.by, one.why) for one in resting.actions() if one.what == "reset"] == [
        ("reset", "ann", "it is quick again")
    ]
    assert browser.press("/do/reset", job="nightly").status_code == 409


def test_a_run_is_asked_to_end(scheduler, opened, ended):
    browser = opened(scheduler, authorize=lambda _request: Caller("ann", "act"))
    run = scheduler.run_now("lasts")
    eventually(lambda: scheduler.find_run(run.id).state == "running", within=20)
    assert "Ask it to end" in browser.get(f"/run/{run.id}").text
    follow(browser, browser.press("/do/cancel", run=run.id, why="too slow"))
    assert ended(scheduler, run.id).state == "cancelled"
    over = ended(scheduler, scheduler.run_now("fails").id)
    assert "nothing was changed" in follow(browser, browser.press("/do/cancel", run=over.id)).text
    assert browser.press("/do/cancel", run=999999).status_code == 404
    assert browser.press("/do/cancel", run="x").status_code == 400


def test_a_failed_run_is_tried_again_and_one_that_succeeded_is_not(scheduler, opened, ended):
    browser = opened(scheduler, authorize=lambda _request: Caller("ann", "act"))
    run = ended(scheduler, scheduler.run_now("fails").id)
    assert "Try again" in browser.get(f"/run/{run.id}").text
    follow(browser, browser.press("/do/retry", run=run.id, why="mended"))
    eventually(lambda: scheduler.find_run(run.id).attempt == 2, within=20)
    done = ended(scheduler, scheduler.run_now("nightly").id)
    assert "Try again" not in browser.get(f"/run/{done.id}").text
    assert browser.press("/do/retry", run=done.id).status_code in {404, 409}


def test_the_planner_is_asked_to_resign(scheduler, browser, resting, opened):
    eventually(lambda: "Ask it to resign" in browser.get("/").text, within=20)
    assert "asked to resign" in follow(browser, browser.press("/do/resign")).text
    assert [(action.what, action.by) for action in scheduler.actions()] == [("resign", "web page")]
    idle = opened(resting)
    assert "none was asked" in follow(idle, idle.press("/do/resign")).text


def test_what_is_done_here_stands_in_the_history_with_the_name(resting, opened):
    browser = opened(resting, authorize=lambda _request: Caller("ann@example.com", "act"))
    browser.press("/do/pause", job="nightly", why="because")
    browser.press("/do/resume", job="nightly")
    browser.press("/do/run-now", job="nightly")
    browser.press("/do/cancel", run=resting.runs("nightly")[0].id, why="not needed")
    browser.press("/do/remove", job="nightly", typed="nightly")
    done = [(action.what, action.by) for action in resting.actions()]
    expected = ["pause", "resume", "run-now", "cancel", "remove"]
    assert sorted(done) == sorted((what, "ann@example.com") for what in expected)
    assert "ann@example.com" in browser.get("/job?name=nightly").text


def test_a_job_that_is_not_there_is_refused(resting, opened):
    browser = opened(resting)
    for path in ("/do/run-now", "/do/resume"):
        assert browser.press(path, job="nope").status_code == 404
        assert browser.press(path).status_code == 400
    answer = browser.press("/do/run-now", job="nightl")
    assert "Did you mean" in answer.text


def test_the_next_page_never_comes_from_the_request(resting, opened):
    browser = opened(resting)
    answer = browser.press("/do/pause", job="nightly", why="x", back="https://evil.example", next="//evil.example")
    assert answer.headers["location"].startswith("/job?name=nightly")
    assert "evil" not in browser.get("/?done=<b>evil</b>").text
