"""What the ledger says, as metrics: each value on every store, and what happens with many jobs."""

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from metric_values import exported
from stores.ledger.scene import Scene
from tenure import Scheduler
from tenure.core.messages import JobChange, NewRun
from tenure.core.planning import MISSED
from tenure.core.records import Change, JobSpec, NodeFacts, Rules, RunState
from tenure.metrics import catalogue, collector, reading
from tenure.stores import store_for
from tenure.stores.ledger import FIRST
from tenure.triggers import every

HOUR = 3600.0


@pytest.fixture(params=["sqlite", "postgres"])
def scene(request, sqlite_url):
    url = sqlite_url if request.param == "sqlite" else request.getfixturevalue("database")
    store = store_for(url)
    store.prepare()
    opened = Scene(store)
    yield opened
    opened.close()


def values(scene, **options):
    registry = CollectorRegistry()
    registry.register(collector(Scheduler(scene.store, application=scene.application, capacity=0), **options))
    return exported(registry)


def test_an_application_without_anything(scene):
    found = values(scene)
    assert found["tenure_up"] == {(): 1}
    assert found["tenure_nodes"] == {("alive",): 0, ("silent",): 0}
    assert (found["tenure_jobs"], found["tenure_jobs_not_exported"]) == ({(): 0}, {(): 0})
    assert "tenure_planner_info" not in found
    assert "tenure_job_info" not in found


def test_a_job_that_fails_after_it_succeeded(scene):
    worker = scene.worker("web-1")
    trigger = every("1h")
    scene.add("report", queue="slow", expect_within=900.0, overlap="allow", max_running=None)
    since = scene.job("report").since
    scene.plan("report", *(scene.new(HOUR * ago) for ago in (3, 2, 1)))
    for state in (RunState.SUCCEEDED, RunState.FAILED, RunState.FAILED):
        run = worker.claim(1).runs[0]
        at = run.scheduled_for + 1
        worker.finish(run.id, state, error="no", started_at=at, finished_at=at + 7)
    found, job = values(scene), ("report",)
    assert found["tenure_job_info"] == {
        ("report", "slow", "Every 1 h of elapsed time, counted from 1970-01-01 00:00:00 UTC", "UTC"): 1
    }
    assert found["tenure_job_failures_in_a_row"] == {job: 2}
    assert found["tenure_job_last_success_timestamp_seconds"] == {job: scene.at(3 * HOUR) + 8}
    assert found["tenure_job_last_failure_timestamp_seconds"] == {job: scene.at(HOUR) + 8}
    assert found["tenure_job_last_duration_seconds"] == {job: 7}
    assert found["tenure_job_since_timestamp_seconds"] == {job: pytest.approx(since)}
    assert found["tenure_job_expected_by_timestamp_seconds"] == {job: trigger.following(since) + 900}
    assert found["tenure_job_next_due_timestamp_seconds"] == {job: trigger.following(scene.ledger.now())}
    assert (found["tenure_job_paused"], found["tenure_job_orphaned"]) == ({job: 0}, {job: 1})


def test_without_expect_within_the_deadline_comes_from_twenty_durations(scene):
    worker = scene.worker()
    scene.add("report", overlap="allow", max_running=None)
    scene.plan("report", *(scene.new(10.0 * ago) for ago in range(19, 0, -1)))
    for run in worker.claim(19).runs:
        worker.finish(run.id, started_at=run.scheduled_for, finished_at=run.scheduled_for + 20)
    assert "tenure_job_expected_by_timestamp_seconds" not in values(scene)
    scene.plan("report", scene.new(5))
    run = worker.take()
    worker.finish(run.id, started_at=run.scheduled_for, finished_at=run.scheduled_for + 20)
    since = scene.job("report").since
    assert values(scene)["tenure_job_expected_by_timestamp_seconds"] == {
        ("report",): pytest.approx(every("1h").following(since) + 60 + 3 * 20, abs=1e-3)
    }
    scene.plan("report", scene.new(4))
    worker.take()
    found = values(scene)
    assert found["tenure_job_unusual_after_seconds"] == {("report",): pytest.approx(60, abs=1e-3)}
    assert 0 <= found["tenure_job_running_seconds"]["report",] < 30


def test_a_missed_due_time_is_shown_until_a_later_run_has_ended_or_the_job_is_changed(scene):
    worker = scene.worker()
    scene.add("report", overlap="allow", max_running=None)
    metric, job = "tenure_job_missed_timestamp_seconds", ("report",)
    assert metric not in values(scene)

    def missed(ago):
        due = scene.ledger.now() - ago
        scene.plan("report", NewRun(due, due, None, RunState.SKIPPED, MISSED))
        return due

    missed(2 * HOUR)
    assert metric not in values(scene), "of before it was added"
    due = missed(0)
    assert values(scene)[metric] == {job: pytest.approx(due, abs=1e-5)}
    scene.plan("report", scene.new(scene.start - scene.ledger.now()))
    worker.finish(worker.take().id)
    assert metric not in values(scene)


def test_how_runs_of_the_last_day_ended_by_queue(scene, monkeypatch):
    monkeypatch.setattr(reading, "COUNTED_FOR", 0.0)
    registry = CollectorOnce(Scheduler(scene.store, application=scene.application, capacity=0))
    scene.add("report", queue="slow")
    outcomes = ("succeeded", "failed", "lost", "cancelled", "skipped", "missed")
    assert exported(registry)["tenure_runs_ended"] == {(outcome, "slow"): 0 for outcome in outcomes}
    for ago in (HOUR, 2 * HOUR, 26 * HOUR):
        scene.plan("report", scene.new(ago, state=RunState.SKIPPED, reason=MISSED))
    scene.add("quick", 20)
    worker = scene.worker()
    worker.finish(worker.take().id)
    scene.ledger.count_hours(scene.application, since=None, beyond=FIRST, jobs=10)
    found = {labels: runs for labels, runs in exported(registry)["tenure_runs_ended"].items() if runs}
    assert found == {("missed", "slow"): 2, ("succeeded", "default"): 1}


def test_a_run_that_waits_for_its_pool_has_no_deadline_unless_one_is_written(scene):
    worker = scene.worker()
    scene.add("before", 10, pool="pool")
    worker.take()
    for name, more in {"guessed": {"timeout": 60.0}, "written": {"expect_within": 900.0}}.items():
        scene.add(name, pool="pool", overlap="wait", **more)
    assert {*values(scene)["tenure_job_expected_by_timestamp_seconds"]} == {("guessed",), ("written",)}
    for name in ("guessed", "written"):
        scene.plan(name, 5)
    assert not worker.claim().runs
    assert {*values(scene)["tenure_job_expected_by_timestamp_seconds"]} == {("written",)}


def test_a_due_time_that_a_user_cancelled_moves_the_deadline(scene):
    scene.add("report", expect_within=900.0)
    scene.plan("report", scene.new(-5 * HOUR))
    [run] = scene.runs("report")
    scene.ledger.cancel(run.id, "ada", "")
    due = every("1h").following(run.scheduled_for)
    assert values(scene)["tenure_job_expected_by_timestamp_seconds"] == {("report",): due + 900}


def test_a_paused_job_is_expected_to_do_nothing(scene):
    scene.add("report", expect_within=900.0)
    assert values(scene)["tenure_job_paused"] == {("report",): 0}
    scene.pause("report", until=scene.at(-3600))
    found = values(scene)
    assert found["tenure_job_paused"] == {("report",): 0}, "the pause has an end"
    assert "tenure_job_expected_by_timestamp_seconds" not in found
    scene.resume("report")
    scene.pause("report")
    found = values(scene)
    assert found["tenure_job_paused"] == {("report",): 1}
    assert "tenure_job_expected_by_timestamp_seconds" not in found
    assert "tenure_job_next_due_timestamp_seconds" not in found


def test_what_is_open_and_what_is_overdue(scene):
    worker = scene.worker()
    scene.add("a", 500, 400, queue="one")
    scene.add("b", 300, queue="two")
    found = values(scene)
    assert found["tenure_runs_open"] == {
        **{(state, queue): 0 for state in ("waiting", "running") for queue in ("one", "two")},
        ("pending", "one"): 2,
        ("pending", "two"): 1,
    }
    assert found["tenure_overdue_runs"] == found["tenure_oldest_overdue_seconds"] == {(): 0}, "they are orphaned"
    assert found["tenure_orphaned_jobs"] == {(): 2}
    scene.ledger.write_facts(NodeFacts(worker.id, scene.application, frozenset("f"), None, 4, 0, "1", "2026a"))
    found = values(scene)
    assert found["tenure_overdue_runs"] == {(): 3}
    assert 500 <= found["tenure_oldest_overdue_seconds"][()] < 560
    assert found["tenure_orphaned_jobs"] == {(): 0}
    worker.claim(queues=("one",))
    assert values(scene)["tenure_runs_open"]["running", "one"] == 1


def test_nodes_with_one_label_are_one_series(database):
    with Scheduler(database, label="web", capacity=3) as one, Scheduler(database, label="web", capacity=4, ttl=29):
        registry = CollectorRegistry()
        registry.register(collector(one))
        found = {}
        while found.get("tenure_node_capacity") != {("web",): 7}:  # until both have written what they can
            found = exported(CollectorOnce(one))
        assert found["tenure_nodes"]["alive",] == 2
        assert found["tenure_planner_info"] == {("web",): 1}
        assert found["tenure_planner_term"][()] > 0
        assert found["tenure_node_running"] == {("web",): 0}


class CollectorOnce:
    """A registry that remembers nothing."""

    def __init__(self, scheduler):
        self._scheduler = scheduler

    def collect(self):
        return collector(self._scheduler).collect()


def many(scene, count):
    spec = JobSpec(scene.application, "", "f", every("1h").to_json(), Rules(expect_within=900.0))
    names = [f"{'mail' if i % 2 else 'report'} {i}" for i in range(count)]
    for first in range(0, count, 500):
        scene.ledger.change_many(
            [
                JobChange(
                    scene.application,
                    name,
                    Change.ADDED,
                    JobSpec(spec.application, name, spec.function, spec.trigger, spec.rules),
                    next_due=scene.start + HOUR,
                )
                for name in names[first : first + 500]
            ]
        )


def test_more_than_two_thousand_jobs_have_no_series_of_their_own_unless_some_are_chosen(scene):
    many(scene, reading.MOST)
    found = values(scene)
    assert len(found["tenure_job_info"]) == reading.MOST
    assert found["tenure_jobs_not_exported"] == {(): 0}
    scene.add("one more")
    found = values(scene)
    assert "tenure_job_info" not in found
    assert (found["tenure_jobs"], found["tenure_jobs_not_exported"]) == ({(): 2001}, {(): 2001})
    found = values(scene, jobs="mail *")
    assert len(found["tenure_job_info"]) == 1000
    assert found["tenure_jobs_not_exported"] == {(): 1001}


def test_every_metric_is_in_the_catalogue_and_no_label_is_one_of_prometheus():
    names = [metric.name for metric in catalogue.ALL]
    assert len(names) == len(set(names))
    assert all(name.startswith("tenure_") for name in names)
    assert not {"job", "instance"} & {label for metric in catalogue.ALL for label in metric.labels}
    assert all(
        name.endswith("_total") == (metric.kind == "counter") for name, metric in zip(names, catalogue.ALL, strict=True)
    )


def test_a_registry_may_ask_what_there_is_without_a_store(tmp_path):
    scheduler = Scheduler(f"sqlite:///{tmp_path}/none/jobs.db", capacity=0)
    described = [family.name for family in collector(scheduler).describe()]
    assert described == [metric.name for metric in catalogue.OF_STORE]
    assert list(text_string_to_metric_families("")) == []
