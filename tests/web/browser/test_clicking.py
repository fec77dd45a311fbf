"""What a person sees and does, in Chromium: live, by clicking, and the same without JavaScript."""

import re
import signal
from urllib.parse import quote

import httpx
import pytest

from harness.scratch import eventually

JAVASCRIPT = pytest.mark.parametrize("javascript", [True, False], ids=["javascript", "no-javascript"])
pytestmark = pytest.mark.timeout(180)


def planner(base):
    found = httpx.get(f"{base}/api/v1/status").json()
    return found["planner"]["label"] if found["ok"] else None


def test_the_leader_is_killed_and_the_page_shows_the_successor_without_a_reload(workers, page_of, look):
    base = page_of()
    eventually(lambda: planner(base), within=30)
    page = look(base)
    page.goto("/")
    page.evaluate("window.neverReloaded = true")
    eventually(lambda: len(httpx.get(f"{base}/api/v1/status").json()["nodes"]) == 2, within=30)
    first = planner(base)
    other = next(label for label in workers if label != first)
    page.wait_for_selector(f".verdict:has-text('{first} plans')")
    page.wait_for_selector("body[data-updates=on]")
    workers[first].process.send_signal(signal.SIGKILL)
    page.wait_for_selector(f".verdict:has-text('{other} plans')", timeout=60_000)
    assert page.evaluate("window.neverReloaded") is True
    workers[other].process.send_signal(signal.SIGKILL)
    page.wait_for_selector(".verdict.act", timeout=60_000)  # no node is left, and the page shouts
    assert page.evaluate("window.neverReloaded") is True


def test_a_page_whose_server_is_gone_says_so(workers, page_of, look):
    base = page_of()
    eventually(lambda: planner(base), within=30)
    page = look(base)
    page.goto("/")
    page.wait_for_selector("body[data-updates=on]")
    page.route("**/*", lambda route: route.abort())
    page.wait_for_selector("body[data-updates=lost]", timeout=40_000)
    assert page.is_visible("text=Updates lost")
    assert page.is_visible("table.jobs")
    page.unroute("**/*")
    page.route(
        f"{base}/", lambda route: route.fulfill(status=502, body="<h1>Bad gateway</h1>", content_type="text/html")
    )
    page.wait_for_timeout(12_000)
    assert page.is_visible("table.jobs")  # a proxy's page does not take the place of ours
    page.unroute_all()
    page.wait_for_selector("body[data-updates=on]", timeout=60_000)


@JAVASCRIPT
def test_run_now_pause_resume_cancel_and_remove_by_clicking(workers, page_of, look, javascript):
    base = page_of("--by", "ann")
    eventually(lambda: planner(base), within=30)
    page = look(base, javascript=javascript)
    page.goto("/")
    page.click("table.jobs >> text=nightly")
    page.click("text=Run now")
    page.wait_for_url("**/run/*")
    assert "A run was requested." in page.text_content(".said")
    number = re.search(r"/run/(\d+)", page.url)[1]
    eventually(lambda: httpx.get(f"{base}/api/v1/runs/{number}").json()["state"] == "succeeded", within=30)
    if javascript:
        page.wait_for_selector("h1 .s-succeeded")
    page.click(".path >> text=nightly")
    page.click("summary >> text=With other arguments")
    page.fill("textarea[name=kwargs]", '{"shard": 7}')
    page.click("text=Run now")
    page.click("text=Show the arguments given for this run")
    assert '"shard": 7' in page.text_content("pre >> nth=-1")

    page.goto("/job?name=sync_stock")
    page.fill("form[action$='/do/pause'] input[name=why]", "taking <stock>")
    page.fill("input[name=until]", "2h")
    page.click("text=Pause")
    assert "The job is paused" in page.text_content(".said")
    assert "Paused by ann until" in page.text_content(".box.look")
    page.click("button:has-text('Resume')")
    assert "goes on from now" in page.text_content(".said")

    page.goto("/job?name=lasts")
    page.click("text=Run now")
    number = re.search(r"/run/(\d+)", page.url)[1]
    eventually(lambda: httpx.get(f"{base}/api/v1/runs/{number}").json()["state"] == "running", within=30)
    page.reload()
    page.click("text=Ask it to end")
    eventually(lambda: httpx.get(f"{base}/api/v1/runs/{number}").json()["state"] == "cancelled", within=30)

    page.goto("/job?name=fails")
    page.fill("input[name=typed]", "fails")
    page.click("button:has-text('Remove')")
    assert "The job was removed." in page.text_content(".said")


@JAVASCRIPT
def test_a_backfill_is_created_steered_and_followed_by_clicking(workers, page_of, look, javascript):
    base = page_of("--by", "ann")
    eventually(lambda: planner(base), within=30)
    page = look(base, javascript=javascript)
    page.goto("/job?name=nightly")
    page.fill("form[action$='/do/pause'] input[name=why]", "so that none begins yet")
    page.click("button:has-text('Pause')")
    page.fill("form[action$='/do/backfill'] input[name=since]", "-4d")
    page.fill("input[name=at_once]", "1")
    page.click("text=List the backfill")
    assert "4 due times would run, at most 1 at once" in page.text_content(".lead >> nth=0")
    page.fill("input[name=typed]", "3")
    page.click("text=Create the backfill")
    assert "3 was typed, and 4 runs would begin now" in page.text_content("[role=alert]")
    page.fill("input[name=typed]", "4")
    page.click("text=Create the backfill")
    page.wait_for_url("**/backfill?number=*")
    assert "nightly is paused" in page.text_content(".box.look")
    for button, state in (("Pause", "paused"), ("Resume", "running")):
        page.click(f"button:has-text('{button}')")
        page.wait_for_selector(f"h1 .tag:text-is('{state}')")
    number = page.url.partition("number=")[2].partition("&")[0]
    page.goto("/job?name=nightly")
    page.click("button:has-text('Resume')")
    page.click(f"#backfills >> text='{number}'")
    eventually(lambda: httpx.get(f"{base}/api/v1/backfills/{number}").json()["state"] == "done", within=30)
    if not javascript:
        page.reload()
    page.wait_for_selector("text=4 of 4 finished: 4 succeeded")
    assert page.locator("#actions button").count() == 0


@JAVASCRIPT
def test_a_removed_job_comes_back_and_the_list_is_sorted_by_clicking(workers, page_of, look, javascript):
    base = page_of("--by", "ann")
    eventually(lambda: planner(base), within=30)
    page = look(base, javascript=javascript)
    page.goto("/job?name=fails")
    page.fill("input[name=typed]", "fails")
    page.click("button:has-text('Remove')")
    page.goto("/")
    page.click(".attention >> button:has-text('Restore')")
    assert "The job is back" in page.text_content(".said")
    page.goto("/?sort=name")
    page.click("table.jobs th >> text=Late p99")
    page.wait_for_url("**sort=lateness*")
    assert page.get_attribute("table.jobs th[aria-sort]", "aria-sort") == "descending"


@JAVASCRIPT
def test_the_planner_resigns_by_clicking(workers, page_of, look, javascript):
    base = page_of()
    eventually(lambda: planner(base), within=30)
    first = planner(base)
    eventually(lambda: len(httpx.get(f"{base}/api/v1/status").json()["nodes"]) == 2, within=30)
    page = look(base, javascript=javascript)
    page.goto("/")
    page.click("text=Ask it to resign")
    assert "asked to resign" in page.text_content(".said")
    eventually(lambda: planner(base) not in {None, first}, within=30)


@JAVASCRIPT
def test_every_page_can_be_read_and_violates_nothing(workers, page_of, look, javascript):
    base = page_of()
    eventually(lambda: planner(base), within=30)
    run = httpx.get(f"{base}/api/v1/runs?limit=1").json()
    page = look(base, javascript=javascript)
    paths = [
        "/", "/?q=night", "/?state=paused", "/?updates=off", "/?sort=duration", "/backfill?number=9", "/job?name=nightly", "/job?name=nightly&arguments=shown",
        f"/job?name=nightly&at={quote('2026-01-01 02:30')}", "/audit", "/job?name=nope", "/nowhere",
        *(f"/run/{one['id']}" for one in run),
    ]  # fmt: skip
    for path in paths:
        page.goto(path)
        assert page.text_content("h1"), path
        if javascript:
            page.wait_for_timeout(300)
            assert page.evaluate("document.querySelectorAll('[style]').length") == 0, path


def test_a_keyboard_is_enough(workers, page_of, look):
    base = page_of()
    eventually(lambda: planner(base), within=30)
    page = look(base)
    page.goto("/job?name=nightly&updates=off")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Run now":
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/run/*")


def test_the_token_opens_the_page_and_logging_out_closes_it(workers, page_of, look, tmp_path):
    token = tmp_path / "token"
    token.write_text("correct-horse-battery-staple")
    base = page_of("--token-file", str(token))
    page = look(base)
    page.goto("/")
    page.fill("input[name=token]", "wrong-wrong-wrong-wrong")
    page.click("button:has-text('Log in')")
    assert "That is not the token." in page.text_content("[role=alert]")
    page.fill("input[name=token]", "correct-horse-battery-staple")
    page.click("button:has-text('Log in')")
    page.wait_for_selector(".verdict")
    assert "correct-horse" not in page.url
    page.goto("/job?name=nightly")
    page.click("text=Run now")
    page.wait_for_url("**/run/*")
    page.click("text=Log out")
    page.wait_for_selector("input[name=token]")


def test_a_button_on_a_foreign_page_does_nothing(workers, page_of, look):
    base = page_of()
    eventually(lambda: planner(base), within=30)
    foreign = base.replace("127.0.0.1", "localhost")  # another site to a browser
    page = look(base)
    attack = (
        f"<form method=post action='{base}/do/pause'><input name=job value=nightly><input name=why value=x><button>Win"
    )
    page.route(f"{foreign}/attack", lambda route: route.fulfill(body=attack, content_type="text/html"))
    page.goto(f"{foreign}/attack")
    page.click("text=Win")
    page.wait_for_selector(".verdict.act")
    assert "Not from this page" in page.text_content("h1")
    assert page.get_attribute("#live", "hx-get") is None  # the answer to a button is not fetched again
    assert httpx.get(f"{base}/api/v1/job?name=nightly").json()["state"] == "active"
