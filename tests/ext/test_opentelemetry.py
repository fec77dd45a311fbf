"""Spans of attempts, made by the real SDK: in threads, on the loop and in processes, of real runs that were requested in a span."""

import json

import pytest

from harness.processes import SUPPORT, Worker
from harness.scratch import eventually
from stores.ledger.scene import Scene
from tenure.core.backfills import NewBackfill
from tenure.core.records import RunState
from tenure.stores import store_for

pytest.importorskip("opentelemetry.sdk")
SCRIPT = SUPPORT / "workers" / "with_spans.py"


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def told(request, tmp_path_factory):
    """The spans of the program's own process, those of its children, and how its runs ended."""
    folder = tmp_path_factory.mktemp("spans")
    url = f"sqlite:///{folder / 'jobs.db'}"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").create_database()
    with Worker(SCRIPT, url, env={"SPANS": str(folder / "spans")}) as worker:
        worker.wait_event(event="end", within=90)
        lines = [json.loads(line) for line in worker.lines if line.startswith("{")]
    spans = [line for line in lines if line["event"] == "span"]
    runs = {line["job"]: line for line in lines if line["event"] == "ended"}
    here = {span["span"] for span in spans}

    def from_children():
        found = [json.loads(line) for line in (folder / "spans").read_text().splitlines()]
        return [span for span in found if span["context"]["span_id"].removeprefix("0x") not in here]

    eventually(lambda: len(from_children()) >= 3, within=20)
    yield spans, from_children(), runs
    if request.param == "postgres":
        request.getfixturevalue("postgres").drop_database(url)


def of(told, name):
    return [span for span in told[0] if span["name"] == name]


def request_of(told, run):
    """The span in which a job was requested: its place among the requests is that of the job."""
    order = list(told[2])
    return of(told, "request")[order.index(run)]


@pytest.mark.parametrize("job", ["in_thread", "on_loop"])
def test_an_attempt_is_a_trace_of_its_own_linked_to_who_requested_it(told, job):
    span = of(told, f"run {job}")[0]
    asked, run = request_of(told, job), told[2][job]
    assert (span["kind"], span["parent"], span["status"]) == ("INTERNAL", None, "UNSET")
    assert span["trace"] != asked["trace"]
    assert span["links"] == [[asked["trace"], asked["span"]]]
    attributes = span["attributes"]
    assert attributes.pop("tenure.run.lateness") >= 0
    assert attributes.pop("tenure.run.scheduled_for").endswith("+00:00")
    assert attributes == {
        "job.system": "tenure",
        "code.function.name": job,
        "tenure.job.name": job,
        "tenure.run.id": run["run"],
        "tenure.run.key": run["key"],
        "tenure.run.attempt": 1,
        "tenure.run.kind": "manual",
    }


@pytest.mark.parametrize("job", ["in_thread", "on_loop"])
def test_its_span_is_the_current_one_in_the_body(told, job):
    span = of(told, f"run {job}")[0]
    [inside] = [one for one in of(told, "inside") if one["parent"] == span["span"]]
    assert inside["trace"] == span["trace"]
    [sent] = told[2][job]["log"]
    assert sent.startswith(f"00-{span['trace']}-{inside['span']}-0"), "what the body sends goes on"


def test_a_body_in_a_process_has_its_span_there(told):
    by_name = {span["name"]: span for span in told[1]}
    span, inside = by_name["run in_process"], by_name["inside"]
    asked = request_of(told, "in_process")
    assert span["parent_id"] is None
    assert inside["parent_id"] == span["context"]["span_id"]
    assert [link["context"]["trace_id"] for link in span["links"]] == [f"0x{asked['trace']}"]
    hexes = [value["context"][part].removeprefix("0x") for value, part in ((span, "trace_id"), (inside, "span_id"))]
    [sent] = told[2]["in_process"]["log"]
    assert sent.startswith("00-{}-{}-0".format(*hexes))
    failed = by_name["run fails_in_process"]
    assert failed["status"] == {"status_code": "ERROR", "description": "attempt 1 in the child"}
    assert [event["name"] for event in failed["events"]] == ["exception"]


def test_only_the_last_attempt_is_an_error_and_each_has_its_exception(told):
    first, last = of(told, "run twice")
    assert [one["attributes"]["tenure.run.attempt"] for one in (first, last)] == [1, 2]
    assert [(one["status"], one["attributes"]["error.type"]) for one in (first, last)] == [
        ("UNSET", "ValueError"),
        ("ERROR", "ValueError"),
    ]
    assert first["trace"] != last["trace"]
    assert first["links"] == last["links"] != []
    for one in (first, last):
        [[name, event]] = one["events"]
        assert name == "exception"
        assert event["exception.message"] == f"attempt {one['attributes']['tenure.run.attempt']}"
        assert "Traceback" in event["exception.stacktrace"]


def test_not_yet_is_no_error(told):
    first, last = of(told, "run not_yet")
    assert [one["status"] for one in (first, last)] == ["UNSET", "UNSET"]
    assert first["events"] == [["not yet", {"tenure.run.reason": "file not there"}]]
    assert "error.type" not in first["attributes"]


@pytest.mark.parametrize("job", ["hangs", "ignores"])
def test_a_body_that_is_out_of_time_is_an_error_whether_it_raises_or_returns(told, job):
    [span] = of(told, f"run {job}")
    assert (span["status"], span["attributes"]["error.type"]) == ("ERROR", "TimeoutError")
    assert span["text"].startswith("out of time after 0.3 s")
    assert told[2][job]["state"] == "failed"


def test_who_requests_outside_of_a_span_is_not_linked_and_a_coroutine_is(told):
    by_key = {span["attributes"]["tenure.run.key"]: span for span in of(told, "run in_thread")}
    [asked] = of(told, "coroutine")
    assert by_key["by a coroutine"]["links"] == [[asked["trace"], asked["span"]]]
    assert by_key["by none"]["links"] == []
    due = of(told, "run due")
    assert due
    assert {(span["attributes"]["tenure.run.kind"], *span["links"]) for span in due} == {("due",)}


def test_a_run_is_linked_to_the_span_that_retried_it(told):
    by_attempt = {span["attributes"]["tenure.run.attempt"]: span["links"] for span in of(told, "run retried")}
    [again] = of(told, "retry")
    assert by_attempt == {1: [], 2: [[again["trace"], again["span"]]]}


def test_each_run_of_a_backfill_is_linked_to_the_span_that_requested_it(told):
    [asked] = of(told, "backfill")
    filled = [span for span in of(told, "run hourly") if span["attributes"]["tenure.run.kind"] == "backfill"]
    assert [span["links"] for span in filled] == [[[asked["trace"], asked["span"]]]] * 3


# In the ledger


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def scene(request, sqlite_url):
    urls = {"memory": "memory://spans", "sqlite": sqlite_url}
    store = store_for(urls.get(request.param) or request.getfixturevalue("database"))
    store.prepare()
    opened = Scene(store)
    yield opened
    opened.close()


def test_a_ledger_keeps_the_span_of_a_request_and_of_no_other(scene):
    scene.add("job", 10, overlap="allow", max_running=None)
    asked, other = scene.ask(traceparent="00-a-b-01"), scene.ask()
    waits = scene.ask(slot="s", traceparent="00-c-d-01")
    runs = [run.id for run in scene.runs()]
    assert scene.ledger.traceparents(runs) == {asked.id: "00-a-b-01", waits.id: "00-c-d-01"}
    assert scene.ledger.traceparents([other.id]) == {}
    scene.ask(slot="s", if_waiting="replace", traceparent="00-e-f-01")
    assert scene.ledger.traceparents([waits.id]) == {waits.id: "00-e-f-01"}


def test_a_retry_is_the_request_that_counts(scene):
    worker = scene.worker()
    scene.add("job", overlap="allow", max_running=None)
    first, second = scene.ask(traceparent="00-a-b-01"), scene.ask(traceparent="00-c-d-01")
    for run in worker.claim(2).runs:
        worker.finish(run.id, RunState.FAILED, error="no")
    scene.ledger.retry([first.id], "ops", traceparent="00-e-f-01")
    scene.ledger.retry([second.id], "ops")
    assert scene.ledger.traceparents([first.id, second.id]) == {first.id: "00-e-f-01"}


def test_all_runs_of_a_backfill_have_its_span_those_that_follow_and_reopened_ones_too(scene):
    worker = scene.worker()
    due = [scene.at(ago) for ago in (40, 30, 20)]
    scene.add("job", overlap="allow", max_running=None)
    scene.plan("job", scene.new(30, state=RunState.SKIPPED, reason="missed"))
    wanted = NewBackfill(
        scene.application,
        "job",
        due[0],
        due[2] + 1,
        tuple(due),
        at_once=1,
        even_forgotten=True,
        traceparent="00-a-b-01",
    )
    scene.ledger.create_backfill(wanted)
    for _ in due:
        worker.finish(worker.take().id)
        scene.ledger.advance_backfills(scene.application, 10)
    assert sorted(scene.ledger.traceparents([run.id for run in scene.runs()]).values()) == ["00-a-b-01"] * 3
    [row] = scene.ledger.backfills(scene.application)
    assert (row.state, row.traceparent) == ("done", "00-a-b-01")


def test_a_backfill_of_single_due_times_has_the_span_of_its_request(scene):
    scene.add("job", overlap="allow", max_running=None)
    scene.plan("job", scene.new(30, state=RunState.SKIPPED, reason="missed"))
    [run] = scene.runs()
    request = scene.request(key=run.key, scheduled_for=run.scheduled_for, backfill=True, traceparent="00-a-b-01")
    scene.ledger.request_runs([request])
    assert scene.ledger.traceparents([run.id]) == {run.id: "00-a-b-01"}
