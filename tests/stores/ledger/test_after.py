"""Jobs that follow other jobs: however a run of the parent ends, its followers get their runs, or rows that say why
not."""

import pytest

from stores.ledger.scene import DAILY
from tenure.core.backfills import BackfillState, NewBackfill, Steer
from tenure.core.keys import generated_key
from tenure.core.messages import FollowedRun, FollowedUp, JobChange
from tenure.core.records import Change, JobState, RunKind, RunState
from tenure.stores.ledger import FIRST

NOTHING = FollowedUp(0)


@pytest.fixture
def pair(scene):
    """`load`, and `report`, which follows it."""
    scene.add("load")
    scene.add("report", trigger=None, function="g", after="load")
    return scene


def follow(scene, limit=100):
    return scene.ledger.follow_up(scene.application, limit)


def owed(scene):
    return [(one.job, one.key) for one in scene.ledger.owed(scene.application, 100)]


def _die(scene, worker):
    """The node that has the run dies."""
    scene.session.declare(worker.id, None, "its host lock is free")


def _end(scene, worker, how, name="load"):
    """A run of this job ends in one of all ways."""
    match how:
        case "missed":
            scene.plan(name, scene.expiring(60))
            scene.wait_for_expiry()
            (missed,) = scene.ledger.missed(scene.application, 10)
            ids = [run.id for run in missed.runs]
            assert scene.ledger.settle(missed.id, missed.generation, make_up=(), skip=ids, reason="missed")
            return
        case "counted":
            skipped = {"state": RunState.SKIPPED, "reason": "missed", "count": 7, "until": scene.at(30)}
            scene.plan(name, scene.new(60, **skipped))
            return
        case "overlap":
            scene.plan(name, 90)
            worker.take()
            scene.plan(name, 60)
            worker.claim()
            return
        case "superseded":
            scene.change(Change.UPDATED, name, spec=scene.spec(name, overlap="wait"), next_due=scene.start + 99)
            scene.plan(name, 90)
            worker.take()
            for ago in (60, 50):
                scene.plan(name, ago)
                worker.claim()
            return
        case "paused":
            scene.plan(name, 60)
            scene.pause(name)
            return
        case "removed":
            scene.plan(name, 60)
            scene.remove(name)
            return
        case "cancelled":
            scene.plan(name, 60)
            (run,) = scene.runs(name)
            scene.ledger.cancel(run.id, "ops", "not today")
            return
        case "lost":
            fails = scene.spec(name, on_lost="fail")
            scene.change(Change.UPDATED, name, spec=fails, next_due=scene.start + 99)
            scene.plan(name, 60)
            dead = scene.worker("a dead node")
            dead.take()
            _die(scene, dead)
            assert [lost.state for lost in worker.reconcile().lost] == [RunState.LOST]
            return
    scene.plan(name, 60)
    run = worker.take()
    match how:
        case "cancelled while it ran":
            scene.ledger.cancel(run.id, "ops", "")
            worker.finish(run.id, RunState.CANCELLED, started_at=scene.at(9))
        case "removed while it ran":
            scene.remove(name)
            worker.finish(run.id, RunState.PENDING, error="boom", again_in=0.0, started_at=scene.at(9))
        case "given up":
            late = {"started_at": scene.at(9000), "finished_at": scene.at(1), "wait_up_to": 5.0}
            worker.finish(run.id, RunState.PENDING, error="no file", again_in=1.0, **late)
        case "stopped after a pause":
            scene.pause(name)
            worker.finish(run.id, RunState.PENDING)
        case _:
            worker.finish(run.id, RunState(how), error="boom", started_at=scene.at(9), finished_at=scene.at(8))


ENDS = {
    # how it ends: what `success`, `failure` and `end` make of it
    "succeeded": ("pending", "skipped(after: load succeeded)", "pending"),
    "failed": ("skipped(after: load failed)", "pending", "pending"),
    "given up": ("skipped(after: load failed)", "pending", "pending"),
    "removed while it ran": ("skipped(after: load failed)", "pending", "pending"),
    "lost": ("skipped(after: load was lost)", "pending", "pending"),
    "cancelled while it ran": ("skipped(after: load was cancelled)", "skipped(after: load was cancelled)", "pending"),
    **{
        how: (f"skipped(after: load was {end})",) * 3
        for how, end in {
            "cancelled": "cancelled",
            "removed": "cancelled",
            "missed": "skipped (missed)",
            "counted": "skipped (missed)",
            "overlap": "skipped (overlap)",
            "superseded": "skipped (superseded)",
            "paused": "skipped (paused)",
            "stopped after a pause": "skipped (paused)",
        }.items()
    },
}


@pytest.mark.parametrize("how", ENDS)
def test_every_way_to_end_is_followed(scene, worker, how, about_now):
    scene.add("load")
    for on in ("success", "failure", "end"):
        scene.add(on, trigger=None, function="g", after="load", on=on)
    _end(scene, worker, how)
    (parent,) = [run for run in scene.runs("load") if run.state.final]
    assert owed(scene) == [("load", parent.key)]
    assert worker.reconcile().owed
    assert follow(scene).paid == 1
    for on, told in zip(("success", "failure", "end"), ENDS[how], strict=True):
        assert scene.told(on) == [told]
        (run,) = scene.runs(on)
        assert (run.key, run.kind, run.scheduled_for) == (parent.key, parent.kind, parent.scheduled_for)
        assert (run.count, run.until) == (parent.count, parent.until)
        assert about_now(run.due_at)
        assert (run.finished_at is None) is (told == "pending")
    assert owed(scene) == []
    assert not worker.reconcile().owed
    assert follow(scene) == NOTHING


def test_nothing_is_owed_while_the_run_of_the_parent_is_open(pair, worker):
    pair.plan("load", 60)
    run = worker.take()
    assert run.owes
    worker.finish(run.id, RunState.PENDING, error="boom", again_in=0.0, started_at=pair.at(9))
    assert (owed(pair), follow(pair)) == ([], NOTHING)
    worker.finish(worker.take().id)
    assert follow(pair) == FollowedUp(1, begins=True)
    assert pair.told("report") == ["pending"]


def test_a_job_without_followers_owes_nothing(scene, worker):
    scene.add("load", 60)
    run = worker.take()
    assert not run.owes
    worker.finish(run.id)
    assert (owed(scene), worker.reconcile().owed, follow(scene)) == ([], False, NOTHING)


def test_the_follower_is_claimed_and_knows_what_it_follows(pair, worker):
    pair.plan("load", 60)
    first = worker.take()
    assert first.parent is None
    worker.finish(first.id, result='{"rows": 7}')
    follow(pair)
    run = worker.take()
    assert (run.name, run.key, run.parent) == (
        "report",
        first.key,
        FollowedRun("load", first.key, RunState.SUCCEEDED, '{"rows": 7}'),
    )


def test_the_grace_of_a_follower_counts_from_its_insertion(scene, worker):
    scene.add("load")
    scene.add("report", trigger=None, after="load", grace=5.0)
    scene.plan("load", scene.new(3600))
    worker.finish(worker.take().id)
    follow(scene)
    assert worker.take().name == "report", "an hour after its due time"


def test_a_follower_that_no_node_begins_is_missed(scene, worker):
    scene.add("load")
    scene.add("report", trigger=None, function="g", after="load", grace=0.2)
    scene.plan("load", 60)
    worker.finish(worker.take().id)
    follow(scene)
    while not scene.ledger.missed(scene.application, 10):
        assert scene.told("report") == ["pending"]
    (missed,) = scene.ledger.missed(scene.application, 10)
    assert missed.name == "report"


def test_a_requested_run_is_followed_under_its_key(pair, worker):
    asked = pair.ask("load", "by hand", by="ops")
    assert asked is not None
    worker.finish(worker.take().id)
    follow(pair)
    (run,) = pair.runs("report")
    assert (run.key, run.kind, run.by, run.scheduled_for) == ("by hand", RunKind.MANUAL, "ops", asked.scheduled_for)


def test_a_chain_is_followed_link_by_link(pair, worker):
    pair.add("mail", trigger=None, after="report")
    pair.plan("load", 60)
    worker.finish(worker.take().id, RunState.FAILED, error="boom")
    assert follow(pair) == FollowedUp(1, more=True), "the skipped run of the report is followed as well"
    assert follow(pair) == FollowedUp(1)
    assert pair.told("mail") == ["skipped(after: load failed)"]


def test_several_jobs_follow_one(pair, worker):
    pair.add("mail", trigger=None, after="load", on="failure")
    pair.plan("load", 60)
    worker.finish(worker.take().id)
    follow(pair)
    assert (pair.told("report"), pair.told("mail")) == (["pending"], ["skipped(after: load succeeded)"])
    assert [row.spec.name for row in pair.ledger.followers(pair.application, "load")] == ["mail", "report"]
    assert [row.spec.name for row in pair.ledger.followers(pair.application)] == ["mail", "report"]
    assert pair.ledger.followers(pair.application, "report") == []


# Definitions


def test_runs_that_had_not_begun_are_followed_and_those_that_ran_are_not(scene, worker):
    scene.add("load", 60, 30)
    running = worker.take()
    assert running.scheduled_for == scene.at(60)
    scene.plan("load", scene.new(-60))
    scene.add("report", trigger=None, after="load")
    worker.finish(running.id)
    assert owed(scene) == []
    scene.pause("load")
    assert [key for _, key in owed(scene)] == [], "the one of 30 s ago was skipped by the claim before"
    scene.resume("load")
    scene.plan("load", 20)
    worker.finish(worker.take().id)
    follow(scene)
    assert scene.told("report") == ["pending"]


@pytest.mark.parametrize("first", ["load", "report"])
def test_the_order_in_which_jobs_are_added_does_not_matter(scene, worker, first):
    for name in sorted(["load", "report"], key=lambda name: name != first):
        scene.add(name, trigger=DAILY if name == "load" else None, after=None if name == "load" else "load")
    scene.plan("load", 60)
    worker.finish(worker.take().id)
    follow(scene)
    assert scene.told("report") == ["pending"]


def test_a_start_brings_both(scene, worker):
    specs = [scene.spec("load"), scene.spec("report", trigger=None, after="load")]
    for _ in range(2):
        changes = [
            JobChange(
                scene.application,
                spec.name,
                Change.ADDED,
                spec=spec,
                next_due=None if spec.rules.after else scene.start + 3600,
            )
            for spec in specs
        ]
        synced = scene.ledger.sync(scene.application, 0, changes)
        assert [one.row.generation for one in synced] == [1, 1], "the second start changes nothing"
    scene.plan("load", 60)
    worker.finish(worker.take().id)
    follow(scene)
    assert scene.told("report") == ["pending"]


def test_the_history_says_whom_a_job_followed(pair):
    pair.change(Change.UPDATED, "report", spec=pair.spec("report", trigger=None, after="other"))
    pair.change(Change.UPDATED, "report", spec=pair.spec("report"), next_due=pair.start + 99)
    pair.pause("report")
    assert [one.after for one in pair.ledger.changes(pair.application, "report")] == ["load", "other", None, None]


def test_a_removed_follower_is_owed_nothing(pair, worker):
    pair.plan("load", 60)
    run = worker.take()
    pair.remove("report")
    worker.finish(run.id)
    assert follow(pair) == FollowedUp(1)
    assert (pair.told("report"), owed(pair)) == ([], [])


def test_a_paused_follower_skips_what_it_would_have_run(pair, worker):
    pair.pause("report")
    pair.plan("load", 60)
    worker.finish(worker.take().id)
    pair.ask("load", "asked for")
    worker.finish(worker.take().id)
    follow(pair)
    assert pair.told("report") == ["skipped(paused)", "pending"], "a request waits for the end of the pause"
    assert worker.claim().runs == ()
    pair.resume("report")
    assert worker.take().key == "asked for"


def test_runs_of_a_follower_are_no_proposals(pair, worker):
    """What follows a run stays, even if the clock went back meanwhile and its due time is to come."""
    pair.plan("load", pair.new(-600, due_ago=60))
    worker.finish(worker.take().id)
    follow(pair)
    pair.change(Change.UPDATED, "report", spec=pair.spec("report", trigger=None, function="h", after="load"))
    assert pair.told("report") == ["pending"]
    pair.plan("load", pair.new(-500, due_ago=60))
    worker.finish(worker.claim(functions=("f",)).runs[0].id, RunState.FAILED, error="boom")
    follow(pair)
    pair.pause("report")
    assert pair.told("report") == ["skipped(after: load failed)", "skipped(paused)"]


def test_what_a_clock_that_was_ahead_has_skipped_is_withdrawn_with_what_followed(pair, worker):
    """These due times are planned anew, and are followed anew."""
    pair.add("mail", trigger=None, function="h", after="report")
    skipped = {"due_ago": 60, "state": RunState.SKIPPED, "reason": "missed"}
    begun, ahead, cancelled = pair.new(50, until=pair.at(-900), count=9, **skipped), pair.new(-600, **skipped), -700
    pair.plan("load", begun, ahead, pair.new(cancelled))
    (to_come,) = pair.runs("load", [RunState.PENDING])
    pair.ledger.cancel(to_come.id, "ops", "not today")
    while follow(pair).paid:
        pass
    for name in ("report", "mail"):
        assert [(run.scheduled_for, run.until) for run in pair.runs(name)] == [
            (pair.at(50), pair.at(-900)),
            (pair.at(-600), None),
            (pair.at(cancelled), None),
        ]
    pair.change(Change.UPDATED, "load", spec=pair.spec("load"), next_due=pair.at(-60))
    for name in ("load", "report", "mail"):
        first, last = pair.runs(name)
        assert (first.scheduled_for, last.scheduled_for) == (pair.at(50), pair.at(cancelled))
        assert first.until is not None
        assert first.until < pair.at(-60)
    pair.plan("load", pair.new(-600, due_ago=10))
    worker.finish(worker.take().id)
    assert follow(pair).begins
    assert worker.take().name == "report"


# Reopened runs


def test_a_retried_run_of_the_parent_reopens_what_was_skipped(pair, worker):
    pair.plan("load", 60)
    run = worker.take()
    worker.finish(run.id, RunState.FAILED, error="boom")
    follow(pair)
    assert pair.told("report") == ["skipped(after: load failed)"]
    (skipped,) = pair.runs("report")
    pair.ledger.retry([run.id], "ops")
    assert follow(pair) == NOTHING
    worker.finish(worker.take().id)
    assert follow(pair).begins
    (again,) = pair.runs("report")
    assert (again.id, again.state, again.kind, again.by, again.finished_at) == (
        skipped.id,
        RunState.PENDING,
        RunKind.BACKFILL,
        "ops",
        None,
    )
    assert worker.take().name == "report"


def test_a_follower_that_has_begun_is_never_reopened(scene, worker):
    scene.add("load")
    scene.add("report", trigger=None, after="load", on="end")
    scene.plan("load", 60)
    run = worker.take()
    worker.finish(run.id, RunState.FAILED, error="boom")
    follow(scene)
    worker.finish(worker.take().id, RunState.FAILED, error="boom too")
    scene.ledger.retry([run.id], "ops")
    worker.finish(worker.take().id)
    assert follow(scene) == FollowedUp(1)
    assert scene.told("report") == ["failed(boom too)"]


def test_what_was_skipped_for_another_reason_is_reopened_once(scene, worker):
    scene.add("load")
    scene.add("report", trigger=None, after="load", on="end")
    scene.pause("report")
    scene.plan("load", 60)
    run = worker.take()
    worker.finish(run.id, RunState.FAILED, error="boom")
    follow(scene)
    assert scene.told("report") == ["skipped(paused)"]
    scene.resume("report")
    scene.ledger.retry([run.id], "ops")
    worker.finish(worker.take().id)
    assert follow(scene).begins
    assert scene.told("report") == ["pending"]


def test_a_cancelled_run_of_a_follower_stays_cancelled(scene, worker):
    scene.add("load")
    scene.add("report", trigger=None, after="load", on="end")
    scene.plan("load", 60)
    run = worker.take()
    worker.finish(run.id, RunState.FAILED, error="boom")
    follow(scene)
    (report,) = scene.runs("report")
    scene.ledger.cancel(report.id, "ops", "no")
    scene.ledger.retry([run.id], "ops")
    worker.finish(worker.take().id)
    follow(scene)
    assert scene.told("report") == ["cancelled(no (by ops))"]


def test_a_backfilled_run_of_the_parent_is_followed(pair, worker):
    asked = pair.ask("load", "2026-01-01T00:00:00Z", backfill=True, scheduled_for=pair.at(7200))
    assert asked is not None
    worker.finish(worker.take().id)
    follow(pair)
    (run,) = pair.runs("report")
    assert (run.key, run.kind, run.state) == (asked.key, RunKind.BACKFILL, RunState.PENDING)


def test_no_run_is_inserted_that_retention_may_have_forgotten(pair, worker):
    pair.plan("load", 600)
    worker.finish(worker.take().id)
    follow(pair)
    worker.finish(worker.take().id)
    pair.ask("load", "a key")
    worker.finish(worker.take().id)
    follow(pair)
    worker.finish(worker.take().id)
    before = pair.ledger.now() + 60
    assert pair.ledger.prune(pair.application, before=before, keep=0, limit=100).removed == 4
    assert pair.ask("load", "a key").digest is not None
    again = pair.ask("load", "2026-01-01T00:00:00Z", backfill=True, even_forgotten=True, scheduled_for=pair.at(600))
    assert again is not None
    worker.finish(worker.take().id)
    assert follow(pair) == FollowedUp(1)
    assert pair.told("report") == []


# Retention


def test_retention_leaves_what_is_owed(pair, worker):
    pair.plan("load", 60)
    worker.finish(worker.take().id)
    before = pair.ledger.now() + 60
    assert pair.ledger.prune(pair.application, before=before, keep=0, limit=100).removed == 0
    follow(pair)
    assert pair.ledger.prune(pair.application, before=before, keep=0, limit=100).removed == 1
    run = worker.take()
    assert run.parent == FollowedRun("load", run.key, None)


@pytest.mark.parametrize("ended", [False, True])
def test_retention_waits_for_older_runs_of_the_parent(scene, worker, ended):
    """Else the follower of a run that takes long would count as forgotten when that ends, and never begin."""
    scene.add("load", overlap="allow", max_running=None)
    scene.add("report", trigger=None, function="g", after="load")
    scene.plan("load", 600)
    long = worker.take()
    scene.plan("load", 60)
    worker.finish(worker.take().id)
    follow(scene)
    worker.finish(worker.take().id)
    if ended:
        worker.finish(long.id)
    before = scene.ledger.now() + 60
    assert scene.ledger.prune(scene.application, before=before, keep=0, limit=100).removed == ended
    if not ended:
        worker.finish(long.id)
    assert follow(scene) == FollowedUp(1, begins=True)
    assert worker.take().key == long.key
    assert scene.told("report") == ["running", "succeeded"]


@pytest.mark.parametrize("ended", [False, True])
def test_retention_waits_for_the_first_of_a_chain(scene, worker, ended):
    """A run of the first takes long, or owes; the last must not have forgotten its due time meanwhile."""
    scene.add("a", overlap="allow", max_running=None)
    scene.add("b", trigger=None, after="a")
    scene.add("c", trigger=None, after="b")
    scene.plan("a", 600)
    long = worker.take()
    scene.plan("a", 60)
    for _ in "abc":
        worker.finish(worker.take().id)
        follow(scene)
    if ended:
        worker.finish(long.id)
    before = scene.ledger.now() + 60
    assert scene.ledger.prune(scene.application, before=before, keep=0, limit=100).removed == ended
    if not ended:
        worker.finish(long.id)
    for name in "bc":
        assert follow(scene).begins
        run = worker.take()
        assert (run.name, run.key) == (name, long.key)
        worker.finish(run.id)
    assert scene.told("c") == ["succeeded"] * 2


@pytest.mark.parametrize("state", [BackfillState.RUNNING, BackfillState.PAUSED])
def test_retention_waits_for_what_a_backfill_of_the_parent_has_left(scene, worker, state):
    scene.add("load", overlap="allow", max_running=None)
    scene.add("report", trigger=None, after="load", overlap="allow", max_running=None)
    scene.add("mail", trigger=None, after="report", overlap="allow", max_running=None)
    ago = (7200, 7100, 7000)
    scene.plan("load", *ago)
    for run in worker.claim().runs:
        worker.finish(run.id, RunState.FAILED, error="boom")
    while follow(scene).paid:
        pass
    due = tuple(scene.at(seconds) for seconds in ago)
    wanted = NewBackfill(scene.application, "load", due[0], due[-1] + 1, due, ("failed",), at_once=1)
    number, _ = scene.ledger.create_backfill(wanted)
    for name in ("load", "report", "mail"):  # of the first due time
        run = worker.take()
        assert run.name == name
        worker.finish(run.id)
        follow(scene)
    if state is BackfillState.PAUSED:
        scene.ledger.steer_backfill(scene.application, number, Steer.PAUSE, by="", why="")
        scene.ledger.advance_backfills(scene.application, 10)
    before = scene.ledger.now() + 60
    scene.ledger.prune(scene.application, before=before, keep=0, limit=100)
    if state is BackfillState.PAUSED:
        scene.ledger.steer_backfill(scene.application, number, Steer.RESUME, by="", why="")
    began = []
    for _ in range(9):
        scene.ledger.advance_backfills(scene.application, 10)
        for run in worker.claim().runs:
            began.append((run.name, run.scheduled_for))
            worker.finish(run.id)
        follow(scene)
    for name in ("load", "report", "mail"):
        assert [at for job, at in began if job == name] == [*due[1:]], name


def test_the_runs_of_a_removed_parent_are_followed_before_they_are_forgotten(pair, worker):
    pair.plan("load", 60)
    pair.remove("load")
    before = pair.ledger.now() + 60
    pair.ledger.prune(pair.application, before=before, keep=0, limit=100)
    assert pair.ledger.forget(pair.application, before=before, defined=(), limit=10).jobs == 0
    follow(pair)
    assert pair.told("report") == ["skipped(after: load was cancelled)"]
    assert pair.job("load").state is JobState.REMOVED


def test_payment_goes_in_slices(pair, worker):
    pair.plan("load", *(pair.new(60 + n, state=RunState.SKIPPED, reason="missed") for n in range(5)))
    assert [follow(pair, limit=2) for _ in range(3)] == [
        FollowedUp(2, more=True),
        FollowedUp(2, more=True),
        FollowedUp(1),
    ]
    assert len(pair.told("report")) == 5


def test_parents_are_paid_page_by_page(scene, worker):
    """So the transaction stays short, however many jobs are followed."""
    for name in "abcde":
        scene.add(name)
        scene.add(f"after {name}", trigger=None, function="g", after=name)
        scene.plan(
            name, *(scene.new(60 + n, state=RunState.SKIPPED, reason="missed") for n in range(1 + (name == "c")))
        )
    ids = {name: scene.job(name).id for name in "abcde"}
    pages, beyond = [], FIRST
    while True:
        done = scene.ledger.follow_up(scene.application, 2, beyond=beyond)
        pages.append(done)
        if done.up_to is None:
            break
        beyond = done.up_to
    assert pages == [FollowedUp(2, up_to=ids["b"]), FollowedUp(2, up_to=ids["c"]), FollowedUp(2)]
    assert owed(scene) == []
    assert [len(scene.runs(f"after {name}")) for name in "abcde"] == [1, 1, 2, 1, 1]


def test_what_is_left_of_a_parent_waits_until_the_others_had_their_turn(scene):
    for name in "ab":
        scene.add(name)
        scene.add(f"after {name}", trigger=None, function="g", after=name)
    scene.plan("a", *(scene.new(60 + n, state=RunState.SKIPPED, reason="missed") for n in range(3)))
    scene.plan("b", scene.new(60, state=RunState.SKIPPED, reason="missed"))
    first = scene.ledger.follow_up(scene.application, 2)
    assert first == FollowedUp(2, more=True, up_to=scene.job("a").id)
    assert scene.ledger.follow_up(scene.application, 2, beyond=first.up_to) == FollowedUp(1)
    assert follow(scene, limit=2) == FollowedUp(1)


# Clocks


@pytest.mark.parametrize("hours", [1, 24 * 365])
def test_a_follower_is_due_by_the_time_of_its_node_while_the_ledgers_clock_is_ahead(pair, worker, hours):
    believed = pair.start - hours * 3600
    pair.plan("load", pair.new(hours * 3600 + 60), pair.new(hours * 3600 + 30))
    worker.finish(worker.take().id)
    pair.ledger.follow_up(pair.application, 100, as_of=believed)
    (run, skipped) = pair.runs("report")
    assert (run.state, run.due_at) == (RunState.PENDING, believed)
    assert (skipped.state, skipped.finished_at) == (RunState.SKIPPED, believed)
    assert [run.name for run in worker.claim(as_of=believed + 1).runs] == ["report"]


def test_a_follower_has_not_expired_when_the_ledgers_clock_is_right_again(pair, worker, about_now):
    """It is behind for a moment. What follows is due at once, and its grace counts from the time of the node."""
    pair.plan("load", 60)
    worker.finish(worker.take().id)
    believed = pair.start + 7200
    pair.ledger.follow_up(pair.application, 100, as_of=believed)
    (run,) = pair.runs("report")
    assert about_now(run.due_at)
    claimed = worker.claim(as_of=believed + 1)
    assert ([run.name for run in claimed.runs], claimed.missed) == (["report"], False)


# Keys


def test_a_generated_key_makes_no_second_run_after_the_first_was_removed(scene, worker):
    scene.add("load")
    scene.add("alarm", trigger=None, function="g", after="load", on="failure")
    asked = scene.ask("load", generated_key("0123456789abcdef"))
    worker.finish(worker.take().id, RunState.FAILED, error="boom")
    follow(scene)
    worker.finish(worker.take().id)
    before = scene.ledger.now() + 60
    only_alarm = scene.job("load").id
    assert scene.ledger.prune(scene.application, before=before, keep=0, limit=9, beyond=only_alarm).removed == 1
    scene.ledger.retry([asked.id], "ops")
    worker.finish(worker.take().id, RunState.FAILED, error="boom")
    assert follow(scene) == FollowedUp(1)
    assert scene.runs("alarm") == []


def test_jobs_that_follow_others_have_arguments_as_others_do(pair):
    pair.add("by hand", trigger=None)
    found = [one.name for one in pair.ledger.stored_arguments(pair.application, "", 10)]
    assert found == ["load", "report"]
