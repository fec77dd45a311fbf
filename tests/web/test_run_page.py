"""The page of a run: every attempt, how each ended, progress, log, result, and what ran beside it."""

import re

from harness.scratch import eventually
from tenure import Run, Scheduler


def test_every_attempt_is_told_with_its_error_and_the_run_can_be_tried_again(sqlite_url, opened):
    scheduler = Scheduler(sqlite_url, application="shop", label="web-1")

    @scheduler.job(retries=2, backoff=("10ms", "10ms"))
    def fails(run: Run) -> None:
        run.log(f"try {run.attempt}")
        raise RuntimeError(f"broke <{run.attempt}>")

    with scheduler:
        run = scheduler.run_now("fails")
        eventually(lambda: scheduler.find_run(run.id).state == "failed", within=20)
        page = opened(scheduler).get(f"/run/{run.id}").text
    assert re.findall(r"<h3>Attempt (\d)", page) == ["3", "2", "1"]
    for number in (1, 2, 3):
        assert f"broke &lt;{number}&gt;" in page
        assert f"#{number}</span>  try {number}" in page
    assert 'aria-label="attempt 1 failed; attempt 2 failed; attempt 3 failed"' in page
    assert "after the pause before attempt 3" in page
    assert "Try again" in page
    assert "Ask it to end" not in page


def test_a_running_run_shows_how_far_it_is_what_runs_beside_it_and_can_be_asked_to_end(sqlite_url, opened):
    scheduler = Scheduler(sqlite_url, application="shop", label="web-1")

    @scheduler.job()
    def counts(run: Run) -> None:
        run.progress(30, 120, "half <way>")
        run.log("at 30")
        run.wait(30)

    @scheduler.job()
    def beside(run: Run) -> None:
        run.wait(30)

    with scheduler:
        run, other = scheduler.run_now("counts"), scheduler.run_now("beside")
        browser = opened(scheduler)
        path = f"/run/{run.id}"
        eventually(lambda: "30 of 120 (25 %), half &lt;way&gt;" in browser.get(path).text, within=20)
        eventually(lambda: 'data-follow="yes"' in browser.get(path).text, within=20)
        page = browser.get(path).text
        assert 'aria-label="25%"' in page
        assert "Ask it to end" in page
        assert "Try again" not in page
        eventually(lambda: f'href="/run/{other.id}"' in browser.get(path).text.partition("What else ran on web-1")[2])
        assert f'hx-sse:connect="/live?watch=run-{run.id}"' in page
        for one in (run, other):
            scheduler.cancel(one.id)
        eventually(lambda: scheduler.find_run(run.id).state != "running", within=20)


def test_what_a_body_returned_is_shown(sqlite_url, opened):
    scheduler = Scheduler(sqlite_url, application="shop")

    @scheduler.job()
    def answers(run: Run) -> dict[str, object]:
        return {"rows": 7, "said": "<b>"}

    with scheduler:
        run = scheduler.run_now("answers")
        eventually(lambda: scheduler.find_run(run.id).state == "succeeded", within=20)
        page = opened(scheduler).get(f"/run/{run.id}").text
    assert "&#34;rows&#34;: 7" in page
    assert "&lt;b&gt;" in page


def test_the_runs_before_and_after_are_a_step_away(resting, opened):
    browser = opened(resting)
    first, second, third = (resting.run_now("lasts") for _ in range(3))
    page = browser.get(f"/run/{second.id}").text
    assert f'href="/run/{first.id}" rel="prev"' in page
    assert f'href="/run/{third.id}" rel="next"' in page
    assert "No attempt has begun." in page
    assert "Cancel" in page
