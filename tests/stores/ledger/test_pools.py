"""Pools: a limit shared by several jobs. A run needs the place of its job first, and then one of its pool."""

import threading

import pytest

from tenure.core.records import Change, PoolRow, RunState

DAY = 86400.0


@pytest.fixture
def pool(scene):
    """A pool of two, and jobs in it."""
    scene.ledger.set_pool(scene.application, "w", 2)
    return "w"


def of(scene, name="w"):
    (found,) = [one for one in scene.ledger.pools(scene.application) if one.name == name]
    return found


def names(claimed):
    return [run.name for run in claimed.runs]


def test_the_oldest_runs_of_all_jobs_get_the_places(scene, worker, pool):
    for name, ago in (("a", 10), ("b", 40), ("c", 30), ("d", 20)):
        scene.add(name, ago, pool=pool)
    assert names(worker.claim()) == ["b", "c"]
    assert [scene.told(name) for name in "abcd"] == [["waiting"], ["running"], ["running"], ["waiting"]]
    assert of(scene) == PoolRow("w", 2, 2, 2)
    assert {scene.runs(name)[0].pool for name in "abcd"} == {"w"}
    assert names(worker.claim()) == []


def test_a_place_that_is_left_goes_to_the_oldest(scene, worker, pool):
    for name, ago in (("a", 50), ("b", 40), ("c", 20), ("d", 30)):
        scene.add(name, ago, pool=pool)
    first, second = worker.claim().runs
    assert worker.finish(first.id).wakes, "another run waits, of another job"
    assert names(worker.claim()) == ["d"]
    assert worker.finish(second.id).wakes
    assert names(worker.claim()) == ["c"]
    assert of(scene) == PoolRow("w", 2, 2, 0)


@pytest.mark.parametrize("overlap", ["skip", "wait", "replace", "allow"])
def test_a_run_without_a_place_waits_whatever_overlap_says(scene, worker, overlap):
    scene.add("other", 60, pool="w")
    scene.add("job", 50, pool="w", overlap=overlap, max_running=None if overlap == "allow" else 1)
    assert names(worker.claim()) == ["other"]
    assert scene.told() == ["waiting"]
    assert scene.told("other") == ["running"]


def test_a_pool_whose_size_was_never_set_has_one_place(scene, worker):
    scene.add("a", 20, pool="w")
    scene.add("b", 10, pool="w")
    assert scene.ledger.pools(scene.application) == [PoolRow("w", None, 0, 0)]
    assert names(worker.claim()) == ["a"]
    assert of(scene) == PoolRow("w", None, 1, 1)


def test_jobs_without_the_pool_are_not_held_back(scene, worker):
    scene.ledger.set_pool(scene.application, "w", 0)
    scene.add("a", 30, pool="w")
    scene.add("b", 20)
    scene.add("c", 10, pool="v")
    assert names(worker.claim()) == ["b", "c"]
    assert [one.name for one in scene.ledger.pools(scene.application)] == ["v", "w"]


def test_pools_of_applications_are_their_own(scene, worker, pool):
    scene.add("a", 30, pool=pool)
    assert scene.ledger.pools("another") == []


def test_a_smaller_size_ends_nothing_and_a_larger_one_holds_from_the_next_claim(scene, worker, pool):
    for name in "abcd":
        scene.add(name, 30, pool=pool)
    first, second = worker.claim().runs
    scene.ledger.set_pool(scene.application, pool, 1)
    assert of(scene) == PoolRow("w", 1, 2, 2)
    worker.finish(first.id)
    assert names(worker.claim()) == []
    worker.finish(second.id)
    assert len(worker.claim().runs) == 1
    scene.ledger.set_pool(scene.application, pool, 9)
    assert len(worker.claim().runs) == 1


def test_what_waits_for_its_pool_keeps_the_place_of_its_job_and_never_expires(scene, worker):
    scene.ledger.set_pool(scene.application, "w", 0)
    scene.add("job", pool="w")
    scene.plan("job", scene.expiring(60))
    assert worker.claim().runs == ()
    scene.plan("job", 30)
    scene.wait_for_expiry()
    worker.claim()
    assert scene.told() == ["waiting", "skipped(overlap)"]
    assert scene.ledger.missed(scene.application, 10) == []
    scene.ledger.set_pool(scene.application, "w", 1)
    assert worker.take().scheduled_for == scene.at(60)


def test_under_wait_one_run_waits_for_the_pool_and_the_newest_behind_it(scene, worker):
    scene.ledger.set_pool(scene.application, "w", 0)
    scene.add("job", 60, pool="w", overlap="wait")
    worker.claim()
    scene.plan("job", 50)
    worker.claim()
    scene.plan("job", 40)
    worker.claim()
    assert scene.told() == ["waiting", "skipped(superseded)", "waiting"]
    assert [run.pool for run in scene.runs()] == ["w", "", ""]
    scene.ledger.set_pool(scene.application, "w", 5)
    assert worker.take().scheduled_for == scene.at(60)
    assert names(worker.claim()) == [], "the job has one place"


def test_under_replace_a_newer_due_time_takes_the_turn_of_one_that_never_began(scene, worker):
    scene.ledger.set_pool(scene.application, "w", 0)
    scene.add("job", 60, pool="w", overlap="replace")
    worker.claim()
    scene.plan("job", 50)
    worker.claim()
    worker.claim()
    assert scene.told() == ["skipped(superseded)", "waiting"]
    scene.ledger.set_pool(scene.application, "w", 1)
    assert worker.take().scheduled_for == scene.at(50)


@pytest.mark.parametrize("look", [False, True])
def test_between_attempts_a_run_gives_its_pool_place_back_and_keeps_that_of_its_job(scene, worker, look):
    scene.add("a", 60, pool="w", retries=3)
    scene.add("b", 10, pool="w")
    run = worker.take()
    more = {"wait_up_to": DAY} if look else {}
    worker.finish(
        run.id,
        RunState.PENDING,
        error="not there",
        again_in=5.0,
        started_at=scene.at(40),
        finished_at=scene.at(40),
        **more,
    )
    assert names(worker.claim()) == ["a"], "its second attempt is due, and it is the older one"
    worker.finish(
        run.id,
        RunState.PENDING,
        error="not there",
        again_in=900.0,
        started_at=scene.at(30),
        finished_at=scene.at(30),
        **more,
    )
    scene.plan("a", 20)
    assert names(worker.claim()) == ["b"]
    assert scene.told("a") == ["pending(not there)", "skipped(overlap)"]
    assert of(scene) == PoolRow("w", None, 1, 0)


def test_an_attempt_that_waits_for_the_pool_keeps_its_number_and_its_counts(scene, worker):
    scene.add("a", 60, pool="w", retries=3, max_running=1)
    scene.add("b", 59, pool="w")
    run = worker.take()
    at = {"started_at": scene.at(40), "finished_at": scene.at(40)}
    worker.finish(run.id, RunState.PENDING, error="boom", again_in=38.0, **at)
    other = worker.take()
    assert other.name == "b"
    scene.plan("a", 1)
    worker.claim()
    assert scene.told("a") == ["waiting(boom)", "skipped(overlap)"], "it still has the place of its job"
    worker.finish(other.id)
    again = worker.take()
    assert (again.id, again.attempt, again.failures) == (run.id, 2, 1)


def test_a_node_takes_the_oldest_of_those_that_it_may_run(scene, worker):
    scene.add("x", 90, pool="w", function="x")
    scene.add("b", 60, pool="w", function="b")
    scene.add("a", 30, pool="w", function="a")
    (run,) = worker.claim().runs
    assert run.name == "x"
    other = scene.worker("other")
    assert names(other.claim(functions=("a",))) == []
    worker.finish(run.id)
    assert names(other.claim(functions=("a",))) == ["a"], "no node with b may be alive"
    assert names(worker.claim()) == []


@pytest.mark.parametrize("ends", ["cancel", "loss", "remove", "put_back"])
def test_every_way_out_of_the_pool_leaves_a_place(scene, worker, ends):
    scene.add("a", 60, pool="w", on_lost="fail")
    scene.add("b", 50, pool="w")
    gone = scene.worker("gone")
    run = gone.take()
    assert names(worker.claim()) == []
    match ends:
        case "cancel":
            scene.ledger.cancel(run.id, "ops", "")
            gone.finish(run.id, RunState.CANCELLED)
        case "loss":
            gone.session.declare(gone.id, None, "it died")
            worker.reconcile()
        case "remove":
            scene.remove("a")
            gone.finish(run.id)
        case _:
            scene.pause("a")
            gone.finish(run.id, RunState.PENDING)
    assert names(worker.claim()) == ["b"]


def test_what_waits_can_be_cancelled_paused_and_removed(scene, worker):
    scene.ledger.set_pool(scene.application, "w", 0)
    for name in "abc":
        scene.add(name, 60, pool="w")
    asked = scene.ask("b")
    worker.claim()
    scene.ledger.cancel(scene.runs("a")[0].id, "ops", "")
    scene.pause("b")
    scene.remove("c")
    told = [["cancelled(cancelled by ops)"], ["skipped(paused)", "waiting"], ["cancelled(removed)"]]
    assert [scene.told(name) for name in "abc"] == told
    scene.ledger.set_pool(scene.application, "w", 3)
    assert names(worker.claim()) == []
    scene.resume("b")
    assert worker.take().id == asked.id


def test_a_job_that_leaves_its_pool_waits_no_longer(scene, worker):
    scene.ledger.set_pool(scene.application, "w", 0)
    scene.add("job", 60, pool="w")
    worker.claim()
    scene.change(Change.UPDATED, spec=scene.spec(), next_due=scene.start + 3600)
    assert worker.take().name == "job"
    assert scene.runs()[0].pool == ""


def test_a_run_keeps_the_place_that_it_has_when_its_job_gets_another_pool(scene, worker):
    scene.add("a", 60, pool="w")
    scene.add("b", 50, pool="w")
    run = worker.take()
    scene.change(Change.UPDATED, "a", spec=scene.spec("a", pool="v"), next_due=scene.start + 3600)
    assert names(worker.claim()) == []
    assert (of(scene).running, of(scene, "v").running) == (1, 0)
    worker.finish(run.id)
    assert names(worker.claim()) == ["b"]


def test_one_claim_of_several_jobs_and_pools(scene, worker):
    scene.ledger.set_pool(scene.application, "w", 1)
    scene.ledger.set_pool(scene.application, "v", 2)
    for ago, (name, where) in enumerate([("a", "w"), ("b", "v"), ("c", None), ("d", "v"), ("e", "w"), ("f", "v")]):
        scene.add(name, 100 - ago, pool=where)
    assert sorted(names(worker.claim())) == ["a", "b", "c", "d"]
    assert (of(scene).waiting, of(scene, "v").waiting) == (1, 1)


def test_a_job_with_several_places_shares_the_pool(scene, worker, pool):
    scene.add("a", 60, 50, 40, 30, pool=pool, overlap="allow", max_running=3)
    assert [run.scheduled_for for run in worker.claim().runs] == [scene.at(60), scene.at(50)]
    worker.claim()
    told = [(run.state, run.pool) for run in scene.runs("a")]
    assert told == [("running", "w"), ("running", "w"), ("waiting", "w"), ("waiting", "")]


def test_nodes_that_claim_at_once_never_take_more_than_there_are(real_scene):
    """Each job is claimed under its own lock: only the lock of the pool keeps two claims apart."""
    scene = real_scene
    scene.ledger.set_pool(scene.application, "w", 2)
    jobs = [f"job {number}" for number in range(8)]
    for name in jobs:
        scene.add(name, pool="w", overlap="allow", max_running=None, function=name)
    workers = [scene.worker(f"node {number}") for number in range(4)]
    most, ran, failed, ready = [], [], [], threading.Barrier(len(workers), timeout=30)

    def work(worker, mine):
        try:
            while len(ran) < 160:
                ready.wait()
                for run in worker.claim(limit=3, functions=tuple(mine)).runs:
                    most.append(of_pool(worker))
                    worker.finish(run.id)
                    ran.append(run.id)
                ready.wait()
        except threading.BrokenBarrierError:
            pass
        except BaseException as error:
            failed.append(error)
        finally:
            ready.abort()

    def of_pool(worker):
        return worker.ledger.pools(scene.application)[0].running

    for name in jobs:
        scene.plan(name, *[60.0 + number for number in range(20)])
    threads = [
        threading.Thread(target=work, args=(worker, jobs[2 * number : 2 * number + 2]))
        for number, worker in enumerate(workers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    assert len(ran) == len(set(ran)) >= 160
    assert max(most) <= 2, "more than two had a place"
    assert 2 in most
