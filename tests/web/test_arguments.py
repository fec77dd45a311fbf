"""Arguments are shown where they are asked for, as far as `redact` lets them, and nowhere else."""

import json
import re
from html import unescape

from tenure import Run, Scheduler
from tenure.web import Caller
from tenure.web.api import READS

SECRET = "sEcReT"
MOST = 300
"""Pages of one walk."""


def shop(url, password):
    """An application whose code gives arguments to a job."""
    scheduler = Scheduler(url, application="shop", ttl=2, heartbeat_every=0.4, attempt_timeout=0.4)

    @scheduler.cron("30 2 * * *", kwargs={"region": "eu", "password": password}, expect_within="1h")
    def nightly(run: Run, region: str, password: str) -> None:
        raise RuntimeError("the shelf broke")

    return scheduler


def walk(browser):
    """Every page that links lead to, and every GET of the API, as texts by their address."""
    found, left = {}, ["/", "/job?name=nightly&arguments=shown"]
    while left and len(found) < MOST:
        address = left.pop(0)
        if address in found:
            continue
        answer = browser.get(address)
        assert answer.status_code < 500, address
        found[address] = answer.text
        links = re.findall(r'(?:href|hx-get)="(/[^"]*)"', answer.text)
        left += [unescape(link) for link in links if not link.startswith(("/static", "/log-out"))]
    numbers = re.findall(r"/run/(\d+)", " ".join(found))
    for path in READS:
        for number in numbers if "{number}" in path else ["1"]:
            for query in ("", "?name=nightly", "?name=nightly&arguments=shown", "?job=nightly&arguments=shown"):
                address = path.replace("{number}", number) + query
                found[address] = browser.get(address).text
    return found


def test_no_argument_is_shown_to_who_may_only_read(sqlite_url, opened, ended):
    with shop(sqlite_url, f"{SECRET}-code"):
        pass
    with shop(sqlite_url, f"{SECRET}-deployed") as scheduler:
        scheduler.update("nightly", kwargs={"region": "us", "password": f"{SECRET}-stored"}, by="ops", why="moved")
        ended(scheduler, scheduler.run_now("nightly").id)
        own = {"region": "eu", "password": f"{SECRET}-own"}
        ended(scheduler, scheduler.run_now("nightly", kwargs=own, key="mine", by="ops").id)
        hidden = opened(
            scheduler,
            authorize=lambda _request: Caller("ann", "read"),
            redact=lambda _job, arguments: dict.fromkeys(arguments, "***"),
        )
        found = walk(hidden)
        again = opened(scheduler, authorize=lambda _request: {"run-now"}).press(
            "/do/run-now", job="nightly", key="mine"
        )
    assert [address for address, text in found.items() if SECRET in text] == []
    told = "kwargs: password, region changed"
    assert told in found["/job?name=nightly"]  # the lead, "The code says …"
    assert told in found["/actions"]
    for read in ("actions", "why?name=nightly"):
        assert told in found[f"/api/v1/{read}"], read
    assert '"code": {"kwargs": "password, region changed"}' in found["/api/v1/job?name=nightly"]
    assert any("***" in text for text in found.values())  # arguments were asked for
    assert (again.status_code, SECRET in again.text) == (400, False)
    assert "was asked for with other arguments" in again.text


def test_what_is_not_redacted_is_hidden_until_it_is_asked_for(sqlite_url, opened, ended):
    with shop(sqlite_url, f"{SECRET}-code") as scheduler:
        scheduler.update("nightly", kwargs={"region": "us", "password": f"{SECRET}-stored"}, by="ops")
        ended(scheduler, scheduler.run_now("nightly", kwargs={"region": "eu", "password": f"{SECRET}-own"}).id)
        found = walk(opened(scheduler, authorize=lambda _request: "read"))
    showing = {address for address, text in found.items() if SECRET in text}
    assert showing, "none was shown at all"
    assert {address for address in showing if "arguments=shown" not in address} == set()


def form_of(page):
    """What the form for "run now" is filled in with."""
    form = page.partition('action="/do/run-now"')[2].partition("</form>")[0]
    [text] = re.findall(r"<textarea[^>]*>(.*?)</textarea>", form, re.DOTALL) or [""]
    return dict(re.findall(r'name="([^"]+)" value="([^"]*)"', form)), unescape(text)


def test_run_now_is_filled_in_for_who_may_give_arguments_of_their_own(sqlite_url, opened):
    with shop(sqlite_url, "p") as scheduler:
        scheduler.update("nightly", kwargs={"region": "</textarea>é", "password": "p\u202e"})
        browser = opened(scheduler)
        fields, text = form_of(browser.get("/job?name=nightly").text)
        assert json.loads(text) == {"region": "</textarea>é", "password": "p\u202e"}
        fields["kwargs"] = text.replace("\n", "\r\n")  # as browsers send it
        browser.press("/do/run-now", **fields)
        changed = fields | {"key": "2", "kwargs": text.replace("</", "")}
        browser.press("/do/run-now", **changed)
        given = [run.kwargs for run in reversed(scheduler.runs("nightly"))]
        assert given == [None, {"region": "textarea>é", "password": "p\u202e"}]


def test_run_now_is_not_filled_in_where_redact_changes_anything(resting, opened):
    resting.add("nightly", None, name="report", kwargs={"password": f"{SECRET}-stored"})

    def in_place(_job, arguments):
        arguments["password"] = "***"
        return arguments

    def refuses(_job, arguments):
        raise KeyError(arguments["user"])

    for redact in (in_place, refuses, lambda _job, _arguments: {"password": object()}):
        page = opened(resting, redact=redact).get("/job?name=report")
        assert (page.status_code, form_of(page.text)[1], SECRET in page.text) == (200, "", False)
    for rights in ({"run-now"}, {"run-now-arguments"}, "read"):
        assert (
            SECRET not in opened(resting, authorize=lambda _request, rights=rights: rights).get("/job?name=report").text
        )
    assert SECRET in form_of(opened(resting).get("/job?name=report").text)[1]


def test_arguments_that_were_not_touched_are_those_of_the_job_at_that_time(resting, opened):
    resting.add("nightly", None, name="report", kwargs={"password": "old"})
    browser = opened(resting)
    fields, text = form_of(browser.get("/job?name=report").text)
    resting.update("report", kwargs={"password": "new"})
    browser.press("/do/run-now", **fields, kwargs=text)
    assert [run.kwargs for run in resting.runs("report")] == [None]
