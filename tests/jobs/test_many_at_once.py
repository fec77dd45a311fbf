"""Many jobs and many runs in one call: few transactions, over one connection, and nothing half said."""

from collections import Counter
from uuid import uuid4

import pytest

from tenure import Scheduler, every
from tenure.errors import ConfigurationError, JobExists, UnknownJob
from tenure.jobs import client

MANY = 2 * client.SLICE + 50


def report(customer: int) -> None: ...


@pytest.fixture
def scheduler(url):
    scheduler = Scheduler(url, application=f"app {uuid4()}", capacity=0)
    scheduler.job(report)
    scheduler.start()
    yield scheduler
    scheduler.stop()


@pytest.fixture
def asked(scheduler, monkeypatch):
    """How often each operation of the ledger was asked for, and how many connections were opened."""
    counts: Counter[str] = Counter()
    store = scheduler.store
    session = store.session

    def opened(*words, **more):
        counts["connections"] += 1
        return session(*words, **more)

    def counting(ledger, name):
        operation = getattr(ledger, name)

        def counted(*words, **more):
            counts[name] += 1
            return operation(*words, **more)

        monkeypatch.setattr(ledger, name, counted, raising=False)

    with scheduler._service.ledger() as ledger:
        for name in ("change", "change_many", "request_runs", "removed", "jobs", "triggers"):
            counting(ledger, name)
    monkeypatch.setattr(store, "session", opened)
    return counts


def test_many_jobs_are_added_in_few_transactions_over_one_connection(scheduler, asked):
    jobs = {f"report:{number}": (every("1h"), {"customer": number}) for number in range(MANY)}
    views = scheduler.add_many(report, jobs, by="ops", retries=2)
    assert [view.name for view in views] == list(jobs)
    assert asked == {"change_many": 3, "removed": 3}
    assert {view.rules.retries for view in views} == {2}
    job = scheduler.find_job("report:7")
    assert (job.kwargs, job.state, job.in_code, job.next_due is not None) == ({"customer": 7}, "active", False, True)


def test_jobs_that_exist_are_left_and_named_and_the_others_are_added(scheduler):
    scheduler.add(report, every("1h"), name="b", kwargs={"customer": 1})
    with pytest.raises(JobExists, match=r"has 'b' already: left as it is\. 2 others of this call were added"):
        scheduler.add_many(report, {name: (every("2h"), {"customer": 2}) for name in "abc"})
    assert [scheduler.find_job(name).kwargs["customer"] for name in "abc"] == [2, 1, 2]


def test_a_removed_job_is_added_again(scheduler):
    scheduler.add(report, every("1h"), name="a", kwargs={"customer": 1})
    scheduler.remove("a")
    scheduler.remove("report")
    (a, again) = scheduler.add_many(report, {name: (every("2h"), {"customer": 2}) for name in ("a", "report")})
    assert (a.state, again.state) == ("active", "active")
    assert scheduler.find_job("report").changed_at is not None, "it counts as an update, so a start leaves it"


def test_nothing_is_added_if_one_of_them_is_wrong(scheduler):
    with pytest.raises(ConfigurationError, match="customer"):
        scheduler.add_many(report, {"a": (every("1h"), {"customer": 1}), "b": (every("1h"), {"costumer": 1})})
    assert [job.name for job in scheduler.jobs()] == ["report"]
    assert scheduler.add_many(report, {}) == []


def test_many_runs_are_requested_in_few_transactions_over_one_connection(scheduler, asked):
    runs = scheduler.run_now_many("report", ({"customer": number} for number in range(MANY)), by="ops", why="a gap")
    assert [run.kwargs for run in runs] == [{"customer": number} for number in range(MANY)]
    assert asked == {"request_runs": 3, "jobs": 3, "triggers": 3}
    assert len({run.key for run in runs}) == MANY
    assert [(action.what, action.why) for action in scheduler.actions()] == [("run-now", "a gap")]


def test_one_run_is_requested_with_two_statements(scheduler, asked):
    scheduler.run_now("report", kwargs={"customer": 1})
    assert asked == {"jobs": 1, "request_runs": 1}


def test_each_run_may_have_a_key(scheduler):
    first = scheduler.run_now_many("report", [{"customer": 1}, {"customer": 2}], keys=["a", "b"])
    again = scheduler.run_now_many("report", [{"customer": 2}, {"customer": 3}], keys=["b", "c"])
    assert [run.key for run in first + again] == ["a", "b", "b", "c"]
    assert first[1] == again[0]
    with pytest.raises(ConfigurationError, match="1 key for 2 runs"):
        scheduler.run_now_many("report", [{"customer": 1}, {"customer": 2}], keys=["a"])
    with pytest.raises(ConfigurationError, match="The same key is the same run"):
        scheduler.run_now_many("report", [{"customer": 9}], keys=["a"])


def test_runs_of_a_job_that_is_not_there_or_with_wrong_arguments_are_refused(scheduler):
    with pytest.raises(UnknownJob, match=r"'repport'.*Did you mean 'report'"):
        scheduler.run_now_many("repport", [{"customer": 1}])
    with pytest.raises(ConfigurationError, match="costumer"):
        scheduler.run_now_many("report", [{"customer": 1}, {"costumer": 1}])
    assert scheduler.run_now_many("report", []) == []
    assert scheduler.runs() == []
