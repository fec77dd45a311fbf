"""The exact requests of each style of check-in, and that a real server gets them."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from receiver import receiver
from tenure.alerts import CheckIn, PlannerPing
from tenure.alerts.check_ins import PingState, RunPing, slug

START = RunPing(
    PingState.START, "shop", "report:EU", "2026-11-19T03:00:00Z", 1, datetime(2026, 11, 19, 3, tzinfo=UTC), "web-1"
)
OK = replace(START, state=PingState.OK, duration=1.25)
FAIL = replace(START, state=PingState.FAIL, text="ValueError: no such file & more", duration=2.0)
OTHER = replace(START, state=PingState.OTHER, text="again")
PINGS = (START, OK, FAIL, OTHER)
RID = str(START.id)
SLUG = slug(START.job)


def sent(style, path, ping, **options):
    """What a real server gets."""
    with receiver() as server:
        CheckIn(server.url + path, style=style, **options).send(ping)
    return [(one.method, one.path, one.query, one.body) for one in server.received]


def test_the_id_is_that_of_the_attempt_whichever_node_tells_it():
    assert {one.id for one in PINGS} == {replace(START, label="web-2").id}
    others = [
        replace(START, **{what: other})
        for what, other in (("key", "k"), ("job", "j"), ("application", "a"), ("attempt", 2))
    ]
    assert len({START.id, *(one.id for one in others)}) == 5


@pytest.mark.parametrize(
    ("ping", "way", "body"),
    [
        (START, "/start", b""),
        (OK, "", b""),
        (FAIL, "/fail", b"ValueError: no such file & more"),
        (OTHER, "/log", b"again"),
    ],
)
def test_healthchecks(ping, way, body):
    assert sent("healthchecks", "/key/{job}", ping) == [("POST", f"/key/{SLUG}{way}", {"rid": RID}, body)]
    assert sent("healthchecks", "/key/{job}?create=1", ping) == [
        ("POST", f"/key/{SLUG}{way}", {"create": "1", "rid": RID}, body)
    ]


@pytest.mark.parametrize(("ping", "status"), [(START, "in_progress"), (OK, "ok"), (FAIL, "error"), (OTHER, "error")])
def test_sentry(ping, status):
    [(method, path, query, body)] = sent("sentry", "/api/7/cron/{job}/public/", ping, environment="prod")
    assert (method, path, query) == ("POST", f"/api/7/cron/{SLUG}/public/", {})
    expected = {"check_in_id": START.id.hex, "status": status, "environment": "prod"}
    if ping.duration is not None:
        expected["duration"] = ping.duration
    assert json.loads(body) == expected


@pytest.mark.parametrize(
    ("ping", "more"),
    [
        (START, {"state": "run"}),
        (OK, {"state": "complete", "metric": "duration:1.250"}),
        (FAIL, {"state": "fail", "message": "ValueError: no such file & more", "metric": "duration:2.000"}),
    ],
)
def test_cronitor(ping, more):
    query = {"series": RID, "host": "web-1", "env": "prod", **more}
    assert sent("cronitor", "/p/key/{job}", ping, environment="prod") == [("GET", f"/p/key/{SLUG}", query, b"")]


def test_dead_mans_snitch():
    assert sent("snitch", "/token", OK, jobs="report:EU") == [("GET", "/token", {"s": "0"}, b"")]
    assert sent("snitch", "/token", FAIL, jobs="report:EU") == [("GET", "/token", {"s": "1", "m": FAIL.text}, b"")]


@pytest.mark.parametrize(
    ("style", "pings"), [("cronitor", [OTHER]), ("snitch", [START, OTHER]), ("plain", [START, FAIL, OTHER])]
)
def test_what_a_service_has_no_word_for_is_not_sent(style, pings):
    assert [request for ping in pings for request in sent(style, "/{job}", ping)] == []


def test_plain_is_a_request_after_each_success():
    assert sent("plain", "/push", OK, jobs="report:EU") == [("GET", "/push", {}, b"")]


def test_the_planner_pings_its_url_as_it_is():
    with receiver() as server:
        PlannerPing(f"{server.url}/uuid?x=1").send()
    assert [(one.method, one.path, one.query) for one in server.received] == [("GET", "/uuid", {"x": "1"})]


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("nightly", "nightly"),
        ("a_b-c", "a_b-c"),
        ("report:EU", "report-eu-"),
        ("Report: EU/1", "report-eu-1-"),
        ("급여", "job-"),
        ("정산", "job-"),
        ("Nightly", "nightly-"),
        ("a--b", "a-b-"),
    ],
)
def test_names_of_jobs_become_slugs(name, written):
    assert slug(name) == written if name == written else re.fullmatch(f"{written}[0-9a-f]{{8}}", slug(name))


@given(st.sets(st.text("aA-_: éß급", min_size=1, max_size=6), min_size=2))
def test_no_two_jobs_share_a_slug(names):
    assert len({slug(name) for name in names}) == len(names)


def test_a_check_in_is_about_the_jobs_of_its_pattern():
    check_in = CheckIn("https://hc.example/{job}", style="healthchecks", jobs="billing:*")
    assert (check_in.wants("billing:eu"), check_in.wants("report")) == (True, False)
