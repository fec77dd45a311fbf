"""Jobs by pattern, tag and queue, and one change to each of many."""

import threading

import pytest

from tenure.core.messages import Action, ActionQuery, JobChange, JobQuery
from tenure.core.patterns import matches
from tenure.core.records import Change, JobState


def _names(scene, **query):
    return [row.spec.name for row in scene.ledger.find_jobs(JobQuery(scene.application, **query))]


def test_tags_are_kept(scene):
    scene.add(tags=("a", "ü"))
    assert scene.job().spec.rules.tags == ("a", "ü")
    scene.change(Change.UPDATED, spec=scene.spec(), next_due=scene.start + 3600)
    assert scene.job().spec.rules.tags == ()


def test_jobs_are_found_by_tag_queue_and_pattern(scene):
    scene.add("report:1", tags=("c-1", "reports"))
    scene.add("report:2", tags=("c-2", "reports"), queue="slow")
    scene.add("sync:1", tags=("c-1",), queue="slow")
    scene.add("plain")
    assert _names(scene) == ["plain", "report:1", "report:2", "sync:1"]
    assert _names(scene, tag="c-1") == ["report:1", "sync:1"]
    assert _names(scene, tag="c") == []
    assert _names(scene, queue="slow") == ["report:2", "sync:1"]
    assert _names(scene, queue="default", tag="reports") == ["report:1"]
    assert _names(scene, pattern="report:*") == ["report:1", "report:2"]
    assert _names(scene, pattern="*:1") == ["report:1", "sync:1"]
    assert _names(scene, pattern="report:?") == ["report:1", "report:2"]
    assert _names(scene, pattern="plain") == ["plain"]
    assert _names(scene, pattern="Plain") == []
    assert _names(scene, pattern="report") == []


def test_a_page_of_jobs_begins_behind_a_name(scene):
    for name in ("b", "a", "Z", "ä", "a b", "c"):
        scene.add(name, tags=("x",))
    assert _names(scene) == ["Z", "a", "a b", "b", "c", "ä"]
    for tag in (None, "x"):
        found, after = [], ""
        while page := _names(scene, tag=tag, after=after, limit=2):
            assert len(page) <= 2
            found, after = found + page, page[-1]
        assert found == ["Z", "a", "a b", "b", "c", "ä"]
    assert _names(scene, after="a a") == ["a b", "b", "c", "ä"]
    assert _names(scene, pattern="a*", after="a") == ["a b"]


@pytest.mark.parametrize("name", ["a_b", "a%b", "a\\b", "a[1]b", "a.b", "a^b", "a b", "a\nb", "a'b", "ä"])
def test_a_name_without_wildcards_is_itself_alone(scene, name):
    scene.add(name)
    for other in ("axb", "a1b", "ab", "axxb"):
        scene.add(other)
    assert _names(scene, pattern=name) == [name]
    assert name in _names(scene, pattern=name[0] + "*")


@pytest.mark.timeout(60)
def test_every_store_reads_a_pattern_alike_and_none_for_ever(scene):
    names = ["a" * 199, "a" * 199 + "b", "ab" * 99, "a?b", "a*b", "ab", "b", "äb", "a_%\\[b"]
    for name in names:
        scene.add(name)
    patterns = [
        "*?*b",
        "?*b",
        "??",
        "*a*b*a*b",
        "a*",
        "*b*",
        "?",
        "*?" * 12 + "X",
        "*a" * 99 + "*X",
        "?*" * 99 + "b",
        "*[*",
    ]
    for pattern in patterns:
        assert set(_names(scene, pattern=pattern)) == {name for name in names if matches(pattern, name)}, pattern


def test_removed_and_other_applications_jobs_are_not_found(scene):
    scene.add("a", tags=("x",))
    scene.add("b", tags=("x",))
    scene.remove("a")
    assert _names(scene, tag="x") == ["b"]
    assert scene.ledger.find_jobs(JobQuery(scene.application + " too", tag="x")) == []


def test_a_done_job_is_found_as_done(scene):
    scene.add(tags=("x",))
    scene.change(Change.UPDATED, spec=scene.spec(tags=("x",)))
    [row] = scene.ledger.find_jobs(JobQuery(scene.application, tag="x"))
    assert row.state is JobState.DONE
    assert row == scene.job()


def test_many_changes_are_answered_in_their_order(scene, worker):
    for name in "cab":
        scene.add(name, 10)
    scene.remove("a")
    pauses = [
        JobChange(scene.application, name, Change.PAUSED, by="ada", action=Action("pause", "ada")) for name in "bxac"
    ]
    answers = scene.ledger.change_many(pauses)
    assert [None if row is None else (row.spec.name, row.state.value) for row in answers] == [
        ("b", "paused"),
        None,
        None,
        ("c", "paused"),
    ]
    assert answers[0] == scene.job("b")
    assert scene.told("c") == ["skipped(paused)"]
    assert worker.claim().runs == ()
    noted = scene.ledger.actions(ActionQuery(scene.application, by="ada"))
    assert sorted(action.target for action in noted if action.application) == ["b", "c"]
    assert scene.ledger.change_many([]) == []


def test_a_change_of_another_generation_does_not_stop_the_others(scene):
    first = scene.add("a")
    scene.add("b")
    changes = [
        JobChange(scene.application, "a", Change.PAUSED, generation=first.generation - 1),
        JobChange(scene.application, "b", Change.PAUSED),
    ]
    assert [row is not None for row in scene.ledger.change_many(changes)] == [False, True]
    assert scene.job("a").state is JobState.ACTIVE


def test_new_jobs_are_added_together(scene):
    adds = [
        JobChange(scene.application, name, Change.ADDED, spec=scene.spec(name), next_due=scene.start + 60)
        for name in ("z", "y")
    ]
    assert [row.spec.name for row in scene.ledger.change_many(adds)] == ["z", "y"]
    assert scene.ledger.change_many(adds) == [None, None]


def test_two_sessions_that_change_the_same_jobs_in_other_orders_do_not_deadlock(real_scene):
    names = [f"job {number}" for number in range(20)]
    for name in names:
        real_scene.add(name)
    troubles = []

    def change(order):
        session = real_scene.store.session("test", timeout=20.0)
        try:
            for what in (Change.PAUSED, Change.RESUMED) * 3:
                moves = [
                    JobChange(real_scene.application, name, what, next_due=real_scene.start + 60) for name in order
                ]
                session.ledger.change_many(moves)
        except Exception as error:
            troubles.append(error)
        finally:
            session.close()

    threads = [threading.Thread(target=change, args=[order]) for order in (names, names[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert troubles == []
