"""The API says what its OpenAPI file says: every address, every answer, every refusal."""

import json
from dataclasses import fields
from datetime import UTC, datetime
from typing import get_args

import httpx
import pytest

from harness.openapi import Described
from harness.scratch import eventually
from tenure.core.cluster import Leader, TermRecord
from tenure.core.records import Change, JobStateName, RunKindName, RunStateName
from tenure.core.records import Rules as StoredRules
from tenure.jobs.queries import Lookup
from tenure.views import (
    ActionView,
    AlertMessageView,
    AlertView,
    AttemptView,
    AttentionView,
    BackfillView,
    JobView,
    LogLineView,
    NodeView,
    PoolView,
    ProgressView,
    RunView,
)
from tenure.web import OPERATIONS, Caller
from tenure.web.api import CHANGES, READS
from tenure.web.api.answers import BASE
from tenure.web.api.reads import OPENAPI

BODIES = {
    "/run-now": {"job": "nightly", "kwargs": {"password": "x"}, "key": "k", "why": "asked"},
    "/pause": {"job": "nightly", "why": "mail server moves", "until": "2h"},
    "/resume": {"job": "nightly", "why": "moved"},
    "/remove": {"job": "nightly", "why": "no longer"},
    "/restore": {"job": "nightly"},
    "/reset": {"job": "nightly"},
    "/cancel": {"run": 1, "why": "too slow"},
    "/retry": {"run": 1},
    "/backfill": {"job": "sync_stock", "since": "-10s", "until": "-0s", "dry_run": False},
    "/pause-backfill": {"backfill": 1, "why": "the disk is full"},
    "/resume-backfill": {"backfill": 1},
    "/cancel-backfill": {"backfill": 1, "why": "wrong month"},
    "/resign": {},
}
"""A request of each operation that would do something."""


class Client(httpx.Client):
    """A program: it says who it is with each request, and every answer is held to the file."""

    def __init__(self, base, described):
        super().__init__(base_url=f"{base}{BASE}", timeout=20, headers={"Authorization": "Bearer of-the-test"})
        self.home, self.described = base, described

    def ask(self, path, status=200, **query):
        """GET, for the answer in JSON."""
        answer = self.get(path, params=query)
        return self._checked("get", path, answer, status)

    def do(self, path, status=200, **body):
        """POST, for the answer in JSON."""
        return self._checked("post", path, self.post(path, json=body), status)

    def _checked(self, method, path, answer, status):
        self.described.check(method, path, answer)
        assert answer.status_code == status, answer.text
        return answer.json()


@pytest.fixture
def described():
    return Described(OPENAPI)


@pytest.fixture
def client(opened, described):
    """Opens the API for a scheduler: `client(scheduler, rights)`."""
    clients = []

    def client(scheduler, rights="act", **options):
        browser = opened(scheduler, authorize=lambda _request: Caller("ann", rights), **options)
        clients.append(Client(browser.home, described))
        return clients[-1]

    yield client
    for one in clients:
        one.close()


def state_of(scheduler):
    """All that an operation may change."""
    jobs = [(job.name, job.state, job.generation, job.rules, job.kwargs) for job in scheduler.jobs(removed=True)]
    return jobs, scheduler.runs(), scheduler.actions()


def test_every_address_is_described_and_every_description_has_an_address(described):
    served = {("get", path.removeprefix(BASE)) for path in READS} | {
        ("post", path.removeprefix(BASE)) for path in CHANGES
    }
    assert served == set(described.operations)
    assert {path for _, path in served if ("post", path) in served} == set(BODIES)
    for method, path in served:
        operation = described.operations[method, path]
        assert operation["summary"], path
        named = path.replace("runs/{number}", "run").replace("backfills/{number}", "one-backfill")
        assert operation["operationId"] == named.strip("/").removesuffix(".json"), path
        if method == "post":
            assert operation["operationId"] in OPERATIONS
            schema = described.resolved(operation["requestBody"])["content"]["application/json"]["schema"]
            assert set(schema["properties"]) == set(CHANGES[BASE + path].fields), path


@pytest.mark.parametrize(
    ("schema", "view", "more"),
    [
        ("Job", JobView, set()),
        ("Run", RunView, set()),
        ("Rules", StoredRules, set()),
        ("Attempt", AttemptView, set()),
        ("Progress", ProgressView, set()),
        ("LogLine", LogLineView, set()),
        ("Attention", AttentionView, set()),
        ("Alert", AlertView, {"open"}),
        ("AlertMessage", AlertMessageView, set()),
        ("Node", NodeView, set()),
        ("Pool", PoolView, set()),
        ("Action", ActionView, set()),
        ("Backfill", BackfillView, set()),
        ("Planner", Leader, set()),
        ("Term", TermRecord, {"gap_at_most"}),
    ],
)
def test_a_field_of_a_view_stands_in_the_file(described, schema, view, more):
    """A new field of a view needs a line in web/api/openapi.json."""
    said = described.document["components"]["schemas"][schema]
    assert set(said["properties"]) == {field.name for field in fields(view)} | more
    assert set(said["required"]) == set(said["properties"])


def test_the_words_of_the_file_are_those_of_the_views(described):
    schemas = described.document["components"]["schemas"]
    for schema, words in {"JobState": JobStateName, "RunState": RunStateName, "RunKind": RunKindName}.items():
        assert set(schemas[schema]["enum"]) == set(get_args(words))
    assert set(schemas["JobChange"]["properties"]["what"]["enum"]) == set(Change)


def test_all_references_lead_somewhere_and_none_is_left_over(described):
    text, components = json.dumps(described.document), described.document["components"]
    for kind, named in components.items():
        for name in named:
            assert kind == "securitySchemes" or f'"#/components/{kind}/{name}"' in text, name
    for reference in set(text.split('"$ref": "')[1:]):
        described.resolved({"$ref": reference.partition('"')[0]})


@pytest.mark.timeout(120)
def test_every_answer_is_as_the_file_says(scheduler, client, described, ended):
    api = client(scheduler)
    eventually(lambda: scheduler.runs("sync_stock", state="succeeded"), within=20)
    scheduler.pool("warehouse", 2)
    scheduler.update("nightly", retries=2, by="bob", why="flaky")
    failed = api.do("/run-now", job="fails", why="to see it fail")["id"]
    assert ended(scheduler, failed).state == "failed"
    assert api.do("/retry", run=failed)["attempt"] == 1
    assert ended(scheduler, failed).state == "failed"
    lasts = api.do("/run-now", job="lasts")["id"]
    eventually(lambda: scheduler.find_run(lasts).state == "running", within=20)
    running = api.ask(f"/runs/{lasts}")
    assert (running["state"], running["kwargs"]) == ("running", None)
    assert api.ask("/status")["ok"] is True
    assert api.do("/cancel", run=lasts, why="enough")["id"] == lasts
    assert ended(scheduler, lasts).state == "cancelled"
    paused = api.do("/pause", **BODIES["/pause"])
    assert (paused["state"], paused["paused_by"], paused["paused_why"]) == ("paused", "ann", "mail server moves")
    assert api.do("/resume", **BODIES["/resume"])["state"] == "active"
    assert api.do("/reset", job="nightly")["rules"]["retries"] == 1
    assert api.do("/remove", **BODIES["/remove"])["state"] == "removed"
    assert api.do("/restore", **BODIES["/restore"])["state"] == "active"
    listed = api.do(
        "/backfill", job="nightly", since="2020-01-01T00:00Z", until="2020-01-05T00:00Z", even_forgotten=True
    )
    assert (listed["dry_run"], len(listed["due"]), listed["runs"]) == (True, 4, [])
    assert api.ask("/runs", job="nightly") == []
    ran = api.do(
        "/backfill",
        job="nightly",
        since="2020-01-01T00:00Z",
        until="2020-01-05T00:00Z",
        even_forgotten=True,
        dry_run=False,
    )
    assert [run["kind"] for run in ran["runs"]] == ["backfill"] * 4
    assert (ran["backfill"]["total"], ran["backfill"]["by"]) == (4, "ann")
    filled = api.do(
        "/backfill",
        job="nightly",
        since="2019-01-01T00:00Z",
        until="2020-01-01T00:00Z",
        include=["missing", "failed"],
        at_once=1,
        even_forgotten=True,
        dry_run=False,
        why="the audit",
    )
    number = filled["backfill"]["number"]
    assert (len(filled["runs"]), filled["backfill"]["total"]) == (1, 365)
    paused = api.do("/pause-backfill", backfill=number, why="the disk is full")
    assert (paused["state"], paused["state_by"], paused["state_why"]) == ("paused", "ann", "the disk is full")
    assert "is paused already by ann" in api.do("/pause-backfill", 409, backfill=number)["detail"]
    assert api.do("/resume-backfill", backfill=number)["state"] == "running"
    assert api.do("/cancel-backfill", backfill=number, why="wrong year")["state"] == "cancelled"
    assert api.ask(f"/backfills/{number}")["why"] == "the audit"
    assert "no backfill 999999" in api.ask("/backfills/999999", 404)["detail"]
    assert [one["number"] for one in api.ask("/backfills", job="nightly", limit=1)] == [number]
    eventually(lambda: api.ask("/runs", job="nightly", state="succeeded") != [], within=20)
    for path, query in {
        "/openapi.json": {},
        "/nodes": {},
        "/terms": {},
        "/pools": {},
        "/next": {"limit": 3},
        "/jobs": {"pattern": "*", "arguments": "shown"},
        "/job": {"name": "nightly"},
        "/changes": {"name": "nightly"},
        "/why": {"name": "nightly"},
        "/runs": {"since": "-1h"},
        f"/runs/{failed}": {},
        "/actions": {},
        "/audit": {},
        "/load": {},
        "/what-if": {"expr": "30 2 * * *", "from": "+1h", "to": "3d"},
    }.items():
        assert api.ask(path, **query), path
        again = api.get(path, params=query)
        unchanged = api.get(path, params=query, headers={"If-None-Match": again.headers["etag"]})
        assert unchanged.status_code in {200, 304}
    assert api.ask("/alerts") == []  # this application has no sinks: tests/web/test_now_page.py has one
    assert api.ask("/openapi.json") == OPENAPI
    attempts = api.ask(f"/runs/{failed}")["attempts"]
    assert [(one["number"], one["outcome"]) for one in attempts] == [(1, "failed"), (2, "failed")]
    assert api.do("/resign")["term"] == 1
    assert described.seen == set(described.operations), "each was answered well at least once"
    done = [(action.what, action.by) for action in reversed(scheduler.actions(by="ann"))]
    assert [what for what, _ in done] == [
        "run-now", "retry", "run-now", "cancel", "pause", "resume", "reset", "remove", "restore",
        "backfill", "backfill", "pause-backfill", "resume-backfill", "cancel-backfill", "resign",
    ]  # fmt: skip


@pytest.mark.parametrize("rights", ["read", set()])
def test_who_may_only_read_is_refused_by_every_post_of_the_file(resting, client, described, rights):
    run = resting.run_now("fails", by="bob").id
    resting.update("nightly", retries=7, by="bob")
    api = client(resting, rights)
    before = state_of(resting)
    for method, path in described.operations:
        if method == "post":
            body = {**BODIES[path], **({"run": run} if "run" in BODIES[path] else {})}
            for sent in (body, {}):
                assert api.do(path, 403, **sent)["title"] == "Not allowed"
    assert state_of(resting) == before
    assert len(api.ask("/jobs")) == 4


def test_each_right_opens_its_own_operation_only(resting, client, described):
    run, rights = resting.run_now("fails").id, set()
    api = client(resting, rights)
    for right in sorted(OPERATIONS):
        rights.clear()
        rights.add(right)
        for path in BODIES:
            refused = api.post(path, json={"unknown": run}).status_code
            assert refused == (400 if path == f"/{right}" else 403), (right, path)
    rights.clear()
    rights.add("run-now")
    assert api.do("/run-now", 403, job="nightly", kwargs={})["detail"].endswith("run-now-arguments.")
    assert api.do("/run-now", job="nightly")["by"] == "ann"


def test_a_change_comes_from_a_program_or_from_the_page_itself(resting, opened):
    browser, path = opened(resting), f"{BASE}/run-now"
    body = {"job": "nightly"}
    for headers, status in [
        ({}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": browser.home}, 200),
    ]:
        assert browser.post(path, json=body, headers=headers).status_code == status, headers
    assert len(resting.runs("nightly")) == 2


@pytest.mark.parametrize(
    ("path", "sent", "refusal"),
    [
        (
            "/pause",
            b'{"job": "nightly", "why": "x", "untill": "2h"}',
            (400, "no field 'untill'. It has: job, why, until."),
        ),
        ("/pause", b'{"job": "nightly"}', (400, "why: it is missing")),
        ("/pause", b'{"job": "nightly", "why": " "}', (400, "the next person on call will ask")),
        ("/pause", b'{"job": "nightly", "why": "x", "until": "soon"}', (400, "Write 2h")),
        ("/pause", b'{"job": "nightly", "why": "x", "until": null}', (400, "until: null is not a text")),
        ("/pause", b'{"job": 7, "why": "x"}', (400, "job: 7 is not a text.")),
        ("/pause", b'["job"]', (400, "is not an object")),
        ("/pause", b'{"job": "\\ud800", "why": "x"}', (400, "cannot be read as JSON in UTF-8")),
        ("/pause", b'{"job": "\\u0000", "why": "x"}', (400, "cannot be shown")),
        ("/pause", b'{"job": "nightly", "why": "\\u0000"}', (400, "why:")),
        ("/pause", b"[" * 100_000, (400, "cannot be read")),
        ("/pause", b'{"job": "nightly", "why": "\xff"}', (400, "cannot be read")),
        ("/pause", b" " * 300_000, (413, "at most 262,144 bytes")),
        ("/run-now", b'{"job": "nope"}', (404, "has no job 'nope'")),
        ("/run-now", b'{"job": "nightly", "kwargs": {"a": 1}}', (400, "nightly")),
        ("/run-now", b'{"job": "nightly", "kwargs": [1]}', (400, "is not an object")),
        ("/run-now", b'{"job": "nightly", "kwargs": {"password": NaN}}', (400, "cannot be read")),
        ("/run-now", b'{"job": "nightly", "kwargs": {"password": {"$tenure": ["new", 1]}}}', (400, "cannot read")),
        ("/run-now", b'{"job": "nightly", "key": ""}', (400, "key: '' is empty")),
        ("/cancel", b'{"run": "1"}', (400, 'run: "1" is not a number')),
        ("/cancel", b'{"run": true}', (400, "is not a number")),
        ("/cancel", b'{"run": 1e400}', (400, "is not a number")),
        ("/cancel", b'{"run": 99999999999999999999}', (400, "is not a number")),
        ("/cancel", b'{"run": 999999}', (404, "has no run 999999")),
        ("/backfill", b'{"job": "nightly", "since": "-1d", "until": "-2d"}', (400, "is not after")),
        (
            "/backfill",
            b'{"job": "nightly", "since": "-1d", "until": "-0s", "dry_run": 0}',
            (400, "is not true or false"),
        ),
        ("/backfill", b'{"job": "fails", "since": "-1d", "until": "-0s"}', (400, "has no trigger")),
        ("/reset", b'{"job": "nightly"}', (409, "There is nothing to reset")),
        ("/restore", b'{"job": "nightly"}', (409, "There is nothing to restore")),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(resting, client, path, sent, refusal):
    status, said = refusal
    api = client(resting)
    answer = api.post(path, content=sent, headers={"Content-Type": "application/json"})
    assert (answer.status_code, said in answer.json()["detail"]) == (status, True), answer.text
    api.described.check("post", path, answer)
    assert resting.actions() == []
    assert resting.runs("nightly") == []


def test_another_method_and_another_type_are_refused_as_problems(resting, client):
    api = client(resting)
    for path, method in {"/jobs": "POST", "/runs/1": "DELETE", "/run-now": "GET", "/pause": "PUT"}.items():
        answer = api.request(method, path, json={"job": "nightly"})
        assert answer.status_code == 405
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["allow"] == ("GET, HEAD" if method in {"POST", "DELETE"} else "POST")
    answer = api.post("/pause", data={"job": "nightly", "why": "x"})
    assert (answer.status_code, answer.json()["title"]) == (415, "Not JSON")
    assert api.head("/jobs").status_code == 200


def test_pages_of_runs_and_jobs_follow_each_other_without_a_gap(resting, client):
    runs = [run.id for run in resting.run_now_many("lasts", [None] * 25)]  # some have the same due time
    for number in range(12):
        resting.add("fails", None, name=f"report-{number:02}", by="bob")
    api, states = client(resting), ["pending", "failed"]
    until = datetime.now(UTC).isoformat()
    among = {run.id for run in resting.runs(state=states, since="-1h", until=until)}
    assert among >= set(runs)
    for path, query, key, every in [
        ("/runs", {"job": "lasts", "limit": 4}, "id", set(runs)),
        ("/runs", {"limit": 4, "state": states, "since": "-1h", "until": until}, "id", among),
        ("/actions", {"by": "bob", "limit": 5}, "id", {action.id for action in resting.actions(by="bob")}),
        ("/jobs", {"pattern": "report-*", "limit": 5}, "name", {f"report-{number:02}" for number in range(12)}),
    ]:
        answer = api.get(path, params={**query, "arguments": "hidden"})
        found, pages = [row[key] for row in answer.json()], 1
        while "next" in answer.links:
            answer = api.get(api.home + answer.links["next"]["url"])
            api.described.check("get", path, answer)
            found, pages = found + [row[key] for row in answer.json()], pages + 1
        assert len(found) == len(set(found)), path
        assert set(found) == every
        assert pages == -(-len(every) // query["limit"])
    for wrong in ("x", "1", "-", ".5", "9" * 30 + ".1", "1.x"):
        assert api.ask("/runs", 400, after=wrong)["title"] in {"No such page", "No such number"}, wrong


def test_a_page_of_jobs_is_all_that_is_read(resting, client, monkeypatch):
    resting.add_many("fails", {f"report-{number:03}": (None, {}) for number in range(60)})
    shown, shown_job = [], Lookup.shown_job
    monkeypatch.setattr(Lookup, "shown_job", lambda *given: shown.append(given[1]) or shown_job(*given))
    api = client(resting)
    answer = api.get("/jobs", params={"limit": 5, "removed": "yes", "after": "lasts"})
    assert [job["name"] for job in answer.json()] == ["nightly", *(f"report-{number:03}" for number in range(4))]
    assert len(shown) == 6
    assert "after=report-003" in answer.links["next"]["url"]


def test_every_read_waits_for_its_turn(resting, client, monkeypatch):
    monkeypatch.setattr("tenure.web.ledger_reads.AT_ONCE", 0)
    monkeypatch.setattr("tenure.web.ledger_reads.PATIENCE", 0.01)
    api = client(resting)
    alone = {"/openapi.json", "/audit", "/load", "/what-if"}  # no reading, or a bound of their own
    for path in {path.removeprefix(BASE) for path in READS} - alone:
        asked = path.replace("{number}", "1")
        assert "Too many pages are being read" in api.ask(asked, 409, name="nightly")["detail"], path


def test_a_node_less_application_is_described_too(resting, client):
    api = client(resting)
    assert api.ask("/status")["planner"] is None
    assert api.ask("/nodes") == []
    assert api.do("/resign") == {"term": None}


@pytest.mark.parametrize(
    "query", ["arguments=", "arguments=all", "removed=", "removed=1", "limit=", "limit=0", "limit=5.0"]
)
def test_a_parameter_that_makes_no_sense_is_refused(resting, client, query):
    api = client(resting)
    answer = api.get(f"/jobs?pattern=none-has-this-name&{query}")
    api.described.check("get", "/jobs", answer)
    assert (answer.status_code, answer.json()["detail"].startswith(query.partition("=")[0])) == (400, True)


def test_a_known_key_does_not_tell_the_arguments_of_its_run(resting, client):
    resting.run_now("nightly", kwargs={"password": "opensesame"}, key="order-17")
    caller = client(resting, {"run-now"}, redact=lambda _job, _kwargs: {"password": "***"})
    told = caller.do("/run-now", 400, job="nightly", key="order-17")["detail"]
    assert "other arguments" in told
    assert "opensesame" not in told
