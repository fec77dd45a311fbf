"""The log of actions: written with the operation it records, or not at all."""

from dataclasses import replace
from typing import Any

import pytest

from stores.ledger.scene import Scene
from tenure.core.cluster import Acquire
from tenure.core.messages import Action, ActionQuery
from tenure.core.records import ActionRecord, Change, RunState

ADA = Action("pause", "ada", "maintenance", "command line on vm", "until noon")


def _log(scene: Scene, **more: Any) -> list[ActionRecord]:
    found = scene.ledger.actions(ActionQuery(scene.application, **more))
    return [action for action in found if scene.application in f"{action.application} {action.target}"]


def _told(scene: Scene, **more: Any) -> list[tuple[str, str]]:
    return [(action.what, action.target) for action in _log(scene, **more)]


def test_an_action_is_recorded_with_all_that_it_says(scene, about_now):
    scene.add()
    scene.pause(by="ada", action=ADA)
    [noted] = _log(scene)
    assert about_now(noted.at)
    assert noted == ActionRecord(
        noted.id, noted.at, scene.application, "ada", "pause", "job", None, "maintenance", ADA.origin, "until noon"
    )


def test_the_log_is_turned_by_the_numbers_of_its_lines_and_filtered_by_what_was_done(scene):
    scene.add()
    for turn in range(3):
        scene.pause(by="ada", action=replace(ADA, detail=str(turn)))
        scene.change(Change.RESUMED, next_due=scene.start + 60, action=Action("resume", "bob"))
    page = _log(scene, limit=4)
    rest = _log(scene, limit=4, below=page[-1].id)
    assert [action.what for action in page + rest] == ["resume", "pause"] * 3
    assert [action.id for action in page + rest] == sorted({action.id for action in page + rest}, reverse=True)
    assert _told(scene, what="pause") == [("pause", "job")] * 3
    assert _told(scene, what="pause", below=page[-1].id) == [("pause", "job")]
    assert _told(scene, what="pause", by="bob") == []
    assert _told(scene, what="resume", target="job", by="bob", below=page[0].id) == [("resume", "job")] * 2


def test_what_nobody_did_is_not_recorded(scene):
    scene.add()
    scene.pause(by="ada", why="maintenance")
    scene.ask(by="ada")
    assert _log(scene) == []


def test_a_change_that_changes_nothing_records_nothing(scene):
    job = scene.add()
    scene.change(Change.RESUMED, next_due=scene.start + 60, action=replace(ADA, what="resume"))
    scene.change(Change.PAUSED, generation=job.generation - 1, action=ADA)
    scene.change(Change.PAUSED, "another", action=ADA)
    scene.change(Change.ADDED, spec=scene.spec(), action=replace(ADA, what="add"))
    assert _log(scene) == []


def test_a_requested_run_is_recorded_with_its_number_and_once_for_its_key(scene):
    scene.add()
    asked = Action("run-now", "ada")
    run = scene.ask(key="mine", action=asked)
    scene.ask(key="mine", action=asked)
    scene.ask("another", action=asked)
    assert [(action.what, action.run) for action in _log(scene)] == [("run-now", run.id)]


def test_a_backfill_of_many_due_times_is_one_action(scene, worker):
    scene.add("job", 30)
    worker.claim()
    ago = [9000.0, 6000.0, 3000.0]
    asked = [
        scene.request("job", f"due {at}", scheduled_for=scene.at(at), backfill=True, action=Action("backfill", "ada"))
        for at in ago
    ]
    assert all(scene.ledger.request_runs(asked))
    assert [(action.what, action.target, action.run) for action in _log(scene)] == [("backfill", "job", None)]
    assert scene.ledger.request_runs(asked) == [None, None, None]
    assert len(_log(scene)) == 1


def test_runs_of_several_jobs_are_an_action_on_each(scene):
    scene.add("a")
    scene.add("b")
    asked = [scene.request(name, f"key {n}", action=Action("run-now", "ada")) for n, name in enumerate("abab")]
    first, second, *_ = scene.ledger.request_runs(asked)
    assert [(action.target, action.run) for action in _log(scene)] == [("b", second.id), ("a", first.id)]


def test_a_reopened_due_time_is_an_action(scene, worker):
    scene.add("job", 30, 20)
    run = worker.take()
    worker.finish(run.id)
    [skipped] = scene.runs(states=[RunState.SKIPPED])
    due = {"scheduled_for": skipped.scheduled_for, "backfill": True}
    assert scene.ask(key=skipped.key, action=Action("backfill", "ada"), **due).state is RunState.PENDING
    assert _told(scene) == [("backfill", "job")]


def test_a_cancelled_run_is_an_action_unless_it_was_over(scene, worker):
    scene.add("job", 30)
    cancels = Action("cancel", "ada", "wrong month")
    run = worker.take()
    scene.ledger.cancel(run.id, "ada", "wrong month", cancels)
    assert [(action.what, action.run, action.why) for action in _log(scene)] == [("cancel", run.id, "wrong month")]
    worker.finish(run.id, RunState.CANCELLED)
    scene.ledger.cancel(run.id, "ada", "again", cancels)
    assert len(_log(scene)) == 1
    waiting = scene.ask()
    scene.ledger.cancel(waiting.id, "ada", "", cancels)
    assert [action.run for action in _log(scene)] == [waiting.id, run.id]


def test_many_cancelled_runs_are_one_action_on_each_job(scene, worker):
    scene.add("a")
    scene.add("b", 30)
    worker.take()
    runs = [scene.ask("a").id, scene.runs("b")[0].id, scene.ask("a").id]
    scene.ledger.cancel_many(runs, "ada", "wrong month", Action("cancel", "ada", "wrong month"))
    told = [(action.target, action.run, action.detail, action.why) for action in _log(scene)]
    assert sorted(told) == [("a", None, "2 runs", "wrong month"), ("b", runs[1], "", "wrong month")]
    scene.ledger.cancel_many([runs[0], runs[2]], "ada", "", Action("cancel", "ada"))
    assert len(_log(scene)) == 2, "both were over"


def test_the_size_of_a_pool_is_an_action_if_it_changes(scene):
    sized = [Action("pool", "ada", "night", detail=f"size {size}") for size in (2, 2, 3)]
    for size, action in zip((2, 2, 3), sized, strict=True):
        scene.ledger.set_pool(scene.application, "warehouse", size, action)
    scene.ledger.set_pool(scene.application, "warehouse", 4)
    told = [(action.what, action.target, action.run, action.detail, action.why) for action in _log(scene)]
    assert told == [("pool", "warehouse", None, f"size {size}", "night") for size in (3, 2)]


def test_a_request_to_resign_is_an_action_of_its_application_or_of_none(scene, worker):
    mine, other = f"planner of {scene.application}", f"election {scene.application}"
    resign = Action("resign", "ada")
    assert scene.session.ask(mine, scene.application, resign) is None
    for election in (mine, other):
        worker.session.acquire(Acquire(worker.id, election))
    scene.session.ask(mine, scene.application, resign)
    scene.session.ask(other, action=resign)
    scene.session.ask(other)
    found = {(action.target, action.application) for action in _log(scene) if scene.application in action.target}
    assert found == {(mine, scene.application), (other, "")}
    assert [action.target for action in _log(scene, target=other)] == [other]


def test_actions_are_found_by_target_person_and_time_newest_first(scene):
    for name in ("a", "b"):
        scene.add(name)
        scene.pause(name, action=Action("pause", f"{name}da"))
        scene.remove(name, action=Action("remove", "ada"))
    assert _told(scene) == [("remove", "b"), ("pause", "b"), ("remove", "a"), ("pause", "a")]
    assert _told(scene, limit=1) == [("remove", "b")]
    assert _told(scene, target="a") == [("remove", "a"), ("pause", "a")]
    assert _told(scene, by="ada") == [("remove", "b"), ("remove", "a"), ("pause", "a")]
    assert _told(scene, target="b", by="bda") == [("pause", "b")]
    first = _log(scene)[-1].at
    assert _told(scene, before=first) == []
    assert len(_told(scene, since=first)) == 4
    assert _told(scene, since=first + 3600) == []
    assert all(action.application == "" for action in scene.ledger.actions(ActionQuery(scene.application + " too")))


def test_text_that_no_table_stores_is_escaped(scene):
    scene.add()
    scene.pause(action=Action("pause", "a\0b", "\ud800"))
    [noted] = _log(scene)
    assert noted.target == "job"
    if not scene.store.shown.startswith("memory:"):
        assert (noted.by, noted.why) == ("a\\x00b", "\\ud800")


def test_old_actions_are_forgotten_a_few_at_a_time(scene):
    scene.add()
    for _ in range(3):
        scene.pause(action=ADA)
    third, second, first = _log(scene)
    more = {"keep": 100_000, "limit": 2}
    scene.ledger.forget_actions(scene.application + " too", before=scene.start + 3600, **more)
    assert scene.ledger.forget_actions(scene.application, before=first.at, **more) == 0
    assert scene.ledger.forget_actions(scene.application, before=scene.ledger.now() + 1, **more) == 2
    assert _log(scene) == [third]
    assert (first.id, second.id) < (second.id, third.id)
    assert scene.ledger.forget_actions(scene.application, before=scene.ledger.now() + 1, **more) == 1
    assert _log(scene) == []


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_only_the_newest_actions_are_kept(scene, keep):
    scene.add()
    for _ in range(3):
        scene.pause(action=ADA)
    newest = _log(scene)
    scene.ledger.forget_actions(scene.application, before=0.0, keep=keep, limit=100)
    assert _log(scene)[: keep + 1] == newest[:keep]
