"""Functions instead of names: `run_now(report, customer_id=3)` and `call(report, customer_id=3)`, on every store."""

import asyncio
import functools
import sqlite3
from uuid import uuid4

import pytest

from tenure import AsyncScheduler, Call, Run, Scheduler, call, every
from tenure.errors import ConfigurationError


@pytest.fixture
def scheduler(url):
    scheduler = Scheduler(url, application=f"app {uuid4()}", capacity=0)

    @scheduler.job
    def report(run: Run, customer_id: int, day: str = "today") -> None: ...

    @scheduler.job(name="by key")
    def takes_options(key: str, by: str = "", kwargs: int = 0) -> None: ...

    @scheduler.every("1h", name="often", kwargs={"copies": 2})
    @scheduler.every("2h", name="rarely")
    def twice(copies: int = 1) -> None: ...

    scheduler.report, scheduler.takes_options, scheduler.twice = report, takes_options, twice
    scheduler.start()
    yield scheduler
    scheduler.stop()


def refused(call, *args, **kwargs) -> str:
    with pytest.raises(ConfigurationError) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def test_a_function_is_run_with_the_arguments_of_a_call(scheduler):
    report = scheduler.report
    assert scheduler.run_now(report, customer_id=3).kwargs == {"customer_id": 3}
    assert scheduler.run_now(report, 3, day="Monday").kwargs == {"customer_id": 3, "day": "Monday"}
    assert scheduler.run_now(call(report, 3), key="march", by="ops", why="asked").key == "march"
    assert scheduler.run_now(call(report, customer_id=3), key="march").by == "ops"
    assert scheduler.run_now("report", kwargs={"customer_id": 3}, key="march").by == "ops"
    assert scheduler.run_at(call(report, 4), in_="5m", slot="4").kwargs == {"customer_id": 4}
    many = scheduler.run_now_many([call(report, 5), call(scheduler.takes_options, "x")], keys=["a", "b"])
    assert [(run.job, run.key, run.kwargs) for run in many] == [
        ("report", "a", {"customer_id": 5}),
        ("by key", "b", {"key": "x"}),
    ]


def test_behind_a_function_every_argument_is_the_functions(scheduler):
    run = scheduler.run_now(scheduler.takes_options, key="x", by="y", kwargs=7)
    assert (run.job, run.kwargs, run.by) == ("by key", {"key": "x", "by": "y", "kwargs": 7}, "")
    run = scheduler.run_now(call(scheduler.takes_options, key="x"), key="mine", by="ops")
    assert (run.key, run.kwargs, run.by) == ("mine", {"key": "x"}, "ops")
    assert "has no parameter 'why'" in refused(scheduler.run_now, scheduler.report, customer_id=3, why="asked")


def test_jobs_are_added_with_the_arguments_of_a_call(scheduler):
    report = scheduler.report
    assert scheduler.add(call(report, 3), every("1h"), name="r:3", retries=2).kwargs == {"customer_id": 3}
    jobs = {f"r:{number}": (call(report, number), every("1h")) for number in (4, 5)}
    jobs |= {"mixed": (call(scheduler.takes_options, key="x"), None)}
    assert [job.kwargs for job in scheduler.add_many(jobs, tags=["r"])] == [
        {"customer_id": 4},
        {"customer_id": 5},
        {"key": "x"},
    ]
    assert [job.name for job in scheduler.jobs(tag="r")] == ["mixed", "r:4", "r:5"]
    assert scheduler.find_job("mixed").function == "by key"


def test_without_arguments_a_job_keeps_its_own(scheduler):
    scheduler.add(call(scheduler.report, 3), every("1h"), name="r:3")
    assert scheduler.run_now("often").kwargs is None
    assert "needs 'customer_id'" in refused(scheduler.run_now, scheduler.report)


def test_a_function_of_several_jobs_or_of_none_is_refused(scheduler):
    said = refused(scheduler.run_now, scheduler.twice, copies=3)
    assert "is the function of 'rarely' and 'often'" in said
    assert "run_now('rarely', kwargs={…})" in said

    def strange(): ...

    for verb, asked in (
        ("run_now", lambda: scheduler.run_now(strange)),
        ("run_at", lambda: scheduler.run_at(strange, in_="5m")),
        ("add", lambda: scheduler.add(call(strange), every("1h"), name="x")),
    ):
        said = refused(asked)
        assert said.startswith(f"{verb}: ")
        assert "is not registered, so no node could run it. Put @scheduler.job above its definition." in said


def test_what_is_written_wrong_is_refused_with_what_to_write(scheduler):
    report = scheduler.report
    assert "Write kwargs" not in refused(scheduler.run_now, report, customer=3)
    assert "Did you mean 'customer_id'?" in refused(scheduler.run_now, report, customer=3)
    assert "Pass arguments of the function as kwargs={'customer_id': 3}" in refused(
        scheduler.run_now, "report", customer_id=3
    )
    assert "Did you mean key=?" in refused(scheduler.run_now, "report", keys="x")
    assert "inside: call(…, customer_id=3)" in refused(scheduler.run_now, call(report), customer_id=3)
    assert "has its arguments already" in refused(scheduler.run_now, call(report, 3), kwargs={"customer_id": 3})
    assert "has its arguments already" in refused(
        scheduler.add, call(report, 3), every("1h"), name="x", kwargs={"customer_id": 3}
    )
    assert "gives 'customer_id' twice" in refused(scheduler.run_now, call(report, 3, customer_id=3))
    assert "takes 2 arguments by position besides the run, and was given 3" in refused(
        scheduler.run_now, report, 1, "x", 2
    )
    assert "unexpected positional argument 3 after 'report'" in refused(scheduler.run_now, "report", 3)
    assert "Write the function itself" in refused(call, "report", customer_id=3)
    assert "the arguments of the runs are missing" in refused(scheduler.run_now_many, "report")
    assert "1 key for 2 runs" in refused(scheduler.run_now_many, [call(report, 1), call(report, 2)], keys=["a"])
    assert repr(call(report, 3, day="x")) == "call(report, 3, day='x')"
    assert isinstance(call(functools.partial(report, day="x"), customer_id=3), Call)


def test_a_value_of_another_type_is_refused_wherever_it_is_given(scheduler):
    report, wrong = scheduler.report, {"customer_id": "7"}
    said = "takes customer_id: int, and was given the str '7'. Write customer_id=7."
    scheduler.add(call(report, 3), every("1h"), name="r")
    for asked in (
        lambda: scheduler.run_now(report, customer_id="7"),
        lambda: scheduler.run_now("report", kwargs=wrong),
        lambda: scheduler.run_now_many("report", [{"customer_id": 7}, wrong]),
        lambda: scheduler.run_at("report", in_="5m", kwargs=wrong),
        lambda: scheduler.add(report, every("1h"), name="x", kwargs=wrong),
        lambda: scheduler.add("report", every("1h"), name="x", kwargs=wrong),
        lambda: scheduler.add_many(report, {"x": (every("1h"), wrong)}),
        lambda: scheduler.update("r", kwargs=wrong),
        lambda: scheduler.every("1h", name="defined", kwargs=wrong)(report),
    ):
        assert said in refused(asked)
    assert scheduler.runs() == []
    assert [job.name for job in scheduler.jobs()] == ["by key", "often", "r", "rarely", "report"]


def test_a_call_is_part_of_the_callers_transaction(tmp_path):
    scheduler = Scheduler(f"sqlite:///{tmp_path / 'jobs.db'}", capacity=0)

    @scheduler.job
    def remind(order: int) -> None: ...

    with scheduler:
        connection = sqlite3.connect(tmp_path / "jobs.db")
        scheduler.run_now(call(remind, order=7), conn=connection)
        connection.rollback()
        assert scheduler.runs() == []
        scheduler.run_now(call(remind, order=8), conn=connection)
        connection.commit()
        connection.close()
        assert [run.kwargs for run in scheduler.runs()] == [{"order": 8}]


def test_the_same_with_asyncio(scheduler):
    report = scheduler.report

    async def scene() -> None:
        other = AsyncScheduler(scheduler)
        assert (await other.run_now(report, customer_id=3)).kwargs == {"customer_id": 3}
        assert (await other.run_now(call(report, 3), key="march")).key == "march"
        assert (await other.run_at(call(report, 4), in_="5m")).kwargs == {"customer_id": 4}
        assert [run.kwargs for run in await other.run_now_many([call(report, 5)])] == [{"customer_id": 5}]
        assert (await other.add(call(report, 3), every("1h"), name="r:3")).kwargs == {"customer_id": 3}
        assert [job.name for job in await other.add_many({"r:4": (call(report, 4), every("1h"))})] == ["r:4"]
        with pytest.raises(ConfigurationError, match="customer_id: int"):
            await other.run_now(report, customer_id="3")

    asyncio.run(scene())
