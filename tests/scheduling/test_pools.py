"""Pools, as a user has them: sizes set from any process, bodies that never run beside too many others, and what is said of those that wait."""

import asyncio
import json
import logging
import threading

import pytest

from scheduling.test_engine import ended, eventually, scheduler
from tenure import AsyncScheduler, Run, Scheduler
from tenure.cli import main
from tenure.errors import ConfigurationError, NotYet
from tenure.testing import virtual


class Gauge:
    """How many bodies are inside at once."""

    def __init__(self):
        self.inside = self.most = 0
        self.mutex = threading.Lock()

    def __enter__(self):
        with self.mutex:
            self.inside += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *_):
        with self.mutex:
            self.inside -= 1


def test_jobs_of_several_nodes_share_the_pool(any_url):
    gauge = Gauge()

    def made(label):
        one = Scheduler(any_url, label=label, ttl=6, heartbeat_every=0.5, attempt_timeout=1)
        for name in "abc":

            @one.job(name=name, pool="warehouse", overlap="allow")
            def body(run: Run) -> None:
                with gauge:
                    run.wait(0.02)

        return one

    one, other = made("one"), made("other")
    with one, other:
        one.pool("warehouse", 2)
        asked = [one.run_now(name) for _ in range(8) for name in "abc"]
        for run in asked:
            ended(one, run)
        assert (one.pools()[0].running, one.pools()[0].waiting) == (0, 0)
    assert gauge.most == 2


def test_a_place_that_is_left_is_taken_at_once():
    one, order = scheduler(), []
    held = threading.Event()

    @one.job(pool="warehouse")
    def first() -> None:
        order.append("first")
        held.wait(10)

    @one.job(pool="warehouse")
    def second() -> None:
        order.append("second")

    with one:
        a = one.run_now("first")
        eventually(lambda: order == ["first"])
        b = one.run_now("second")
        waiting = eventually(lambda: (found := one.find_run(b.id)).waiting and found)
        assert (waiting.state, waiting.waiting) == ("waiting", "a place in the pool 'warehouse'")
        assert "is waiting for a place in the pool 'warehouse'" in one.why("second")
        held.set()
        done = ended(one, b)
        first_done = ended(one, a)
    assert (done.started_at - first_done.finished_at).total_seconds() < 1.0


def test_a_larger_size_wakes_those_that_wait():
    one = scheduler()
    one.job(name="work", pool="warehouse")(lambda: None)
    one.pool("warehouse", 0)
    with one:
        run = one.run_now("work")
        eventually(lambda: one.find_run(run.id).state == "waiting")
        one.pool("warehouse", 1)
        ended(one, run)


def test_between_two_looks_another_job_has_the_place():
    one = scheduler()

    @one.job(pool="warehouse")
    def looks() -> None:
        raise NotYet("1h", "not there")

    one.job(name="other", pool="warehouse")(lambda: None)
    with one:
        run = one.run_now("looks")
        eventually(lambda: one.find_run(run.id).looks)
        ended(one, one.run_now("other"))


def test_a_pool_without_a_size_has_one_place_and_the_log_says_so(caplog):
    one, gauge = scheduler(), Gauge()

    @one.job(pool="warehouse", overlap="allow")
    def work(run: Run) -> None:
        with gauge:
            run.wait(0.01)

    with caplog.at_level(logging.WARNING), one:
        for run in [one.run_now("work") for _ in range(4)]:
            ended(one, run)
        (pool,) = one.pools()
    assert (pool.size, pool.is_set, gauge.most) == (1, False, 1)
    assert "pool 'warehouse' has no size yet: its jobs run one at a time" in caplog.text


def test_a_pool_with_a_size_is_not_warned_of(caplog):
    one = scheduler()
    one.job(name="work", pool="warehouse")(lambda: None)
    one.pool("warehouse", 3)
    with caplog.at_level(logging.WARNING), one:
        pass
    assert "no size" not in caplog.text


@pytest.mark.parametrize("size", [-1, True, 1.5, "2", None, 2**31])
def test_a_size_that_is_none_is_refused(size):
    with pytest.raises(ConfigurationError, match="pool: the size"):
        scheduler().pool("warehouse", size)


@pytest.mark.parametrize("name", ["", 7, "a\nb"])
def test_a_name_that_is_none_is_refused(name):
    one = scheduler()
    with pytest.raises(ConfigurationError):
        one.pool(name, 1)
    with pytest.raises(ConfigurationError):
        one.job(name="work", pool=name)(lambda: None)


def test_both_colours_set_and_list_pools():
    one = scheduler()

    async def act() -> list[int]:
        both = AsyncScheduler(one)
        await both.pool("warehouse", 4, by="ann", why="two more racks")
        return [pool.size for pool in await both.pools()]

    assert asyncio.run(act()) == [4]
    (action,) = one.actions()
    assert (action.what, action.target, action.by, action.why, action.detail) == (
        "pool", "warehouse", "ann", "two more racks", "size 4",
    )  # fmt: skip


def test_virtual_time_plays_pools():
    one, ran = Scheduler("memory://"), []

    for name, minute in (("a", 0), ("b", 0), ("c", 0)):

        @one.cron(f"{minute} 3 * * *", name=name, pool="warehouse")
        def body(run: Run) -> None:
            ran.append(run.job)

    with virtual(one, now="2026-11-14T00:00Z") as world:
        world.advance(to="2026-11-14T04:00Z")
        assert [run.state for run in world.runs()] == ["succeeded"] * 3
    assert sorted(ran) == ["a", "b", "c"]


def test_the_commands_set_and_list_pools_and_the_audit_explains_who_waits(sqlite_url, capsys):
    one = Scheduler(sqlite_url, application="shop")

    @one.every("1s", pool="warehouse")
    def work() -> None: ...

    def said(*words):
        code = main([*words, "--url", sqlite_url])
        return code, " ".join(capsys.readouterr().out.split())

    one.pool("warehouse", 0)
    with one:
        eventually(lambda: one.runs("work", state="waiting"))
        assert said("pool", "warehouse", "0")[0] == 0
        assert "warehouse 0 0 1" in said("pools")[1]
        assert json.loads(said("pools", "--json")[1])[0]["waiting"] == 1
        assert "waiting: a place in the pool 'warehouse'" in said("runs", "work", "--state", "waiting")[1]
        (audited,) = one.audit("work")
        assert audited.clean
        assert any("waiting: a place in the pool 'warehouse'" in line for line in audited.lines())
        assert "2 runs of the pool 'warehouse' may run at once" in said("pool", "warehouse", "2")[1]
        eventually(lambda: one.runs("work", state="succeeded"))
        assert "No job names this pool yet" in said("pool", "warehose", "2")[1]
