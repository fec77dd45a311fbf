"""An update by hand of a job that code defines: it holds until the code says something else, and `reset` takes it
back."""

import json
from dataclasses import replace

import pytest

from stores.ledger.scene import DAILY, HOURLY, SOON, Scene
from tenure.core.messages import JobChange, Synced
from tenure.core.records import Change, JobRow, JobSpec, JobState, Override
from tenure.errors import JobError
from tenure.jobs import operations
from tenure.jobs.operations import ChangeNote
from tenure.stores import overrides
from tenure.triggers import every

NINE = every("9s").to_json()


def _start(scene: Scene, release: int = 0, **spec: object) -> Synced:
    """What a worker with this code brings."""
    written = scene.spec(release=release, **spec)
    change = JobChange(scene.application, "job", Change.ADDED, spec=written, next_due=scene.start + SOON)
    (synced,) = scene.ledger.sync(scene.application, release, [change])
    return synced


def _update(scene: Scene, by: str = "ops", why: str = "", **words: object) -> JobRow:
    ledger = scene.ledger
    changed = ledger.change(operations.updated(scene.job(), ledger.now(), said=ChangeNote(by, why), **words))
    assert changed is not None
    return changed


def _reset(scene: Scene) -> JobRow:
    row = scene.ledger.change(operations.reset(scene.job(), scene.ledger.now(), ChangeNote("ops")))
    assert row is not None
    return row


def test_an_update_by_hand_survives_every_start_with_the_same_code(scene, about_now):
    _start(scene, kwargs='{"a":"ä"}', retries=1)
    row = _update(scene, trigger=every("9s"), why="it is slow")
    assert row.override is not None
    assert (row.spec.trigger, row.override.by, row.override.why, about_now(row.override.at)) == (
        NINE,
        "ops",
        "it is slow",
        True,
    )
    assert row.code.same_as(scene.spec(kwargs='{"a":"ä"}', retries=1))
    for release in (0, 1, 1):
        synced = _start(scene, release, kwargs='{"a":"ä"}', retries=1)
        assert (synced.row.spec.trigger, synced.row.generation, synced.row.spec.release) == (NINE, 2, release)
        assert synced.was is not None
        assert synced.was.generation == 2
    assert scene.job().override == row.override
    assert [record.what for record in scene.ledger.changes(scene.application)] == [Change.ADDED, Change.UPDATED]


@pytest.mark.parametrize("code", [{"trigger": DAILY}, {"function": "g"}, {"kwargs": '{"a":1}'}, {"retries": 2}])
def test_a_changed_definition_ends_it(scene, code):
    _start(scene)
    _update(scene, trigger=every("9s"))
    synced = _start(scene, **code)
    assert (synced.row.override, synced.row.generation) == (None, 3)
    assert synced.row.spec.same_as(scene.spec(**code))
    assert synced.was is not None
    assert (synced.was.spec.trigger, synced.was.code.trigger) == (NINE, HOURLY)
    again = _start(scene, **code)
    assert again.was == again.row == synced.row


def test_code_of_a_lower_release_does_not_end_it(scene):
    _start(scene, 5)
    _update(scene, trigger=every("9s"))
    assert _start(scene, 4, trigger=DAILY).row == scene.job()
    assert (scene.job().spec.trigger, scene.job().code.trigger) == (NINE, HOURLY)


def test_a_second_update_keeps_what_the_code_says(scene):
    _start(scene)
    _update(scene, trigger=every("9s"))
    row = _update(scene, by="night shift", policy={"retries": 3})
    assert row.override is not None
    assert (row.spec.trigger, row.spec.rules.retries, row.override.by) == (NINE, 3, "night shift")
    assert row.code.same_as(scene.spec())


def test_an_update_that_changes_nothing_changes_no_name(scene):
    _start(scene)
    assert _update(scene, policy={"retries": 0}).override is None
    before = _update(scene, policy={"retries": 3}).override
    assert _update(scene, by="night shift", policy={"retries": 3}).override == before


def test_an_update_to_what_the_code_says_is_no_override(scene):
    _start(scene)
    _update(scene, trigger=every("9s"))
    assert _update(scene, trigger=every("1h")).override is None


def test_reset_puts_the_definition_of_the_code_back(scene):
    _start(scene, 3, kwargs='{"a":1}', timeout=5.0)
    before = scene.job()
    _update(scene, trigger=None, kwargs="{}", policy={"timeout": None, "queue": "slow"})
    assert scene.job().next_due is None
    row = _reset(scene)
    assert (row.spec, row.override, row.state) == (before.spec, None, JobState.ACTIVE)
    assert row.next_due is not None
    assert _start(scene, 3, kwargs='{"a":1}', timeout=5.0).row == row
    with pytest.raises(JobError, match="has no change by hand"):
        _reset(scene)


def test_there_is_nothing_to_reset_in_a_job_that_was_added_at_run_time(scene):
    scene.add(in_code=False)
    assert _update(scene, trigger=every("9s")).override is None
    with pytest.raises(JobError, match="added at run time"):
        _reset(scene)


def test_pauses_and_resumes_leave_it_alone(scene):
    _start(scene)
    override = _update(scene, trigger=every("9s")).override
    scene.pause()
    assert (scene.job().state, scene.job().override) == (JobState.PAUSED, override)
    assert _update(scene, policy={"retries": 1}).state is JobState.PAUSED
    assert _reset(scene).state is JobState.PAUSED
    scene.resume()
    assert (scene.job().state, scene.job().override) == (JobState.ACTIVE, None)


def test_what_was_changed_and_then_removed_stays_removed(scene):
    _start(scene)
    _update(scene, trigger=every("9s"))
    scene.remove()
    synced = _start(scene)
    assert (synced.row.state, synced.row.spec.trigger) == (JobState.REMOVED, NINE)
    assert synced.was is not None
    assert synced.was.generation == synced.row.generation
    back = _start(scene, function="g").row
    assert (back.state, back.spec.trigger, back.override) == (JobState.ACTIVE, HOURLY, None)


def test_a_restored_job_is_still_changed(scene):
    _start(scene)
    override = _update(scene, trigger=every("9s")).override
    scene.remove()
    row = scene.ledger.change(operations.restored(scene.job(), scene.ledger.now()))
    assert row is not None
    assert (row.state, row.spec.trigger, row.override) == (JobState.ACTIVE, NINE, override)
    assert _start(scene).row == row
    assert _reset(scene).spec.trigger == HOURLY


def _add_over(scene: Scene, **spec: object) -> JobRow:
    change = operations.added(scene.spec(in_code=False, **spec), scene.ledger.now(), ChangeNote("ops"))
    row = scene.ledger.change(operations.added_over(scene.job(), change, scene.ledger.now()))
    assert row is not None
    return row


def test_a_job_that_was_added_over_a_removed_one_of_the_code_holds_too(scene):
    _start(scene)
    scene.remove()
    row = _add_over(scene, trigger=NINE)
    assert (row.spec.in_code, row.spec.trigger, row.code.trigger) == (False, NINE, HOURLY)
    assert _start(scene).row == row
    assert _update(scene, policy={"retries": 1}).code.trigger == HOURLY
    back = _reset(scene)
    assert (back.spec.in_code, back.spec.trigger, back.override) == (True, HOURLY, None)


def test_adding_what_the_code_says_is_no_override(scene):
    _start(scene)
    scene.remove()
    row = _add_over(scene)
    assert (row.spec.in_code, row.override) == (True, None)


def test_zone_rules_of_the_code_are_not_those_of_another_trigger(scene):
    """A trigger by hand that depends on no zone can be planned by any node."""
    _start(scene, 1, tzdata="2026a")
    _update(scene, trigger=every("9s"))
    row = _start(scene, 2, tzdata="2026b").row
    assert (row.spec.release, row.spec.tzdata) == (2, "")


def test_planning_anew_keeps_it(scene):
    """What the planner writes is no change by hand."""
    _start(scene)
    row = _update(scene, trigger=every("9s"))
    scene.change(Change.UPDATED, spec=row.spec, next_due=scene.start + 9, override=row.override)
    assert scene.job().override == row.override
    assert _start(scene).row.spec.trigger == NINE


def test_an_override_is_written_as_it_is(scene):
    code = scene.spec(
        function="fün", kwargs=json.dumps({"a": "\0 \\u0000 '"}), trigger=None, backoff=(1.0, 2.0), max_lost=9
    )
    override = Override(code, scene.start, "o'ps", "\N{SNOWMAN}")
    scene.change(Change.ADDED, spec=scene.spec(), override=override)
    assert scene.job().override == override
    assert scene.job().code == replace(code, release=0)
    assert [row.override for row in scene.ledger.jobs(scene.application)] == [override]


CODE = {"function": "f", "trigger": None, "kwargs": "{}", "rules": {}}
WHO = {"at": 1.0, "by": "ops", "why": "", "tzdata": ""}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "7",
        "[]",
        "{}",
        "[" * 100_000,
        json.dumps({"code": 7, **WHO}),
        json.dumps({"code": {**CODE, "function": 7}, **WHO}),
        json.dumps({"code": {**CODE, "trigger": []}, **WHO}),
        json.dumps({"code": CODE, **WHO, "at": "now"}),
        json.dumps({"code": CODE, **WHO, "at": 1e300}),
        json.dumps({"code": CODE, **WHO, "by": None}),
        7,
        None,
    ],
)
def test_an_override_that_cannot_be_read_is_none(text):
    spec = JobSpec("app", "job", "f", None)
    assert overrides.read(text, spec) is None
    assert overrides.read(json.dumps({"code": CODE, **WHO}), spec) == Override(spec, 1.0, "ops")
