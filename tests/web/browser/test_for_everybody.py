"""Everybody can use the page: axe-core finds nothing on any page, light, dark or on a phone, and nothing jumps."""

import os
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest

from harness.scratch import eventually

pytestmark = pytest.mark.timeout(180)
LOOKS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
}
RULES = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
JUDGE = """async rules => (await axe.run(document, {runOnly: rules})).violations.map(
    one => `${one.id}: ${one.nodes.map(node => node.target.join(' ') + ' — ' + node.failureSummary).join(' | ')}`)"""
JUMPS = """window.jumped = [];
new PerformanceObserver(list => {
    for (const shift of list.getEntries()) if (!shift.hadRecentInput) window.jumped.push(shift.value);
}).observe({type: 'layout-shift'});"""


def everything(base):
    """Every page, with something on it."""
    runs = httpx.get(f"{base}/api/v1/runs", params={"job": "fails", "limit": 1}).json()
    question = urlencode({"expr": "*/5 * * * *", "tz": "Europe/Berlin", "job": "nightly"})
    return [
        "/", "/?state=failing", "/job?name=nightly&arguments=shown", "/job?name=fails", "/job?name=nope", "/terms",
        "/load", f"/load?{question}", "/audit", "/actions", "/job?name=nightly&at=-1d",
        *(f"/run/{run['id']}" for run in runs),
    ]  # fmt: skip


@pytest.fixture
def base(workers, page_of):
    """The page of an application that has failed at something."""
    base = page_of("--by", "ann")
    eventually(lambda: httpx.get(f"{base}/api/v1/status").json()["planner"], within=30)
    over(base, run_now(base, "fails"))
    return base


def run_now(base, job):
    headers = {"Origin": base, "Sec-Fetch-Site": "same-origin"}
    return httpx.post(f"{base}/api/v1/run-now", json={"job": job}, headers=headers).json()["id"]


def over(base, number):
    eventually(lambda: httpx.get(f"{base}/api/v1/runs/{number}").json()["finished_at"], within=30)


@pytest.mark.parametrize("kind", LOOKS)
def test_axe_finds_nothing_on_any_page(base, look, kind):
    page = look(base, bypass_csp=True, **LOOKS[kind])  # only for axe itself, which is put into the page
    found = {}
    for path in everything(base):
        page.goto(path)
        page.add_script_tag(path=Path(os.environ["TENURE_TEST_AXE"]))
        if violations := page.evaluate(JUDGE, RULES):
            found[path] = violations
        if kind == "phone":
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{path} is {wide} px wider than a phone"
    assert found == {}


@pytest.mark.parametrize("path", ["/", "/job?name=sync_stock"])
def test_nothing_jumps_when_data_arrives(base, look, path):
    for number in [run_now(base, "sync_stock") for _ in range(60)]:  # so that lists are as long as they get
        over(base, number)
    page = look(base, bypass_csp=True, **LOOKS["light"])
    page.goto(path)
    page.wait_for_selector("body[data-updates=on]")
    page.evaluate(JUMPS)
    shown = page.text_content("main")
    for _ in range(3):  # a job is due every second, and each update shows it
        changed = "shown => document.querySelector('main').textContent !== shown"
        page.wait_for_function(changed, arg=shown, polling=100)
        shown = page.text_content("main")
    assert sum(page.evaluate("window.jumped")) < 0.01
