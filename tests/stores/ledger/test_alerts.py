"""Alerts in every ledger: one per kind and target, told at least once, and only on what a node has really read."""

import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from stores.ledger.scene import Scene
from tenure.core.alerts import CLOSED, OPENED, AlertKind, AlertLimits, AlertRow, Symptom, steps
from tenure.core.messages import Planned
from tenure.core.records import JobState, NodeFacts, RunState
from tenure.stores.ledger import SUCCESS_WITHIN

LIMITS = AlertLimits()
ALL = tuple(AlertKind)
SINKS = ("log", "webhook")


def found(scene: Scene, target: str = "job", kind: AlertKind = AlertKind.FAILING, text: str = "it fails") -> Symptom:
    return Symptom(kind, target, text, scene.at(60))


def look(
    scene: Scene, *findings: Symptom, rows: Sequence[AlertRow] | None = None, sinks: Sequence[str] = SINKS
) -> list[bool]:
    """One look by one node, which may have read the alerts earlier."""
    now = scene.ledger.now()
    read = scene.ledger.open_alerts(scene.application) if rows is None else rows
    made = steps(scene.application, read, findings, judged=ALL, now=now, limits=LIMITS)
    return scene.ledger.note_alerts(scene.application, now, made, sinks)


def claimed(
    scene: Scene, by: str = "a node", sinks: Sequence[str] = SINKS, lapse: float = 60.0
) -> list[tuple[str, str]]:
    return [(one.event, one.sink) for one in scene.ledger.claim_messages(scene.application, by, sinks, lapse, 100)]


def test_an_alert_is_opened_and_told_to_every_sink(scene, about_now):
    assert look(scene, found(scene)) == [True]
    [row] = scene.ledger.open_alerts(scene.application)
    assert (row.kind, row.target, row.text, row.since, row.version) == ("failing", "job", "it fails", scene.at(60), 1)
    assert about_now(row.opened_at)
    assert row.closed_at is None
    assert scene.ledger.alert_history(scene.application, 10) == [row]
    messages = scene.ledger.claim_messages(scene.application, "a node", SINKS, 60.0, 100)
    assert [(one.event, one.sink, one.alert, one.claimed_by) for one in messages] == [
        (OPENED, "log", row, "a node"),
        (OPENED, "webhook", row, "a node"),
    ]
    assert len({one.key for one in messages}) == 1
    assert scene.ledger.alert_messages(scene.application, [row.id]) == messages
    assert scene.ledger.alert_messages("another application", [row.id]) == []
    assert scene.ledger.open_alerts("another application") == []


def test_an_alert_that_was_closed_by_a_wrong_clock_may_open_again(scene):
    assert look(scene, found(scene)) == [True]
    now = scene.ledger.now()
    made = steps(
        scene.application, scene.ledger.open_alerts(scene.application), [], judged=ALL, now=now + 86400, limits=LIMITS
    )
    assert scene.ledger.note_alerts(scene.application, now, made, SINKS) == [True]
    assert scene.ledger.open_alerts(scene.application) == []
    assert look(scene, found(scene)) == [True]


def test_what_is_seen_again_after_a_gap_begins_anew(scene):
    for ago in (1001.0, 1.0, 0.0):
        rows, limits = scene.ledger.open_alerts(scene.application), AlertLimits(open_after=3)
        made = steps(scene.application, rows, [found(scene)], judged=ALL, now=scene.at(ago), limits=limits, away=999.0)
        assert scene.ledger.note_alerts(scene.application, scene.ledger.now(), made, SINKS) == [True]
    [row] = scene.ledger.open_alerts(scene.application)
    assert (row.seen, row.open, row.first_seen, row.last_seen) == (2, False, scene.at(1), scene.at(0))


def test_what_is_still_wrong_writes_nothing(scene):
    look(scene, found(scene))
    assert look(scene, found(scene)) == []
    [row] = scene.ledger.open_alerts(scene.application)
    assert row.version == 1
    assert look(scene, found(scene, text="it fails differently")) == [True]
    [row] = scene.ledger.open_alerts(scene.application)
    assert (row.version, row.text) == (2, "it fails differently")
    assert len(scene.ledger.alert_messages(scene.application, [row.id])) == len(SINKS)


def test_two_nodes_that_find_the_same_open_one_alert(scene):
    assert look(scene, found(scene), rows=[]) == [True]
    assert look(scene, found(scene), rows=[]) == [False]
    assert len(scene.ledger.open_alerts(scene.application)) == 1
    assert claimed(scene) == [(OPENED, "log"), (OPENED, "webhook")]


def test_an_alert_that_is_over_is_closed_and_told_once(scene, about_now):
    look(scene, found(scene))
    rows = scene.ledger.open_alerts(scene.application)
    assert look(scene) == [True]
    assert look(scene, rows=rows) == [False]
    assert scene.ledger.open_alerts(scene.application) == []
    [row] = scene.ledger.alert_history(scene.application, 10)
    assert about_now(row.closed_at)
    messages = scene.ledger.alert_messages(scene.application, [row.id])
    assert [one.event for one in messages] == [OPENED, OPENED, CLOSED, CLOSED]
    assert len({one.key for one in messages}) == 2


def test_an_alert_can_open_again(scene):
    look(scene, found(scene))
    look(scene)
    assert look(scene, found(scene)) == [True]
    newest, oldest = scene.ledger.alert_history(scene.application, 10)
    assert newest.id != oldest.id
    assert (newest.open, oldest.open) == (True, False)
    assert scene.ledger.alert_history(scene.application, 1) == [newest]


def test_a_look_from_before_an_alert_was_closed_does_not_open_it_again(scene):
    """As of a node that was frozen between reading and writing."""
    seen_at = scene.ledger.now()
    late = steps(scene.application, [], [found(scene)], judged=ALL, now=seen_at, limits=LIMITS)
    look(scene, found(scene))
    look(scene)
    assert scene.ledger.note_alerts(scene.application, seen_at, late, SINKS) == [False]
    assert scene.ledger.open_alerts(scene.application) == []


def test_a_look_that_is_too_old_changes_nothing(scene):
    seen_at = scene.ledger.now() - 31
    made = steps(scene.application, [], [found(scene)], judged=ALL, now=seen_at, limits=LIMITS)
    assert scene.ledger.note_alerts(scene.application, seen_at, made, SINKS) == [False]
    assert scene.ledger.open_alerts(scene.application) == []


def test_what_was_seen_too_briefly_is_forgotten_and_told_to_no_sink(scene):
    orphaned = found(scene, kind=AlertKind.ORPHANED)
    assert look(scene, orphaned) == [True]
    [row] = scene.ledger.open_alerts(scene.application)
    assert (row.opened_at, row.seen) == (None, 1)
    assert scene.ledger.alert_history(scene.application, 10) == []
    assert look(scene, orphaned) == [True]
    [row] = scene.ledger.open_alerts(scene.application)
    assert (row.opened_at, row.seen, row.version) == (None, 2, 2)
    assert look(scene) == [True]
    assert scene.ledger.open_alerts(scene.application) == []
    assert claimed(scene) == []


def test_a_message_is_claimed_by_one_node_at_a_time_until_its_sink_has_it(scene):
    look(scene, found(scene))
    [log, webhook] = scene.ledger.claim_messages(scene.application, "one", SINKS, 60.0, 100)
    assert claimed(scene, "two") == []
    assert scene.ledger.end_message(log.number, "one")
    assert scene.ledger.end_message(webhook.number, "one", error="HTTP 500", again_in=0.0)
    [again] = scene.ledger.claim_messages(scene.application, "two", SINKS, 60.0, 100)
    assert (again.number, again.key, again.tries, again.error) == (webhook.number, webhook.key, 1, "HTTP 500")
    assert not scene.ledger.end_message(webhook.number, "one", error="late", again_in=0.0)
    assert scene.ledger.end_message(webhook.number, "two")
    assert not scene.ledger.end_message(webhook.number, "two")
    told = scene.ledger.alert_messages(scene.application, [log.alert.id])
    assert [(one.sent_at is not None, one.given_up, one.error) for one in told] == [(True, False, "")] * 2
    assert claimed(scene, lapse=0.0) == []


def test_a_claim_lapses_and_another_node_sends_under_the_same_key(scene):
    look(scene, found(scene), sinks=["webhook"])
    [first] = scene.ledger.claim_messages(scene.application, "one", SINKS, 0.0, 100)
    [second] = scene.ledger.claim_messages(scene.application, "two", SINKS, 60.0, 100)
    assert (first.number, first.key) == (second.number, second.key)
    assert scene.ledger.end_message(first.number, "one"), "the sink of the first has it"
    assert claimed(scene, lapse=0.0) == []


def test_a_claim_that_reaches_too_far_does_not_count(scene):
    """It was made while the clock was ahead."""
    look(scene, found(scene), sinks=["webhook"])
    assert claimed(scene, lapse=4000.0) == [(OPENED, "webhook")]
    assert claimed(scene) == [(OPENED, "webhook")]
    assert claimed(scene) == []


def test_a_message_waits_for_earlier_ones_of_its_alert_to_the_same_sink(scene):
    look(scene, found(scene))
    look(scene)
    first = scene.ledger.claim_messages(scene.application, "one", SINKS, 60.0, 100)
    assert [(one.event, one.sink) for one in first] == [(OPENED, "log"), (OPENED, "webhook")]
    assert claimed(scene) == []
    scene.ledger.end_message(first[0].number, "one")
    assert claimed(scene) == [(CLOSED, "log")]
    scene.ledger.end_message(first[1].number, "one", error="it is gone for good")
    assert claimed(scene) == [(CLOSED, "webhook")]
    told = scene.ledger.alert_messages(scene.application, [first[1].alert.id])
    assert [one.given_up for one in told] == [False, True, False, False]


def test_only_messages_for_sinks_that_the_node_has_are_claimed(scene):
    look(scene, found(scene))
    assert claimed(scene, sinks=["webhook", "command"]) == [(OPENED, "webhook")]
    assert scene.ledger.claim_messages(scene.application, "a node", SINKS, 60.0, 0) == []
    assert claimed(scene) == [(OPENED, "log")]


def test_old_alerts_are_forgotten_with_their_messages_a_few_at_a_time(scene):
    for target in ("a", "b", "c", "open"):
        look(scene, *(found(scene, name) for name in ("a", "b", "c", "open") if name <= target or target == "open"))
    look(scene, found(scene, "open"))
    ids = [row.id for row in scene.ledger.alert_history(scene.application, 10)]
    assert scene.ledger.forget_alerts(scene.application, scene.at(3600), 10) == 0
    later = scene.ledger.now() + 1
    assert scene.ledger.forget_alerts(scene.application + " too", later, 10) == 0
    assert [scene.ledger.forget_alerts(scene.application, later, 2) for _ in range(3)] == [2, 1, 0]
    [left] = scene.ledger.alert_history(scene.application, 10)
    assert left.target == "open"
    assert {one.alert.id for one in scene.ledger.alert_messages(scene.application, ids)} == {left.id}


def test_a_message_is_claimed_once_by_nodes_that_ask_at_the_same_time(real_scene):
    for target in map(str, range(12)):
        look(real_scene, *(found(real_scene, str(one)) for one in range(int(target) + 1)), sinks=["webhook"])
    workers = [real_scene.worker(f"w{number}") for number in range(4)]
    got: list[int] = []
    start = threading.Barrier(len(workers))

    def claim(ledger, label):
        start.wait()
        for _ in range(6):
            got.extend(one.number for one in ledger.claim_messages(real_scene.application, label, SINKS, 60.0, 2))

    threads = [threading.Thread(target=claim, args=(one.ledger, one.label)) for one in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == len(set(got)) == 12


def test_text_that_no_table_stores_is_escaped(real_scene):
    assert look(real_scene, found(real_scene, "a\0b", text="\ud800"), sinks=["webhook"]) == [True]
    [row] = real_scene.ledger.open_alerts(real_scene.application)
    assert (row.target, row.text) == ("a\\x00b", "\\ud800")


# What the rules need to know


def _marks(scene, depth=100):
    return {one.row.spec.name: one for one in scene.ledger.job_marks(scene.application, 0, 100, depth)}


def test_marks_are_of_paused_jobs_and_of_active_ones_with_a_trigger(scene):
    for name in ("paused", "job", "removed"):
        scene.add(name)
    scene.pause("paused")
    scene.remove("removed")
    scene.add("on request", trigger=None)
    [paused, marks] = _marks(scene).values()
    assert (paused.row.spec.name, paused.row.state) == ("paused", JobState.PAUSED)
    assert marks.row == scene.job()
    assert (marks.settled, marks.ran, marks.missed, marks.busy) == (None, None, None, False)
    assert scene.ledger.job_marks(scene.application, marks.row.id, 100, 100) == []
    assert scene.ledger.job_marks(scene.application, marks.row.id - 1, 1, 100) == [marks]
    assert scene.ledger.job_marks(scene.application, 0, 0, 100) == []


@pytest.mark.parametrize("end", [RunState.SUCCEEDED, RunState.FAILED])
def test_marks_tell_the_newest_run_that_succeeded_and_that_ended(scene, worker, end):
    scene.add("job", 500, 400, overlap="allow", max_running=None)
    first, second = sorted(worker.claim().runs, key=lambda run: run.scheduled_for)
    assert _marks(scene)["job"].busy
    worker.finish(first.id)
    worker.finish(second.id, end)
    marks = _marks(scene)["job"]
    assert marks.ran == scene.at(400)
    assert marks.settled == scene.at(400 if end is RunState.SUCCEEDED else 500)
    assert not marks.busy
    newest = _marks(scene, depth=1)["job"]
    assert newest.settled == scene.at(400), "what is further back was then or earlier"
    assert (newest.settled_at is None) is (end is RunState.FAILED)


def test_due_times_that_overlap_held_back_hide_no_success(scene, worker):
    scene.add("job", 500)
    run = worker.take()
    worker.finish(run.id)
    ended_at = scene.run(run.id).finished_at
    scene.plan("job", *(scene.new(450 - number, state=RunState.SKIPPED, reason="overlap") for number in range(400)))
    marks = _marks(scene, SUCCESS_WITHIN)["job"]
    assert (marks.settled, marks.settled_at, marks.ran) == (scene.at(500), ended_at, scene.at(500))
    marks = _marks(scene, 400)["job"]
    assert (marks.settled, marks.settled_at, marks.ran) == (scene.at(450), None, scene.at(450)), "then or earlier"
    marks = _marks(scene, 100)["job"]
    assert (marks.settled, marks.ran, marks.missed) == (scene.at(150), scene.at(150), None)


def test_marks_may_be_asked_of_some_jobs(scene):
    [first, _, third] = (scene.add(name).id for name in "abc")
    scene.add("d", trigger=None)

    def asked(*jobs, beyond=0, limit=10):
        found = scene.ledger.job_marks(scene.application, beyond, limit, 10, jobs)
        return [one.row.spec.name for one in found]

    assert asked(third, first, scene.job("d").id) == ["a", "c"]
    assert asked(third, first, beyond=first) == ["c"]
    assert asked(third, first, limit=1) == ["a"]
    assert asked() == []
    assert scene.ledger.job_marks("another application", 0, 10, 10, [first]) == []


def test_a_due_time_that_a_user_cancelled_is_settled(scene, worker):
    scene.add("job", 500, 400, overlap="allow", max_running=None)
    first, second = sorted(worker.claim().runs, key=lambda run: run.scheduled_for)
    worker.finish(first.id)
    worker.finish(second.id, RunState.FAILED)
    assert _marks(scene)["job"].settled == scene.at(500)
    scene.ledger.cancel(scene.ask().id, "ada", "")
    assert _marks(scene)["job"].settled == scene.at(500), "a request is no due time"
    scene.plan("job", 300, 200)
    replaced, cancelled = scene.runs(states=[RunState.PENDING])
    run = worker.claim(1).runs[0]
    assert run.id == replaced.id
    worker.finish(replaced.id, RunState.CANCELLED, error="replaced")
    assert _marks(scene)["job"].settled == scene.at(500), "a job of which each run replaces the one before never ends"
    ended_at = scene.ledger.cancel(cancelled.id, "ada", "").finished_at
    marks = _marks(scene)["job"]
    assert (marks.settled, marks.settled_at, marks.ran) == (scene.at(200), ended_at, scene.at(400))


def test_marks_tell_that_nothing_is_left_to_do(scene, worker):
    scene.add("job", 20)
    row = scene.job()
    assert scene.ledger.plan([Planned(row.id, row.generation, row.next_due, None, ())]) == 0
    assert _marks(scene)["job"].row.state is JobState.ACTIVE
    scene.ledger.cancel(worker.take().id, "ada", "")
    assert _marks(scene)["job"].row.state is JobState.ACTIVE
    worker.finish(scene.runs()[0].id)
    assert _marks(scene)["job"].row == scene.job()
    assert _marks(scene)["job"].row.state is JobState.DONE


def test_marks_tell_that_a_run_may_wait_for_any_time(scene, worker):
    scene.add("looks", 20)
    run = worker.take()
    assert not _marks(scene)["looks"].held
    worker.finish(run.id, RunState.PENDING, again_in=60.0, wait_up_to=3600.0, started_at=scene.at(5))
    assert _marks(scene)["looks"].held
    for name in ("has a place", "waits"):
        scene.add(name, 10, pool="pool", overlap="wait")
        worker.claim()
    held = {name: marks.held for name, marks in _marks(scene).items()}
    assert held == {"looks": True, "has a place": True, "waits": True}
    [run] = scene.runs("has a place")
    worker.finish(run.id)
    assert not _marks(scene)["has a place"].held


def test_marks_tell_the_newest_due_time_that_was_missed(scene, worker):
    scene.add("job")
    scene.plan("job", 600)
    worker.finish(worker.take().id)
    scene.plan("job", scene.new(500, expired_ago=400), scene.new(300, expired_ago=200))
    [missed] = scene.ledger.missed(scene.application, 10)
    scene.ledger.settle(missed.id, missed.generation, make_up=(), skip=[one.id for one in missed.runs], reason="missed")
    assert _marks(scene)["job"].missed == scene.at(300)
    job = scene.job()
    counted = replace(scene.new(200), state=RunState.SKIPPED, reason="missed", count=3, until=scene.at(100))
    assert scene.ledger.plan([Planned(job.id, job.generation, job.next_due, job.next_due + 1, (counted,))]) == 1
    assert _marks(scene)["job"].missed == scene.at(100)


def test_marks_tell_that_a_run_waits(scene, worker):
    scene.add("job", 20, overlap="wait")
    worker.take()
    scene.plan("job", 10)
    worker.claim()
    [run, _] = scene.runs()
    worker.finish(run.id, RunState.FAILED)
    assert scene.told()[0] == "failed"
    assert _marks(scene)["job"].busy


def test_dead_nodes_are_those_of_the_application_that_were_declared_dead(scene, about_now):

    died, left, lives = (scene.worker(label) for label in ("died", "left", "lives"))
    for one in (died, left, lives):
        scene.ledger.write_facts(NodeFacts(one.id, scene.application, frozenset("f"), None, 1, 0, "0", "2026a"))
    left.session.leave(left.id, "stopped")
    assert scene.ledger.dead_nodes(scene.application, scene.at(60)) == []
    lives.session.declare(died.id, None, "its process ended")
    [dead] = scene.ledger.dead_nodes(scene.application, scene.at(60))
    assert (dead.label, dead.why) == ("died", "its process ended")
    assert about_now(dead.at)
    assert scene.ledger.dead_nodes(scene.application, scene.ledger.now() + 1) == []
    assert scene.ledger.dead_nodes("another application", scene.at(60)) == []
