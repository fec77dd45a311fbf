"""Whatever users' code writes (names, reasons, arguments, log lines, exceptions), a page shows it as text."""

import re
from html.parser import HTMLParser
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.web import Browser, served
from tenure import Run, Scheduler, every
from tenure.errors import TenureError
from tenure.web import Caller, web

WICKED = [
    '"><img src=x onerror=alert(1)>',
    "'><script>alert(1)</script>",
    "</pre></title><svg onload=alert(1)>",
    "javascript:alert(1)",
    "{{ 7*7 }}{% raw %}",
    "]]><!--",
    "a\x1b[2J\x07\x9b31m",
    "right\u202eto\u2066left",
    "\ufeff\u2028\u2029",
    "&lt;script&gt;&amp;",
    "x" * 10_000,
    "é" * 5_000 + "<b>",
    " \t\n\r ",
    "\x00nul",
    "event: changed\n\ndata: 1\n\n",
    "%0d%0aSet-Cookie: a=b",
]
MARK = "mArKeR"
texts = st.builds(
    lambda parts: MARK + "".join(parts),
    st.lists(st.sampled_from(WICKED) | st.text(max_size=20), min_size=1, max_size=3),
)
ALLOWED = {
    "html", "head", "meta", "title", "link", "script", "body", "a", "header", "nav", "div", "span", "form", "button", "main",
    "section", "h1", "h2", "h3", "h4", "p", "ul", "ol", "li", "strong", "small", "table", "thead", "tbody", "tr", "th", "td", "svg",
    "path", "rect", "line", "text", "time", "label", "input", "select", "option", "details", "summary", "textarea", "dl", "dt",
    "dd", "pre", "code", "br", "footer", "article", "dialog", "kbd", "g", "datalist",
}  # fmt: skip


class Looker(HTMLParser):
    """Reads a page as a browser would, and notes what should not be there."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in ALLOWED:
            self.wrong.append(f"<{tag}>")
        for name, value in attrs:
            if name.startswith("on") or name == "style":
                self.wrong.append(f"{tag} {name}={value}")
            if name in {"href", "src", "action"} and not re.match(r"^(/(?!/)|#)", value or ""):
                self.wrong.append(f"{tag} {name}={value}")
            if MARK in name:
                self.wrong.append(f"{tag} {name}")
        if tag == "script" and dict(attrs).keys() != {"src", "defer"}:
            self.wrong.append(str(attrs))

    def handle_comment(self, data):
        self.wrong.append(f"<!--{data}")


def look_at(answer):
    """The page is well-formed for us: only our own elements, and no character that controls anything."""
    looker = Looker()
    looker.feed(answer.text)
    looker.close()
    assert looker.wrong == [], (str(answer.url), looker.wrong)
    bad = re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]", answer.text)
    assert bad is None, (str(answer.url), bad)
    assert "set-cookie" not in answer.headers


@pytest.fixture
def world():
    """One application in memory, on which each example writes more."""
    scheduler = Scheduler(
        "memory://hostile", application="<b>shop</b>", capacity=4, ttl=2, heartbeat_every=0.4, attempt_timeout=0.4
    )

    @scheduler.job()
    def speaks(run: Run, says: str = "") -> None:
        for line in says.split("|"):
            run.log(line)
        raise RuntimeError(says)

    names = iter(range(10**9))
    said = {}
    app = web(
        scheduler,
        authorize=lambda _request: Caller(said.get("by", "ann"), "act"),
        redact=lambda _job, kwargs: {said.get("key", "says"): said.get("text", ""), **kwargs},
    )
    with scheduler, served(app) as base, Browser(base) as browser:
        yield scheduler, browser, said, names


@pytest.mark.timeout(240)
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(text=texts, other=texts)
def test_what_users_write_is_shown_as_text_on_every_page(world, text, other):
    scheduler, browser, said, names = world
    said |= {"by": text[:150], "key": other[:200], "text": text}
    name = f"{next(names)}{other}"[:200]
    try:
        scheduler.add("speaks", every("1h"), name=name, kwargs={"says": text}, by=text[:900])
    except TenureError:
        name = f"job {next(names)}"  # names may not contain everything
        scheduler.add("speaks", every("1h"), name=name, kwargs={"says": text}, by="")
    for written in (text, other):
        try:
            run = scheduler.run_now(name, kwargs={"says": written}, by=written[:900])
            scheduler.pause(name, why=written[:900], by=written[:900], until="1h")
            break
        except TenureError:
            run = scheduler.run_now(name)
    scheduler.resume(name)
    done = scheduler.run_now(name, kwargs={"says": f"{text}|{other}"})
    for _ in range(300):
        if scheduler.find_run(done.id).state == "failed":
            break
        browser.get("/api/v1/status")
    scheduler.pause(name, why="paused")
    said_of_it = {"by": text[:900], "why": other[:900]}
    try:
        filled = scheduler.backfill(name, "-3h", "-0s", dry_run=False, **said_of_it).number
    except TenureError:
        filled = scheduler.backfill(name, "-3h", "-0s", dry_run=False).number
    link = quote(name, safe="")
    pages = [
        "/", f"/?q={quote(text[:300])}", f"/?q={link}", f"/job?name={link}", f"/job?name={link}&arguments=shown",
        f"/job?name={link}&at={quote(text[:300])}", f"/job?name={link}&at=-1m", f"/run/{run.id}", f"/run/{done.id}",
        f"/run/{done.id}?arguments=shown", f"/audit?job={link}", f"/audit?since={quote(text[:100])}", f"/{quote(text[:100])}",
        f"/job?name={quote(text)}", f"/?state={quote(text[:100])}", f"/?done={quote(text[:100])}",
        f"/?updates={quote(text[:100])}",
        f"/?queue={quote(text[:100])}&tag={quote(other[:100])}&sort=next", f"/?sort={quote(text[:100])}",
        "/terms", f"/terms?span={quote(text[:100])}", f"/terms?after={quote(text[:100])}&election={quote(other[:100])}&asked=1",
        "/actions", f"/actions?by={quote(text[:300])}", f"/actions?on={link}", f"/actions?since={quote(text[:100])}",
        f"/backfill?number={filled}", f"/backfill?number={quote(text[:100])}",
        "/load", f"/load?queue={quote(text[:300])}", f"/load?expr={quote(text[:150])}&tz={quote(other[:50])}",
        f"/load?expr=*/5+*+*+*+*&job={link}&missed={quote(text[:100])}", f"/load?from={quote(text[:100])}&to=4h",
        f"/load?to=2h&jobs={quote(other[:100])}", "/load?to=26h",
    ]  # fmt: skip
    for path in pages:
        answer = browser.get(path)
        assert answer.status_code < 500, (path, answer.text[:500])
        look_at(answer)
    for path in ("/api/v1/jobs?arguments=shown", f"/api/v1/job?name={link}", f"/api/v1/runs/{done.id}?arguments=shown"):
        answer = browser.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.text.isascii()
        answer.json()
    for operation, fields in {
        "pause": {"job": name, "why": text, "until": other},
        "run-now": {"job": name, "kwargs": text, "key": other},
        "remove": {"job": text, "typed": text},
        "cancel": {"run": done.id, "why": text},
        "backfill": {"job": name, "since": "-9h", "why": text, "typed": other},
        "pause-backfill": {"backfill": filled, "why": text},
        "cancel-backfill": {"backfill": text, "why": other},
        "resign": {"election": text, "why": other, "span": text},
    }.items():
        answer = browser.press(f"/do/{operation}", **fields)
        assert answer.status_code < 500, (operation, answer.text[:500])
        if answer.status_code != 303:
            look_at(answer)
    for word in ("since", "until", "include", "at_once"):
        answer = browser.press("/do/backfill", **{"job": name, "since": "-9h", word: text})
        assert answer.status_code == 400, word
        look_at(answer)
