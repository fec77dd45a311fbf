"""Jobs that follow other jobs, as users write them: in virtual time, on the production loop."""

import pytest

import tenure.testing
from tenure.errors import ConfigurationError
from tenure.run import Run
from tenure.scheduler import Scheduler
from tenure.testing import virtual
from tenure.triggers import every
from tenure.views import ParentRun


@pytest.fixture
def scheduler():
    """Its URL leads nowhere: nothing may touch it."""
    return Scheduler("postgresql://nobody@127.0.0.1:1/nowhere")


def _told(world, name):
    return [f"{run.state}({run.reason})" if run.reason else run.state for run in world.runs(name)]


def test_a_job_follows_another_for_each_due_time(scheduler):
    seen = []

    @scheduler.every("1h")
    def load(run: Run):
        if run.scheduled_for.hour == 2:
            raise ValueError("no file")
        return {"hour": run.scheduled_for.hour}

    @scheduler.after("load")
    def report(run: Run):
        seen.append((run.scheduled_for.hour, run.key, run.parent))

    @scheduler.after("load", on="failure")
    async def alarm(run: Run):
        seen.append((run.scheduled_for.hour, "alarm", run.parent.state))

    @scheduler.after("report", on="end")
    def mail(): ...

    with virtual(scheduler, now="2026-11-14T00:30Z") as world:
        world.advance(by="3h")
        keys = [run.key for run in world.runs("load")]
        assert seen == [
            (1, keys[0], ParentRun("load", keys[0], "succeeded", {"hour": 1})),
            (2, "alarm", "failed"),
            (3, keys[2], ParentRun("load", keys[2], "succeeded", {"hour": 3})),
        ]
        assert [run.key for run in world.runs("report")] == keys
        assert _told(world, "report") == ["succeeded", "skipped(after: load failed)", "succeeded"]
        assert _told(world, "alarm") == [
            "skipped(after: load succeeded)",
            "succeeded",
            "skipped(after: load succeeded)",
        ]
        assert _told(world, "mail") == ["succeeded", "skipped(after: load failed)", "succeeded"]
        assert [run.lateness for run in world.runs("report") if run.state == "succeeded"] == [0.0, 0.0]
        assert {job.name: job.trigger for job in scheduler.jobs()} | {"load": ""} == {
            "alarm": "after load (failure)",
            "load": "",
            "mail": "after report (end)",
            "report": "after load (success)",
        }


def test_a_retry_of_the_parent_makes_up_for_what_was_skipped(scheduler):
    broken = True

    @scheduler.every("1h")
    def load():
        if broken:
            raise ValueError("no file")

    @scheduler.after("load")
    def report(): ...

    with virtual(scheduler, now="2026-11-14T00:30Z") as world:
        world.advance(by="1h")
        assert _told(world, "report") == ["skipped(after: load failed)"]
        broken = False
        scheduler.retry(world.runs("load")[0].id)
        world.advance(by="1m")
        assert _told(world, "report") == ["succeeded"]


def test_jobs_that_follow_can_be_added_and_changed_at_run_time(scheduler):
    ran = []

    @scheduler.every("1h")
    def load(): ...

    @scheduler.job
    def work(run: Run):
        ran.append(run.job)

    with virtual(scheduler, now="2026-11-14T00:30Z") as world:
        world.advance(by="1s")
        scheduler.add(work, None, name="a", after="load")
        scheduler.add("work", None, name="b", after="load", on="failure")
        world.advance(by="1h")
        assert ran == ["a"]
        scheduler.update("b", on="success")
        scheduler.update("a", after=None, trigger=every("3h"))
        world.advance(by="1h")
        assert ran == ["a", "b"]
        with pytest.raises(ConfigurationError, match=r"there is no such job. Did you mean 'load'"):
            scheduler.add(work, None, name="c", after="laod")
        with pytest.raises(ConfigurationError, match="'load' follows 'b', which follows 'load': that is a cycle"):
            scheduler.update("load", trigger=None, after="b")
        with pytest.raises(ConfigurationError, match="Backfill 'load', and it follows"):
            scheduler.backfill("b", "-2d", "-1d")


def test_what_cannot_be_followed_is_refused_where_it_is_written(scheduler):
    @scheduler.every("1h")
    def load(): ...

    def report(day): ...

    def fine(): ...

    with pytest.raises(ConfigurationError, match=r"\['load', 'clean'\] is a list, and a job follows one other job"):
        scheduler.after(["load", "clean"])
    with pytest.raises(ConfigurationError, match=r"@scheduler.after\('load'\)"):
        scheduler.after(load)
    with pytest.raises(ConfigurationError, match=r"'sucess' is not known. Write 'success', 'failure' or 'end'"):
        scheduler.after("load", on="sucess")
    with pytest.raises(ConfigurationError, match="day"):
        scheduler.after("load")(report)
    with pytest.raises(ConfigurationError, match="does not go with a trigger"):
        scheduler.every("1h", after="load")(fine)
    with pytest.raises(ConfigurationError, match="spread shifts due times"):
        scheduler.after("load", spread="1m")(fine)
    with pytest.raises(ConfigurationError, match="is the job itself"):
        scheduler.after("fine")(fine)
    with pytest.raises(ConfigurationError, match="on='end' says which endings of another job"):
        scheduler.job(on="end")(fine)


def test_a_cycle_is_refused_by_the_definition_that_closes_it(scheduler):
    @scheduler.after("c")
    def a(): ...

    @scheduler.after("a")
    def b(): ...

    with pytest.raises(
        ConfigurationError, match="'c' follows 'b', which follows 'a', which follows 'c': that is a cycle"
    ):

        @scheduler.after("b")
        def c(): ...


def test_a_start_refuses_a_parent_that_does_not_exist(tmp_path):
    scheduler = Scheduler(f"sqlite:///{tmp_path / 'jobs.db'}")

    @scheduler.job
    def load(): ...

    @scheduler.after("laod")
    def report(): ...

    with pytest.raises(
        ConfigurationError, match=r"'report': after='laod', and there is no such job. Did you mean 'load'"
    ):
        scheduler.start()


def test_a_body_can_be_called_with_a_parent():
    run = tenure.testing.run("report", parent=ParentRun("load", "k", "failed", {"rows": 3}))
    assert run.parent == ParentRun("load", "k", "failed", {"rows": 3})
    assert tenure.testing.run("report").parent is None
