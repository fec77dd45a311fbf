"""Sync: what nodes of different releases bring at their start."""

from stores.ledger.scene import DAILY, SOON
from tenure.core.messages import JobChange
from tenure.core.records import Change, JobState


def _sync(scene, release, *specs, runs=()):
    changes = [
        JobChange(scene.application, spec.name, Change.ADDED, spec=spec, next_due=scene.start + SOON, runs=runs)
        for spec in specs
    ]
    synced = scene.ledger.sync(scene.application, release, changes)
    assert [one.row for one in synced] == [scene.job(name) for name in sorted(spec.name for spec in specs)]
    return [one.row for one in synced if one.row.state is not JobState.REMOVED]


def test_sync_adds_what_is_not_there(scene, ledger):
    rows = _sync(scene, 3, scene.spec("b", release=3), scene.spec("a", release=3), runs=(scene.new(10),))
    assert [(row.spec.name, row.generation, row.spec.release) for row in rows] == [("a", 1, 3), ("b", 1, 3)]
    assert rows == ledger.jobs(scene.application)
    assert scene.told("a") == scene.told("b") == ["pending"]
    assert [record.what for record in ledger.changes(scene.application)] == [Change.ADDED] * 2


def test_sync_does_not_return_jobs_that_it_did_not_bring(scene):
    """There may be a million of them."""
    scene.add("by hand", in_code=False)
    scene.add("gone")
    scene.remove("gone")
    assert [row.spec.name for row in _sync(scene, 1, scene.spec("a", release=1))] == ["a"]
    assert _sync(scene, 1) == []


def test_what_is_equal_is_left_alone(scene, ledger):
    _sync(scene, 1, scene.spec(release=1))
    scene.plan("job", -600)
    before = scene.job()
    (row,) = _sync(scene, 1, scene.spec(release=1))
    assert row == before
    assert scene.told() == ["pending"]
    assert len(ledger.changes(scene.application)) == 1


def test_release_and_tzdata_of_what_is_equal_are_raised(scene, ledger):
    _sync(scene, 1, scene.spec(release=1, tzdata="2026a"))
    scene.plan("job", -600)
    (row,) = _sync(scene, 2, scene.spec(release=2, tzdata="2026b"))
    assert (row.spec.release, row.spec.tzdata, row.generation) == (2, "2026b", 1)
    assert scene.job() == row
    assert scene.told() == ["pending"]
    (row,) = _sync(scene, 2, scene.spec(release=2, tzdata="2026a"))
    assert row.spec.tzdata == "2026b", "never lowered"
    assert len(ledger.changes(scene.application)) == 1


def test_what_differs_is_updated(scene, ledger):
    _sync(scene, 1, scene.spec(release=1))
    scene.plan("job", -600)
    (row,) = _sync(scene, 1, scene.spec(release=1, trigger=DAILY), runs=(scene.new(10),))
    assert (row.spec.trigger, row.generation) == (DAILY, 2)
    assert [run.scheduled_for - scene.start for run in scene.runs()] == [-10]
    assert [record.what for record in ledger.changes(scene.application)] == [Change.ADDED, Change.UPDATED]


def test_a_lower_release_never_overwrites_a_higher(scene):
    _sync(scene, 2, scene.spec(release=2, function="new"))
    before = scene.job()
    _sync(scene, 1, scene.spec(release=1, function="old"))
    assert scene.job() == before
    _sync(scene, 3, scene.spec(release=3, function="newest"))
    assert scene.job().spec.function == "newest"


def test_a_pause_survives_a_sync(scene):
    _sync(scene, 1, scene.spec(release=1))
    scene.pause(by="ops", why="maintenance")
    (row,) = _sync(scene, 2, scene.spec(release=2, function="g"))
    assert (row.state, row.paused_by, row.spec.function) == (JobState.PAUSED, "ops", "g")


def test_what_was_removed_by_hand_stays_removed(scene):
    _sync(scene, 2, scene.spec(release=2))
    scene.remove()
    assert _sync(scene, 2, scene.spec(release=2)) == []
    assert _sync(scene, 1, scene.spec(release=1, function="old")) == []
    assert scene.job().state is JobState.REMOVED


def test_a_higher_release_alone_does_not_bring_it_back(scene):
    _sync(scene, 2, scene.spec(release=2))
    scene.remove()
    assert _sync(scene, 3, scene.spec(release=3)) == []
    assert (scene.job().state, scene.job().spec.release) == (JobState.REMOVED, 3)
    assert _sync(scene, 2, scene.spec(release=2, function="g")) == [], "a lower release does not count any more"


def test_a_removal_says_who_and_when(scene, about_now):
    _sync(scene, 2, scene.spec(release=2))
    removed = scene.change(Change.REMOVED, by="ops")
    assert (removed.removed_by, about_now(removed.removed_at)) == ("ops", True)
    assert scene.ledger.removed(scene.application) == [removed]
    _sync(scene, 2, scene.spec(release=2, function="g"))
    assert (scene.job().removed_by, scene.job().removed_at) == ("", None)


def test_code_that_still_defines_what_was_removed_is_seen(scene):
    _sync(scene, 2, scene.spec("poll", release=2), scene.spec("other", release=2))
    scene.add("by hand", in_code=False)
    for name in ("poll", "other", "by hand"):
        scene.remove(name)
    _sync(scene, 2, scene.spec("poll", release=2))
    assert scene.job("poll").defined_at > scene.job("poll").removed_at
    _sync(scene, 1, scene.spec("other", release=1))
    assert scene.job("other").defined_at > scene.job("other").removed_at, "also by an older release"
    assert [row.spec.name for row in scene.ledger.removed(scene.application)] == ["other", "poll"]
    assert [row.spec.name for row in scene.ledger.removed(scene.application, ["poll", "by hand", "x"])] == ["poll"]
    before = scene.job("poll").defined_at
    _sync(scene, 2, scene.spec("poll", release=2))
    assert scene.job("poll").defined_at == before, "not at every start of many nodes"


def test_another_spec_brings_it_back(scene):
    _sync(scene, 2, scene.spec(release=2))
    scene.remove()
    (row,) = _sync(scene, 2, scene.spec(release=2, function="g"))
    assert (row.state, row.spec.function) == (JobState.ACTIVE, "g")
