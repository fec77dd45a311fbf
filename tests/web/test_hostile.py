"""Whatever users' code writes (names, reasons, arguments, log lines, exceptions), a page shows it as text."""

import json
import re
import unicodedata
from dataclasses import replace
from html.parser import HTMLParser
from itertools import count
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from harness.scratch import eventually
from harness.web import Browser, served
from tenure import Election, Run, Scheduler, closed, every
from tenure.core.alerts import AlertKind, AlertLimits, Symptom, steps
from tenure.core.messages import JobChange
from tenure.core.records import Change
from tenure.errors import NotYet
from tenure.web import Caller, web
from tenure.web.api import READS
from tenure.web.api.answers import BASE
from tenure.web.api.reads import OPENAPI

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
STORES = map("memory://hostile-{}".format, count())
LABEL = f"{MARK}'><script>alert(1)</script>\u202e{{{{ 7*7 }}}}"
texts = st.builds(
    lambda parts: MARK + "".join(parts),
    st.lists(st.sampled_from(WICKED) | st.text(max_size=20), min_size=1, max_size=3),
)
SLOW = {
    "deadline": None,
    "phases": [Phase.generate],  # what fails is short already, and a smaller example would take minutes to find
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}
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


def called(text):
    """The text, as far as it may be a name."""
    return "".join(c for c in text if unicodedata.category(c) not in {"Cc", "Cs"})[:150].strip()


def resolved(parameter):
    """A parameter of the OpenAPI file."""
    return (
        OPENAPI["components"]["parameters"][parameter["$ref"].rpartition("/")[2]] if "$ref" in parameter else parameter
    )


@pytest.fixture
def world():
    """One application in memory, on which each example writes more."""
    cadence = {"ttl": 2, "heartbeat_every": 0.4, "attempt_timeout": 0.4}
    store = next(STORES)
    scheduler = Scheduler(store, application="<b>shop</b>", capacity=4, label=LABEL, **cadence)

    @scheduler.job(overlap="allow")
    def speaks(run: Run, says: str = "", how: str = "raises") -> object:
        run.progress(1, 3, says)
        for line in says.split("|"):
            run.log(line)
        if how == "looks":
            raise NotYet("1h", says)
        if how == "returns":
            return {says[:300]: [says[:300]]}
        raise RuntimeError(says)

    names = iter(range(10**9))
    said = {}
    app = web(
        scheduler,
        authorize=lambda _request: Caller(said.get("by", "ann"), "act"),
        redact=lambda _job, kwargs: {said.get("key", "says"): said.get("text", ""), **kwargs},
    )
    leads = Election(store, '"><img src=x onerror=alert(1)>{{ 7*7 }}', label=LABEL, **cadence)
    with scheduler, leads, served(app) as base, Browser(base) as browser:
        eventually(lambda: leads.is_leader, within=20)
        yield scheduler, browser, said, names


def alert(ledger, application, name, text):
    """Open an alert about a job, as two looks that find the same do."""
    found = Symptom(AlertKind.FAILING, name, text.replace("\0", ""), ledger.now() - 60)
    for _ in range(2):
        now, known = ledger.now(), ledger.open_alerts(application)
        made = steps(application, known, [found], judged=(), now=now, limits=AlertLimits())
        assert all(ledger.note_alerts(application, now, made, ["log"]))


def write(world, text, other):
    """Write these texts into every field that users' code can write. Returns the names and numbers of what they are in."""
    scheduler, _, said, names = world
    said |= {"by": text[:150], "key": other[:200], "text": text}
    number = next(names)
    name, place = (called(f"{number}{one}") for one in (other, text))
    tag = "".join(called(text).split())[:100]
    why, by = (one.replace("\0", "")[:900] for one in (text, other))
    scheduler.add(
        "speaks", None, name=name, kwargs={"says": text}, by=why, tags=(tag, MARK), pool=place, overlap="allow"
    )
    trigger = every("1h") - closed(text.replace("\0", ""), weekly=["Sun 00:00-00:01"], tz="UTC")
    scheduler.add("speaks", trigger, name=f"q{name}"[:200], queue=place, pool=place, kwargs={"says": text})
    scheduler.pool(place, 3, by=why, why=by)
    with scheduler._service.ledger() as ledger:
        row = ledger.jobs(scheduler.application, name)[0]
        spec = replace(row.spec, name=f"t{name}"[:200], trigger=json.dumps({"v": 99, "kind": text, other: [text]}))
        ledger.change(
            JobChange(scheduler.application, spec.name, Change.ADDED, spec=spec, next_due=ledger.now() + 3600)
        )
        alert(ledger, scheduler.application, name, text)
    span = {"since": "-3h", "until": "-0s", "dry_run": False, "even_forgotten": True}
    backfill = scheduler.backfill(f"q{name}"[:200], **span, why=why, by=by)
    waits = scheduler.run_at(name, in_="1h", slot=place, by=why, why=by)
    run = scheduler.run_now(name, kwargs={"says": other}, by=by)
    scheduler.pause(name, why=by, by=why, until="1h")
    scheduler.resume(name)
    done = scheduler.run_now(name, kwargs={"says": f"{text}|{other}"})
    looks = scheduler.run_now(name, kwargs={"says": text, "how": "looks"})
    told = scheduler.run_now(name, kwargs={"says": text, "how": "returns"})
    eventually(lambda: scheduler.find_run(done.id).state == "failed", within=30)
    eventually(lambda: scheduler.find_run(looks.id).looks == 1, within=30)
    eventually(lambda: scheduler.find_run(told.id).state == "succeeded", within=30)
    scheduler.pause(name, why="paused")
    runs = {"run": run.id, "done": done.id, "looks": looks.id, "told": told.id, "waits": waits.id}
    return SimpleNamespace(name=name, link=quote(name, safe=""), place=place, tag=tag, backfill=backfill.number, **runs)


@pytest.mark.timeout(240)
@settings(max_examples=12, **SLOW)
@given(text=texts, other=texts)
def test_what_users_write_is_shown_as_text_on_every_page(world, text, other):
    browser, there = world[1], write(world, text, other)
    name, link, done, place, tag = (
        there.name,
        there.link,
        there.done,
        quote(there.place, safe=""),
        quote(there.tag, safe=""),
    )
    pages = [
        "/", f"/?q={quote(text[:300])}", f"/?q={link}", f"/job?name={link}", f"/job?name={link}&arguments=shown",
        f"/job?name={link}&at={quote(text[:300])}", f"/job?name={link}&at=-1m", f"/run/{there.run}", f"/run/{done}",
        f"/run/{done}?arguments=shown", f"/audit?job={link}", f"/audit?since={quote(text[:100])}", f"/{quote(text[:100])}",
        f"/job?name={quote(text)}", f"/?state={quote(text[:100])}", f"/?done={quote(text[:100])}",
        f"/?updates={quote(text[:100])}",
        f"/?queue={quote(text[:100])}&tag={quote(other[:100])}&sort=next", f"/?sort={quote(text[:100])}",
        "/terms", f"/terms?span={quote(text[:100])}", f"/terms?after={quote(text[:100])}&election={quote(other[:100])}&asked=1",
        "/actions", f"/actions?by={quote(text[:300])}", f"/actions?on={link}", f"/actions?since={quote(text[:100])}",
        f"/backfill?number={there.backfill}", f"/backfill?number={quote(text[:100])}",
        f"/job?name={quote(f'q{name}'[:200], safe='')}", f"/job?name={quote(f't{name}'[:200], safe='')}",
        f"/run/{there.waits}", f"/run/{there.looks}", f"/run/{there.told}", f"/log-in?to={quote(text[:300])}",
        f"/?tag={tag}", f"/?queue={place}", f"/actions?on={place}",
        "/load", f"/load?queue={quote(text[:300])}", f"/load?expr={quote(text[:150])}&tz={quote(other[:50])}",
        f"/load?expr=*/5+*+*+*+*&job={link}&missed={quote(text[:100])}", f"/load?from={quote(text[:100])}&to=4h",
        f"/load?to=2h&jobs={quote(other[:100])}", "/load?to=26h",
    ]  # fmt: skip
    for path in pages:
        answer = browser.get(path)
        assert answer.status_code < 500, (path, answer.text[:500])
        look_at(answer)
    for operation, fields in {
        "pause": {"job": name, "why": text, "until": other},
        "run-now": {"job": name, "kwargs": text, "key": other},
        "remove": {"job": text, "typed": text},
        "cancel": {"run": done, "why": text},
        "backfill": {"job": name, "since": "-9h", "why": text, "typed": other},
        "pause-backfill": {"backfill": there.backfill, "why": text},
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


@pytest.mark.timeout(240)
@settings(max_examples=3, **SLOW)
@given(text=texts, other=texts)
def test_what_users_write_is_plain_json_in_every_answer(world, text, other):
    browser, there = world[1], write(world, text, other)
    numbers = {"/api/v1/runs/{number}": there.done, "/api/v1/backfills/{number}": there.backfill}
    sensible = {
        "name": there.name,
        "job": there.name,
        "tag": there.tag,
        "arguments": "shown",
        "expr": "30s",
        "limit": "1000",
    }
    for address in READS:
        described = OPENAPI["paths"][address.removeprefix(BASE)]["get"].get("parameters", [])
        words = [one["name"] for one in map(resolved, described) if one["in"] == "query"]
        sensible["job"] = {f"{BASE}/backfills": f"q{there.name}"[:200], f"{BASE}/what-if": ""}.get(address, there.name)
        questions = [
            {word: sensible[word] for word in words if word in sensible},
            *({word: text[:150]} for word in words),
        ]
        for question in questions:
            answer = browser.get(address.format(number=numbers.get(address)), params=question)
            assert answer.status_code < 500, (address, question, answer.text[:500])
            assert answer.headers["content-type"] in {"application/json", "application/problem+json"}
            assert answer.text.isascii()
            answer.json()
            if question is questions[0]:
                assert answer.status_code == 200, (address, answer.text[:500])
                assert MARK in answer.text or address in WITHOUT, address


WITHOUT = {f"{BASE}/openapi.json", f"{BASE}/terms", f"{BASE}/what-if"}
"""Answers in which users' code writes nothing."""
