"""The dead man's switch, as Prometheus sees it: an exporter that takes no part is scraped while worker processes are
frozen, retired and replaced."""

import subprocess
import sys
import time

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.scenes import APPLICATION, stage
from harness.scratch import eventually, free_port

GOOD = {"name": "good", "every": 1, "body": "note", "policy": {"overlap": "allow", "expect_within": 8}}
OTHER = {"name": "other", "every": 1, "body": "note", "policy": {"overlap": "allow", "expect_within": 300}}


@pytest.fixture
def make(tmp_path):
    with stage(tmp_path) as make:
        yield make


class Exporter:
    """`tenure metrics --listen` as a process of its own."""

    def __init__(self, url):
        self._port = free_port()
        words = ["metrics", "--url", url, "--app", APPLICATION, "--listen", str(self._port)]
        self._process = subprocess.Popen([sys.executable, "-m", "tenure", *words], stderr=subprocess.DEVNULL)
        eventually(self._answers, within=30)

    def _answers(self):
        try:
            return httpx.get(f"http://127.0.0.1:{self._port}/livez").status_code == 200
        except httpx.TransportError:
            return False

    def scrape(self):
        """Each sample by its metric and the values of its labels."""
        text = httpx.get(f"http://127.0.0.1:{self._port}/metrics", timeout=30).text
        families = text_string_to_metric_families(text)
        return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}

    def passed(self, job):
        """Whether the deadline of a job has passed: `time() > tenure_job_expected_by_timestamp_seconds`."""
        found = self.scrape()
        assert found["tenure_up",] == 1
        return time.time() > found["tenure_job_expected_by_timestamp_seconds", job]

    def close(self):
        self._process.terminate()
        assert self._process.wait(30) == 0


@pytest.fixture
def exporter():
    started = []

    def start(scene):
        started.append(Exporter(scene.url))
        return started[-1]

    yield start
    for one in started:
        one.close()


def succeeded(scene, job, since):
    """Whether several due times of a job after this instant have succeeded."""
    return sum(row.state.value == "succeeded" for row in scene.rows(since, job=job)) >= 3


@pytest.mark.timeout(180)
def test_it_stays_ahead_while_only_the_planner_is_frozen_for_longer_than_the_deadline(url, make, exporter):
    expect_within = 25
    job = {**GOOD, "policy": {**GOOD["policy"], "expect_within": expect_within}}
    scene = make(url, jobs=[job]).start(3)
    watch = exporter(scene)
    scene.eventually(lambda: succeeded(scene, "good", 0))
    assert not watch.passed("good")
    planner = scene.planner()
    scene.freeze(planner)
    frozen = scene.now()

    def outlived():
        assert not watch.passed("good"), scene.stories()
        return succeeded(scene, "good", frozen + expect_within)

    scene.eventually(outlived, within=100)
    others = [worker.label for worker in scene.alive if worker is not planner]
    scene.eventually(lambda: sum(watch.scrape().get(("tenure_planner_info", label), 0) for label in others) == 1)


@pytest.mark.timeout(180)
def test_it_passes_while_all_nodes_are_frozen_and_is_ahead_again_after_they_go_on(url, make, exporter):
    scene = make(url, jobs=[GOOD]).start(3)
    watch = exporter(scene)
    scene.eventually(lambda: succeeded(scene, "good", 0))
    assert not watch.passed("good")
    for worker in scene.alive:
        scene.freeze(worker)
    frozen = scene.now()
    scene.eventually(lambda: watch.passed("good"), within=60)
    assert not [row for row in scene.rows(frozen + 1) if row.state.final], "none of them does anything"
    for worker in scene.alive:
        scene.thaw(worker)
    scene.eventually(lambda: not watch.passed("good"), within=60)


@pytest.mark.timeout(180)
def test_it_passes_while_no_node_has_the_function_and_the_other_jobs_go_on(url, make, exporter):
    scene = make(url, jobs=[GOOD, OTHER])
    scene.add(jobs=[OTHER])
    having = [scene.add(), scene.add()]
    watch = exporter(scene)
    scene.eventually(lambda: succeeded(scene, "good", 0))
    scene.retire(having[0])
    since = scene.now()
    scene.eventually(lambda: succeeded(scene, "good", since), within=60)
    assert not watch.passed("good"), "one of them is left"
    scene.retire(having[1])
    gone = scene.now()
    scene.eventually(lambda: watch.passed("good"), within=60)
    assert succeeded(scene, "other", gone)
    assert not watch.passed("other")
    scene.eventually(lambda: watch.scrape()["tenure_job_orphaned", "good"] == 1)
    assert watch.scrape()["tenure_job_orphaned", "other"] == 0
    scene.add()
    scene.eventually(lambda: not watch.passed("good"), within=60)
