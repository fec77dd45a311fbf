"""What the verbs say of a run that waits for its own job, and of one that does not end although it should."""

import json
import threading

import pytest

from harness.scratch import eventually
from tenure import Scheduler

RULE = "to end, as its job has only one run at a time (max_running=1)"
RETURNED = "it was asked to end and has not returned"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in ("TENURE_URL", "TENURE_SCHEMA", "TENURE_APP"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def asked(tenure):
    """Run a verb for its JSON."""
    return lambda *words: json.loads(tenure(*words, "--json")[1])


@pytest.fixture
def shop(url):
    """A scheduler whose bodies end when it does, whatever they are asked."""
    scheduler, go_on = Scheduler(url, application="shop", label="web-1"), threading.Event()

    @scheduler.job
    def load() -> None:
        go_on.wait(40)

    @scheduler.job(timeout="50ms")
    def stubborn() -> None:
        go_on.wait(40)

    with scheduler:
        try:
            yield scheduler
        finally:
            go_on.set()


def begun(scheduler, job):
    run = scheduler.run_now(job)
    eventually(lambda: scheduler.find_run(run.id).state == "running", what="a body that runs")
    return run


def test_a_run_that_waits_for_its_own_job_names_the_run_that_is_in_its_way(shop, tenure, asked):
    first = begun(shop, "load")
    second = shop.run_now("load")
    eventually(lambda: shop.find_run(second.id).state == "waiting", what="a run that waits")
    told = f"run {first.id} {RULE}"
    assert f"waiting: {told}" in tenure("runs")[1]
    assert f"waiting: {told}" in tenure("show", "load")[1]
    assert f"waits for    {told}" in tenure("show", str(second.id))[1]
    assert f"waiting  load {second.key}: {told}" in tenure("status")[1]
    assert asked("status")["waiting"] == [f"load {second.key}: {told}"]
    assert [run["waiting"] for run in asked("runs")] == [told, ""]
    assert asked("show", str(second.id))["waiting"] == told
    said = tenure("why", str(second.id))[1]
    assert said.startswith(f"Run {second.id} of 'load', requested ")
    assert f"is waiting for {told}. Run {first.id} ({first.key}) has been running on web-1 since" in said


def test_why_takes_the_number_or_the_key_of_a_run(shop, tenure, asked):
    first = begun(shop, "load")
    for words in ([str(first.id)], [first.key], [first.key, "--job", "load"]):
        told = asked("why", *words)
        assert (told["job"], told["cause"], told["facts"]["run"]) == ("load", "running", first.id)
        assert told["why"].startswith(f"Run {first.id} of 'load', requested ")
    assert tenure("why", "load")[1].startswith("'load', requested ")
    assert tenure("why", "4711")[0] == 1
    assert "4711" in tenure("why", "4711")[2]


def test_a_body_past_its_timeout_that_has_not_returned_is_said_so(shop, tenure, asked):
    run = begun(shop, "stubborn")
    eventually(lambda: shop.find_run(run.id).should_have_ended, what="a timeout that passed a while ago")
    for words in (["runs"], ["show", str(run.id)], ["status"], ["why", "stubborn"], ["why", str(run.id)]):
        out = tenure(*words)[1]
        assert "its timeout of 50 ms passed " in out, words
        assert RETURNED in out, words
    assert RETURNED in asked("runs")[0]["should_have_ended"]
    assert RETURNED in asked("status")["running"][0]["should_have_ended"]


def test_a_cancelled_run_that_goes_on_says_who_cancelled_it(shop, tenure):
    run = begun(shop, "load")
    assert "should_have_ended=''" in repr(shop.find_run(run.id))
    shop.cancel(run.id, by="ops", why="wrong file")
    for words in (["runs"], ["show", str(run.id)], ["status"], ["why", "load"], ["why", str(run.id)]):
        assert f"cancelled: wrong file (by ops); {RETURNED}" in tenure(*words)[1], words
