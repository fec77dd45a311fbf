"""Runs requested for a time to come, and slots: of each slot at most one run of a job waits to begin."""

from uuid import uuid4

import pytest

from tenure.core.messages import RunQuery, RunRequest
from tenure.core.records import Change, RunKind, RunState


def _later(scene, seconds, name="job", **more):
    return scene.ask(name, scheduled_for=scene.at(-seconds), **more)


def test_a_run_for_later_is_due_then(scene, worker):
    scene.add()
    asked = _later(scene, 600, key="mine", by="ops")
    assert (asked.kind, asked.state, asked.key, asked.by) == (RunKind.MANUAL, RunState.PENDING, "mine", "ops")
    assert asked.scheduled_for == asked.due_at == scene.at(-600)
    claimed = worker.claim()
    assert (claimed.runs, claimed.next_at) == ((), scene.at(-600))
    assert worker.claim(as_of=scene.at(-601)).runs[0].id == asked.id


def test_a_time_that_has_passed_is_due_at_once(scene, worker, about_now):
    scene.add()
    asked = _later(scene, -600)
    assert asked.scheduled_for == scene.at(600)
    assert about_now(asked.due_at)
    assert worker.take().id == asked.id


def test_it_is_never_missed(scene, worker):
    scene.add(grace=0.0)
    asked = _later(scene, -600)
    claimed = worker.claim()
    assert ([run.id for run in claimed.runs], claimed.missed) == ([asked.id], False)


def test_a_key_for_later_is_one_run_whatever_its_time(scene):
    scene.add()
    first = _later(scene, 600, key="mine")
    assert _later(scene, 900, key="mine") == first
    assert scene.ask(key="mine") == first


def test_changes_pauses_and_updates_leave_a_run_for_later(scene):
    scene.add()
    asked = _later(scene, 600)
    scene.change(Change.UPDATED, spec=scene.spec(retries=3), next_due=scene.start + 3600)
    scene.pause()
    assert scene.run(asked.id).state is RunState.PENDING
    scene.resume()
    assert scene.run(asked.id).due_at == asked.due_at
    scene.remove()
    assert scene.run(asked.id).state is RunState.CANCELLED


def test_what_comes_is_listed_the_nearest_first(scene, worker):
    scene.add()
    scene.plan("job", -500)
    scene.add("other")
    far, near = _later(scene, 900), _later(scene, 600, "other")
    now = scene.ask()
    assert scene.ledger.coming(scene.application, 10) == [near, far]
    assert scene.ledger.coming(scene.application, 1) == [near]
    worker.claim(limit=1)
    assert scene.run(now.id).state is RunState.RUNNING
    scene.ledger.cancel(far.id, "ops", "")
    assert scene.ledger.coming(scene.application, 10) == [near]


def test_of_a_slot_one_run_waits(scene):
    scene.add()
    first = _later(scene, 600, slot="a", kwargs='{"n": 1}')
    assert first.slot == "a"
    assert _later(scene, 900, slot="a", kwargs='{"n": 2}', by="another") == first
    assert scene.runs() == [first]


def test_another_takes_its_place(scene):
    scene.add()
    first = _later(scene, 600, slot="a", kwargs='{"n": 1}', by="one")
    again = _later(scene, 300, slot="a", kwargs='{"n": 2}', by="another", if_waiting="replace")
    assert (again.id, again.key, again.slot) == (first.id, first.key, "a")
    assert (again.scheduled_for, again.due_at) == (scene.at(-300), scene.at(-300))
    assert (again.kwargs, again.by) == ('{"n": 2}', "another")
    assert scene.runs() == [again]


@pytest.mark.parametrize(("then", "at"), [(300, 600), (900, 900)])
def test_the_later_time_counts(scene, then, at):
    scene.add()
    _later(scene, 600, slot="a", kwargs='{"n": 1}')
    again = _later(scene, then, slot="a", kwargs='{"n": 2}', if_waiting="later")
    assert (again.scheduled_for, again.due_at, again.kwargs) == (scene.at(-at), scene.at(-at), '{"n": 2}')


def test_slots_and_jobs_are_apart(scene):
    scene.add()
    scene.add("other")
    runs = [
        _later(scene, 600, slot="a"),
        _later(scene, 600, slot="b"),
        _later(scene, 600, "other", slot="a"),
        _later(scene, 600),
    ]
    assert len({run.id for run in runs}) == 4
    assert [run.slot for run in runs] == ["a", "b", "a", ""]


def test_a_run_that_has_begun_has_left_its_slot(scene, worker):
    scene.add()
    first = scene.ask(slot="a")
    worker.take()
    second = scene.ask(slot="a")
    assert second.id != first.id
    assert scene.ask(slot="a") == second
    worker.finish(first.id, RunState.PENDING, again_in=0.0)
    assert scene.ask(slot="a") == second, "the first is between two attempts"


def test_a_run_that_waits_for_a_place_has_its_slot(scene, worker):
    scene.add()
    scene.ask()
    worker.take()
    waits = scene.ask(slot="a")
    assert worker.claim().runs == ()
    assert scene.run(waits.id).state is RunState.WAITING
    assert scene.ask(slot="a").id == waits.id
    replaced = _later(scene, 600, slot="a", if_waiting="replace")
    assert (replaced.id, replaced.state, replaced.due_at) == (waits.id, RunState.PENDING, scene.at(-600))
    worker.finish(scene.runs(states=[RunState.RUNNING])[0].id)
    assert worker.claim().runs == (), "it is due later now"


def test_what_was_cancelled_has_left_its_slot_and_a_retry_does_not_take_it_back(scene, worker):
    scene.add()
    first = _later(scene, 600, slot="a")
    scene.ledger.cancel(first.id, "ops", "")
    second = _later(scene, 600, slot="a")
    assert second.id != first.id
    (again,) = scene.ledger.retry([first.id], "ops")
    assert (again.state, again.slot) == (RunState.PENDING, "")
    assert _later(scene, 600, slot="a") == second


def test_what_its_node_gives_back_has_left_its_slot(scene, worker):
    scene.add()
    first = scene.ask(slot="a")
    worker.take()
    second = scene.ask(slot="a")
    worker.finish(first.id, RunState.PENDING)
    assert (scene.run(first.id).state, scene.run(first.id).slot) == (RunState.PENDING, "")
    assert scene.ask(slot="a") == second
    third = worker.claim().runs[0]
    assert third.id == first.id
    assert worker.ledger.put_back([(third.id, worker.tokens[third.id])]) == 1
    assert scene.run(first.id).state is RunState.PENDING


def test_a_lost_run_does_not_come_back_into_its_slot(scene, worker):
    scene.add()
    dead = scene.worker("a dead node")
    first = scene.ask(slot="a")
    dead.take()
    second = scene.ask(slot="a")
    scene.session.declare(dead.id, None, "its host lock is free")
    worker.reconcile()
    assert scene.run(first.id).state is RunState.PENDING
    assert scene.ask(slot="a") == second


def test_a_paused_job_keeps_its_slots(scene):
    scene.add()
    first = scene.ask(slot="a")
    scene.pause()
    assert scene.ask(slot="a").id == first.id
    assert scene.ask(slot="a", if_waiting="replace").id == first.id


def test_runs_are_found_by_key_and_by_slot(scene, worker):
    scene.add()
    scene.add("other")
    one = _later(scene, 600, slot="a")
    other = _later(scene, 600, "other", slot="a")
    mine = _later(scene, 600, key="mine")

    def found(**query):
        return sorted(run.id for run in scene.ledger.runs(RunQuery(scene.application, **query)))

    assert found(slot="a") == [one.id, other.id]
    assert found(slot="a", job="other") == [other.id]
    assert found(slot="b") == []
    assert found(job="job", key="mine") == [mine.id]
    assert found(job="other", key="mine") == []
    begun = scene.ask(slot="c")
    worker.take()
    assert found(slot="c") == []
    assert scene.run(begun.id).slot == "c"


@pytest.mark.parametrize("if_waiting", ["keep", "replace", "later"])
def test_however_many_ask_one_waits(real_scene, run_together, if_waiting):
    scene = real_scene
    scene.add()
    sessions = [scene.worker(f"asks {number}") for number in range(4)]
    for number in range(20):
        asked = [None] * len(sessions)

        def ask(one, asked=asked, number=number):
            request = {"scheduled_for": scene.at(-600 - one), "slot": f"round {number}", "if_waiting": if_waiting}
            asked[one] = _ask(scene, sessions[one], **request)

        run_together(len(sessions), ask)
        (waits,) = scene.ledger.runs(RunQuery(scene.application, slot=f"round {number}"))
        assert {row.id for row in asked} == {waits.id}
        if if_waiting == "later":
            assert waits.due_at == scene.at(-603)


def test_claims_and_requests_at_the_same_time_lose_nothing(real_scene, run_together):
    """Whoever asks is answered with a run that begins after the request: none is answered with one that had begun."""
    scene = real_scene
    scene.add("job", overlap="allow", max_running=None)
    askers = [scene.worker(f"asks {number}") for number in range(3)]
    claimers = [scene.worker(f"claims {number}") for number in range(2)]
    asked, begun = [0] * len(askers), [0] * len(claimers)
    broken = []

    def work(one):
        if one < len(askers):
            for number in range(60):
                before = askers[one].ledger.now()
                row = _ask(scene, askers[one], slot="a", if_waiting="replace", kwargs=f'{{"n": "{one}.{number}"}}')
                asked[one] += 1
                if row.state is not RunState.PENDING or (row.claimed_at is not None and row.claimed_at < before):
                    broken.append(row)
            return
        worker = claimers[one - len(askers)]
        while min(asked) < 60 or _waits(scene, worker):
            for run in worker.claim().runs:
                begun[one - len(askers)] += 1
                worker.finish(run.id)

    run_together(len(askers) + len(claimers), work)
    assert broken == []
    assert 1 <= sum(begun) <= 180
    newest = max(scene.runs(), key=lambda run: run.id)
    assert newest.state is RunState.SUCCEEDED


def _waits(scene, worker):
    return bool(worker.ledger.runs(RunQuery(scene.application, slot="a")))


def _ask(scene, worker, *, scheduled_for=None, **more):
    """A request over a session of its own."""
    (row,) = worker.ledger.request_runs([RunRequest(scene.application, "job", str(uuid4()), scheduled_for, **more)])
    return row
