"""What a node may run, and that a claimer which has looked before overlooks nothing that becomes due later."""

import random

import pytest

from tenure.core.records import Change, RunKind, RunState


def test_the_oldest_due_are_claimed_first_across_functions_and_queues(scene, worker):
    chance = random.Random(7)
    agos = chance.sample(range(10, 1000), 60)
    lanes = [(function, queue) for function in "abcdefg" for queue in ("default", "slow")]
    for number, (function, queue) in enumerate(lanes):
        mine = agos[:20] if number == 0 else agos[20 + number :: len(lanes)]  # one lane has more than its share
        scene.add(f"job {number}", *mine, function=function, queue=queue, overlap="allow", max_running=None)
    order: list[float] = []
    while runs := worker.claim(limit=chance.randint(1, 9)).runs:
        order += [scene.start - run.due_at for run in runs]
    assert order == sorted(order, reverse=True)
    assert len(order) == len(scene.runs(None))


def test_next_at_is_of_what_this_node_may_begin(scene, worker):
    scene.add("theirs", -100, function="g")
    scene.add("elsewhere", -200, function="f", queue="slow")
    scene.add("paused", -250, function="f")
    scene.pause("paused")
    scene.add("ours", -300, function="f")
    assert worker.claim(functions=("f",), queues=("default",)).next_at == scene.start + 300
    assert worker.claim(functions=("f",)).next_at == scene.start + 200
    assert worker.claim().next_at == scene.start + 100


def test_what_was_missed_in_another_queue_is_told_to_who_has_the_function(scene, worker):
    scene.add("slow", function="f", queue="slow")
    scene.plan("slow", scene.new(600, expired_ago=540))
    assert worker.claim(functions=("f",), queues=("default",)).missed
    assert not worker.claim(functions=("g",), queues=("default",)).missed
    assert [job.name for job in scene.ledger.missed(scene.application, 10, ("f",))] == ["slow"]


@pytest.mark.parametrize("state", ["due", "asked", "retried", "waiting"])
def test_the_open_runs_of_a_job_follow_it_to_another_function_and_queue(scene, worker, state):
    rules = {"overlap": "wait", "queue": "here"}
    scene.add("job", *([30] if state != "asked" else []), function="before", **rules)
    if state == "asked":
        scene.ask()
    if state == "retried":
        worker.finish(worker.take().id, RunState.PENDING, again_in=0)
    if state == "waiting":
        running = worker.take()
        scene.plan("job", 20)
        assert worker.claim().runs == ()
    after = scene.spec(function="after", **(rules | {"queue": "there"}))
    assert worker.claim(functions=("after",)).runs == ()
    scene.change(Change.UPDATED, spec=after, next_due=scene.start + 3600)
    if state == "waiting":
        worker.finish(running.id)
    assert worker.claim(functions=("before",)).runs == ()
    assert worker.claim(queues=("here",)).runs == ()
    (run,) = worker.claim(functions=("after",), queues=("there",)).runs
    assert run.function == "after"


def test_a_run_that_ends_after_its_job_changed_goes_where_the_job_went(scene, worker):
    scene.add("job", 30, function="before")
    run = worker.take()
    scene.change(Change.UPDATED, spec=scene.spec(function="after"), next_due=scene.start + 3600)
    worker.finish(run.id, RunState.PENDING)
    assert worker.claim(functions=("before",)).runs == ()
    assert [again.id for again in worker.claim(functions=("after",)).runs] == [run.id]


@pytest.mark.parametrize("how", ["given back", "retried", "lost"])
def test_a_run_that_ends_while_its_job_is_paused_waits_for_the_resume(scene, worker, how):
    scene.add("job")
    scene.ask()
    other = scene.worker()
    run = other.take()
    scene.pause()
    match how:
        case "given back":
            other.finish(run.id, RunState.PENDING)
        case "retried":
            other.finish(run.id, RunState.PENDING, again_in=0)
        case "lost":
            scene.session.declare(other.id, None, "its host lock is free")
            worker.reconcile()
    assert worker.claim().runs == ()
    scene.resume()
    assert worker.take().id == run.id


def _look(worker) -> None:
    """Claim when nothing is due, more than once: from here on it is remembered where to look."""
    for _ in range(3):
        assert worker.claim().runs == ()


@pytest.mark.parametrize(
    "how",
    [
        "planned",
        "asked",
        "backfilled",
        "backfilled again",
        "given back",
        "put back",
        "retried",
        "lost",
        "waited",
        "resumed",
        "updated",
        "added again",
        "new lane",
        "settled",
    ],
)
def test_whoever_has_looked_finds_what_becomes_due_before_where_it_looked(scene, worker, how):
    other = scene.worker()
    scene.add("later", -7200, function="f")  # the first that lies ahead
    rules = {"function": "f", "overlap": "allow", "max_running": None}
    match how:
        case "planned":
            scene.add("job", **rules)
            _look(worker)
            scene.plan("job", 600)
        case "asked":
            scene.add("job", **rules)
            _look(worker)
            scene.ask()
        case "backfilled":
            scene.add("job", **rules)
            _look(worker)
            scene.ask(key="once", scheduled_for=scene.at(600), backfill=True, even_forgotten=True)
        case "backfilled again":
            scene.add("job", **rules)
            run = scene.ask(key="once", scheduled_for=scene.at(600), backfill=True, even_forgotten=True)
            scene.ledger.cancel(run.id, "ops", "not yet")
            _look(worker)
            scene.ask(key="once", scheduled_for=scene.at(600), backfill=True, even_forgotten=True)
        case "given back" | "put back" | "retried" | "lost":
            scene.add("job", 600, **rules)
            run = other.take()
            _look(worker)
            if how == "put back":
                other.ledger.put_back([(run.id, other.tokens[run.id])])
            elif how == "lost":
                scene.session.declare(other.id, None, "its host lock is free")
                scene.worker().reconcile()
            else:
                other.finish(run.id, RunState.PENDING, again_in=0 if how == "retried" else None)
        case "waited":
            scene.add("job", 600, 500, **(rules | {"overlap": "wait", "max_running": 1}))
            (run,) = other.claim().runs
            _look(worker)
            other.finish(run.id)
        case "resumed":
            scene.add("job", **rules)
            scene.ask()
            scene.pause()
            _look(worker)
            scene.resume()
        case "updated" | "added again":
            scene.add("job", **rules)
            if how == "added again":
                scene.remove()
            _look(worker)
            what = Change.UPDATED if how == "updated" else Change.ADDED
            runs = (scene.new(600),)
            scene.change(what, spec=scene.spec(**rules), next_due=scene.start + 3600, runs=runs)
        case "new lane":
            _look(worker)
            scene.add("job", 600, function="g", queue="slow", overlap="allow", max_running=None)
        case "settled":
            scene.add("job", **rules)
            scene.plan("job", scene.new(600, expired_ago=540))
            _look(worker)
            (missed,) = scene.ledger.missed(scene.application, 10)
            made_up = [one.id for one in missed.runs]
            assert scene.ledger.settle(missed.id, missed.generation, make_up=made_up, skip=(), reason="")
    (run,) = worker.claim().runs
    assert run.name == "job"
    _look(worker)


def test_whoever_has_looked_is_told_of_what_was_missed_since(scene, worker):
    scene.add("later", -7200, function="f")
    scene.add("job", function="f", queue="slow")
    for _ in range(3):
        assert not worker.claim(queues=("default",)).missed
    scene.plan("job", scene.new(600, expired_ago=540))
    assert worker.claim(queues=("default",)).missed
    assert worker.claim(queues=("default",)).missed, "until it is settled"
    (missed,) = scene.ledger.missed(scene.application, 10)
    assert scene.ledger.settle(missed.id, missed.generation, make_up=(), skip=[missed.runs[0].id], reason="missed")
    assert not worker.claim(queues=("default",)).missed
    assert [run.kind for run in scene.runs()] == [RunKind.DUE]
