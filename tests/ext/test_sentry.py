"""What the real Sentry SDK sends about failures of jobs, with nothing but `sentry_sdk.init` and an `around`."""

import json

import pytest

from harness.processes import SUPPORT, Worker

pytest.importorskip("sentry_sdk")
SCRIPT = SUPPORT / "workers" / "with_sentry.py"


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The events that were sent, the transactions, and the runs that failed."""
    url = f"sqlite:///{tmp_path_factory.mktemp('sentry') / 'jobs.db'}"
    with Worker(SCRIPT, url) as worker:
        worker.wait_event(event="end", within=60)
        lines = [json.loads(line) for line in worker.lines if line.startswith("{")]
    sent = [line["what"] for line in lines if line["event"] == "sent"]
    runs = {line["job"]: line["run"] for line in lines if line["event"] == "failed"}
    traced = [line["what"] for line in lines if line["event"] == "traced"]
    return sent, runs, traced


def event_of(told, job):
    (event,) = [event for event in told[0] if event["extra"].get("job") == job]
    return event


def test_each_run_that_failed_for_good_is_one_issue_with_the_fields_of_its_record(told):
    sent, runs, _ = told
    assert sorted(event["extra"]["job"] for event in sent) == sorted(runs)
    for job, run in runs.items():
        event = event_of(told, job)
        assert event["level"] == "error"
        assert (event["extra"]["run_id"], event["extra"]["node"]) == (run, "web-1")
        assert event["tags"]["job"] == job


@pytest.mark.parametrize(
    ("job", "kind", "function"),
    [
        ("in_a_thread", "ValueError", "in_a_thread"),
        ("in_a_coroutine", "KeyError", "in_a_coroutine"),
        ("twice", "ValueError", "twice"),
        ("hangs", "TimeoutError", "hangs"),
    ],
)
def test_an_issue_has_the_exception_and_the_frames_of_the_body(told, job, kind, function):
    exception = event_of(told, job)["exception"]["values"][-1]
    assert exception["type"] == kind
    assert function in [frame["function"] for frame in exception["stacktrace"]["frames"]]


def test_the_variables_of_the_body_are_there_where_sentry_collects_them(told):
    frames = event_of(told, "in_a_thread")["exception"]["values"][-1]["stacktrace"]["frames"]
    assert frames[-1]["vars"]["colour"] == "'a local variable'"


def test_a_failure_in_a_process_has_the_name_of_its_exception_and_the_traceback_there(told):
    cause, exception = event_of(told, "in_a_process")["exception"]["values"]
    assert (exception["type"], exception["value"]) == ("ValueError", "in the child")
    assert cause["type"] == "RemoteTraceback"
    assert "bodies.py" in cause["value"]


def test_a_failure_that_is_tried_again_is_no_issue(told):
    assert event_of(told, "twice")["extra"]["attempt"] == 2


def test_each_attempt_in_this_process_is_a_transaction(told):
    assert sorted(told[2]) == ["hangs", "in_a_coroutine", "in_a_thread", "twice", "twice"]
