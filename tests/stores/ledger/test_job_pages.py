"""Pages of a list of jobs, and the strips of their last runs: bounded, however many jobs and runs there are."""

from typing import Any

import pytest

from stores.ledger.scene import Scene
from tenure.core.messages import JobPageQuery
from tenure.core.records import Change, JobState, RunState


def _page(scene: Scene, **more: Any) -> tuple[list[str], int]:
    rows, total = scene.ledger.job_page(JobPageQuery(scene.application, **more))
    return [row.spec.name for row in rows], total


@pytest.fixture
def many(scene: Scene) -> Scene:
    """Six jobs: two paused or removed, one done, due in the opposite order of their names."""
    for place, name in enumerate("abcdef"):
        scene.add(f"job {name}", next_due=scene.start + 600 - place)
    scene.pause("job b")
    scene.remove("job c")
    scene.change(Change.UPDATED, "job d", spec=scene.spec("job d"), next_due=None)
    return scene


@pytest.mark.parametrize(
    ("asked", "names", "total"),
    [
        ({}, "abdef", 5),
        ({"limit": 2}, "ab", 5),
        ({"limit": 2, "skip": 2}, "de", 5),
        ({"skip": 9}, "", 5),
        ({"contains": "JOB E"}, "e", 1),
        ({"contains": "%"}, "", 0),
        ({"state": JobState.PAUSED}, "b", 1),
        ({"state": JobState.REMOVED}, "c", 1),
        ({"state": JobState.DONE}, "d", 1),
        ({"state": JobState.ACTIVE}, "aef", 3),
        ({"names": ("job a", "job f", "nope")}, "af", 2),
        ({"names": ()}, "", 0),
        ({"first": ("job e", "job f")}, "efabd", 5),
        ({"by_next": True, "state": JobState.ACTIVE}, "fea", 3),
        ({"queue": "another"}, "", 0),
        ({"queue": "default", "limit": 1, "first": ("job d",)}, "d", 5),
        ({"tag": "money"}, "", 0),
    ],
)
def test_a_page_has_the_jobs_that_everything_applies_to(many, asked, names, total):
    assert _page(many, **asked) == ([f"job {name}" for name in names], total)


def test_jobs_are_found_by_their_tags_and_of_one_application(scene):
    scene.add("one", tags=("money", "night"))
    scene.add("two", tags=("night",))
    assert _page(scene, tag="money") == (["one"], 1)
    assert _page(scene, tag="night") == (["one", "two"], 2)
    assert scene.ledger.job_page(JobPageQuery(scene.application + " too")) == ([], 0)


def test_those_with_nothing_due_come_last(many):
    assert _page(many, by_next=True)[0][-1] == "job d"


def test_a_strip_has_the_last_runs_the_newest_first(scene, worker):
    first, second = scene.add("first", 300, 200, 100, overlap="allow", max_running=9), scene.add("second", 50)
    third = scene.add("third")
    taken = {run.scheduled_for: run for run in worker.claim().runs}
    ended = taken[scene.start - 200]
    worker.finish(ended.id, RunState.FAILED, started_at=scene.start - 199.0, finished_at=scene.start - 198.5)
    strips = scene.ledger.strips([first.id, second.id, third.id], scene.start, 60)
    assert set(strips) == {first.id, second.id}
    assert [(run.state, run.due_at) for run in strips[first.id]] == [
        (RunState.RUNNING, scene.start - 100),
        (RunState.FAILED, scene.start - 200),
        (RunState.RUNNING, scene.start - 300),
    ]
    failed = strips[first.id][1]
    assert (failed.id, failed.started_at, failed.finished_at) == (ended.id, scene.start - 199.0, scene.start - 198.5)
    assert [run.due_at for run in scene.ledger.strips([first.id], scene.start, 2)[first.id]] == [
        scene.start - 100, scene.start - 200
    ]  # fmt: skip
    assert [run.due_at for run in scene.ledger.strips([first.id], scene.start - 150, 9)[first.id]] == [
        scene.start - 200, scene.start - 300
    ]  # fmt: skip
    assert scene.ledger.strips([], scene.start, 9) == {}
