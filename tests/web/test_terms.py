"""Who led when: the chart, its gaps and its table, the nodes with their evidence, and resigning."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from harness.scratch import eventually
from tenure import Election, Scheduler
from tenure.core.cluster import TermRecord
from tenure.web import Caller
from tenure.web.leadership_chart import LANES, leadership

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)


def term(number, label, began, ended=None, *, gap=None, began_by="released"):
    return TermRecord(
        "x",
        number,
        label,
        label,
        NOW - timedelta(minutes=began),
        began_by,
        None if ended is None else NOW - timedelta(minutes=ended),
        None if ended is None else "resigned",
        None if gap is None else timedelta(milliseconds=gap),
    )


def test_a_lane_per_node_a_bar_per_term_and_the_gaps_in_between():
    terms = [
        term(3, "b", 100, gap=250, began_by="dead: silent"),
        term(2, "a", 400, 101, gap=12),
        term(1, "b", 900, 400),
    ]
    drawn = leadership(terms, NOW - timedelta(hours=24), NOW, led=True)
    assert 'aria-label="3 terms of 2 nodes; the longest gap 250 ms"' in drawn
    assert len(re.findall(r'<rect class="term', drawn)) == 3
    assert len(re.findall(r'<rect class="term now"', drawn)) == 1
    assert re.findall(r'<text class="gap"[^>]*>([^<]*)<', drawn) == ["12 ms", "at most 250 ms"]
    assert re.findall(r'<text class="who"[^>]*>([^<]*)<', drawn) == ["a", "b"]
    assert "style" not in drawn


def test_an_election_that_no_node_leads_shows_since_when():
    drawn = leadership([term(1, "a", 900, 30)], NOW - timedelta(hours=24), NOW, led=False)
    assert "no leader for 30 min" in drawn


def test_a_new_epoch_is_drawn_and_many_nodes_share_a_lane():
    terms = [term((7 << 20) + 5, "z", 10), *(term(n, f"node-{n}", 500 - n, 499 - n) for n in range(40, 0, -1))]
    drawn = leadership(terms, NOW - timedelta(hours=24), NOW, led=True)
    assert "Epoch 7 began" in drawn
    assert len(re.findall(r'<text class="who"', drawn)) == LANES
    assert "30 earlier nodes" in drawn


def test_the_planner_resigns_and_the_page_shows_its_successor(scheduler, opened, sqlite_url):
    from web.conftest import shop

    browser = opened(scheduler, authorize=lambda _request: Caller("ann", "act"))
    with shop(sqlite_url, label="web-2") as _other:
        eventually(lambda: len(scheduler.nodes()) == 2, within=20)
        page = browser.get("/terms").text
        [election] = re.findall(r'name="election" value="([^"]+)"', page)
        first = "web-1" if "Ask web-1 to resign" in page else "web-2"
        answer = browser.press("/do/resign", election=election, why="a deploy", span="1h")
        assert answer.status_code == 303
        assert "span=1h" in answer.headers["location"]
        successor = {"web-1": "web-2", "web-2": "web-1"}[first]
        told = f"Term 1 is over: <strong>{successor}</strong> leads in term 2."
        eventually(lambda: told in browser.get(answer.headers["location"]).text, within=20)
        shown = browser.get("/terms?span=1h").text
        assert re.search(r'<text class="gap"[^>]*>\d+(\.\d+)? m?s<', shown)
        assert shown.count('<rect class="term') == 2
    [action] = scheduler.actions()
    assert (action.what, action.by, action.why) == ("resign", "ann", "a deploy")
    eventually(lambda: "○ left" in browser.get("/terms").text)


def test_elections_of_programs_are_there_and_planners_of_other_applications_are_not(scheduler, opened, sqlite_url):
    browser = opened(scheduler, authorize=lambda _request: Caller("ann", {"resign"}))
    cadence = {"ttl": 2, "heartbeat_every": 0.4, "attempt_timeout": 0.4}
    other = Scheduler(sqlite_url, application="other", **cadence)
    with other, Election(sqlite_url, "exporter", label="exp-1", **cadence) as election:
        eventually(lambda: any(node.plans for node in other.nodes()), within=20)
        eventually(lambda: election.is_leader, within=20)
        eventually(lambda: "exp-1" in browser.get("/terms").text)
        page = browser.get("/terms").text
        assert "Planner of shop" in page
        assert ">exporter<" in page
        assert "planner of other" not in page
        answer = browser.press("/do/resign", election="exporter")
        assert "asked=1" in answer.headers["location"]
        eventually(lambda: "exp-1</strong> leads in term 2." in browser.get(answer.headers["location"]).text, within=20)
    assert browser.press("/do/resign", election="tenure planner of other").status_code == 400
    assert "done=no-leader" in browser.press("/do/resign", election="nothing").headers["location"]
    assert [(action.what, action.target) for action in scheduler.actions()] == [("resign", "exporter")]


@pytest.mark.parametrize(
    ("path", "status"), [("/terms?span=7d", 200), ("/terms?span=year", 400), ("/terms?after=zzz", 200)]
)
def test_the_span_stands_in_the_address(resting, opened, path, status):
    browser = opened(resting)
    answer = browser.get(path)
    assert answer.status_code == status
    if "7d" in path:
        assert 'aria-current="true">7 days' in answer.text


def test_no_node_is_said_in_red(resting, opened):
    page = opened(resting).get("/terms").text
    assert '<strong class="flag">no leader</strong>' in page
    assert "○ left" in page
