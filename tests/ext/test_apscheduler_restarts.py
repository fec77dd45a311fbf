"""Jobs that were added while the program ran: any worker of any later start finds their functions, among those that the
application has loaded itself."""

import functools
import os
import queue
import sys
import types
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harness.processes import Worker
from harness.scratch import eventually
from security.rows import SqliteHand
from tenure import Scheduler, every
from tenure.errors import ConfigurationError
from tenure.ext.apscheduler import EVENT_JOB_ADDED, EVENT_JOB_MISSED, BackgroundScheduler, SQLAlchemyJobStore

BOT = Path(__file__).parent / "apps" / "reminder_bot.py"
HERE = __name__
called: queue.SimpleQueue[object] = queue.SimpleQueue()

SHOP = """
def remind(*args): told.put(args)
"""


def tell(*args: object) -> None:
    called.put(args)


@pytest.fixture(autouse=True)
def nothing_called(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_URL", sqlite_url)
    while not called.empty():
        called.get()


def module(name: str, source: str, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module of this text, loaded."""
    made = types.ModuleType(name)
    made.told = called
    exec(source, vars(made))  # noqa: S102 - a text of this file
    monkeypatch.setitem(sys.modules, name, made)
    return made


@pytest.fixture
def shop(monkeypatch):
    module("shop", SHOP, monkeypatch)
    return module("shop.jobs", SHOP, monkeypatch)


@pytest.fixture(params=["sqlite_url", "database"])
def ledger(request):
    """The database of the reminder bot, to be looked at from outside."""
    url = request.getfixturevalue(request.param)
    with closing(Scheduler(url, capacity=0)) as looking:
        looking.runs()
        yield url, looking


@pytest.mark.timeout(120)
def test_every_reminder_comes_once_over_two_deployments_of_three_workers(ledger, tmp_path):
    record, (url, looking) = tmp_path / "record", ledger

    def deploy() -> list[Worker]:
        workers = [Worker(BOT, url, record).start() for _ in range(3)]
        for worker in workers:
            worker.wait_line("ready", within=40)
        return workers

    def retire(workers: list[Worker]) -> None:
        eventually(lambda: frozen_between_runs(workers[0], looking), within=40, what="a moment without a run")
        workers[0].kill()
        for worker in workers[1:]:
            worker.process.stdin.close()
            assert worker.wait(within=30) == 0, worker.story()

    def reminded() -> list[str]:
        return sorted(record.read_text().split("\n")[:-1]) if record.exists() else []

    def comes(what: str) -> None:
        eventually(lambda: f"ann {what}" in reminded(), within=40, what=f"the reminder {what!r}")

    first = deploy()
    ask(first[0], "at once", 0)
    comes("at once")
    ask(first[0], "during the deployment", 0.5)
    ask(first[1], "later", 5)
    retire(first)
    second = deploy()
    comes("during the deployment")
    ask(second[2], "of the second", 2)
    retire(second)
    third = deploy()
    comes("later")
    comes("of the second")
    retire(third)
    assert reminded() == ["ann at once", "ann during the deployment", "ann later", "ann of the second"]
    assert [run.state for run in looking.runs()] == ["succeeded"] * 4


@pytest.mark.timeout(120)
def test_a_reminder_whose_run_a_kill_cut_short_comes_from_another_worker(ledger, tmp_path):
    record, (url, looking) = tmp_path / "record", ledger
    os.mkfifo(record)  # a body that opens it waits for a reader
    first = Worker(BOT, url, record).start()
    ask(first, "tea", 0)
    eventually(lambda: looking.runs(state="running"), within=40, what="the body of the first worker")
    first.kill()
    second = Worker(BOT, url, record).start()
    second.wait_line("ready", within=40)
    assert record.read_text() == "ann tea\n"
    second.process.stdin.close()
    assert second.wait(within=30) == 0, second.story()
    assert [(run.state, run.attempt) for run in looking.runs()] == [("succeeded", 2)]


def ask(worker: Worker, what: str, seconds: float) -> None:
    """Tell the bot to remind ann."""
    worker.say(**{"in": seconds, "who": "ann", "what": what})
    worker.wait_line(f"noted {what}", within=40)


def frozen_between_runs(worker: Worker, looking: Scheduler) -> bool:
    """Freeze the worker if the ledger has the ending of every body it has called: a kill then makes nothing come
    again."""
    worker.freeze()
    if not looking.runs(state="running"):
        return True
    worker.thaw()
    return False


def test_a_job_added_at_run_time_runs_after_a_restart(caplog):
    first = BackgroundScheduler(timezone="UTC")
    first.start()
    first.add_job(tell, "interval", seconds=1, args=["kept"], id="report:7")
    first.shutdown()
    while not called.empty():
        called.get()
    strict = BackgroundScheduler(timezone="UTC", functions=[])
    strict.start()
    eventually(lambda: "'report:7'" in caplog.text, what="a warning that names the job")
    assert "functions=[…]" in caplog.text
    assert strict.get_job("report:7").func is None
    strict.shutdown()
    assert called.empty()
    again = BackgroundScheduler(timezone="UTC")
    again.start()
    job = again.get_job("report:7")
    assert (job.func, job.args, job.func_ref) == (tell, ("kept",), f"{HERE}:tell")
    assert called.get(timeout=20) == ("kept",)
    again.shutdown()
    assert called.empty() or called.get() == ("kept",)


def test_a_date_in_a_store_outlives_a_start_that_does_not_say_it_again(sqlite_url, caplog):
    stores = {"default": SQLAlchemyJobStore(url=sqlite_url)}
    first = BackgroundScheduler(timezone="UTC", jobstores=stores)
    first.add_job(tell, "date", run_date=datetime.now(UTC) + timedelta(hours=1), args=[datetime(2026, 1, 1)])
    first.start(paused=True)
    first.shutdown()
    again = BackgroundScheduler(timezone="UTC", jobstores=stores)
    again.start()
    (job,) = again.get_jobs()
    job.modify(next_run_time=datetime.now(UTC))
    assert called.get(timeout=20) == (datetime(2026, 1, 1),)
    again.shutdown()
    assert "cannot run" not in caplog.text


def test_a_module_that_is_loaded_later_is_looked_for_again(sqlite_url, monkeypatch, caplog):
    scheduler = BackgroundScheduler(timezone="UTC", importable=["late"])
    scheduler.start()
    SqliteHand(sqlite_url).job("patient", function="late.jobs:remind", kwargs='{"args": ["late"], "kwargs": {}}')
    scheduler.wakeup()
    eventually(lambda: "late.jobs:remind" in scheduler.tenure._service.definitions.registry._missed, within=20)
    assert "patient" not in caplog.text
    module("late.jobs", SHOP, monkeypatch)
    scheduler.wakeup()
    assert called.get(timeout=30) == ("late",)
    scheduler.shutdown()


def test_the_package_that_built_the_scheduler_is_its_application(shop, monkeypatch, tmp_path):
    source = "def build(**words):\n    from tenure.ext.apscheduler import BackgroundScheduler\n    return BackgroundScheduler(**words)\n"
    wrapper = types.ModuleType("flask_apscheduler.scheduler")
    code = compile(source, str(tmp_path / "site-packages" / "flask_apscheduler" / "scheduler.py"), "exec")
    exec(code, vars(wrapper))  # noqa: S102 - a text of this file
    exec("def build(wrapper):\n    return wrapper.build()\n", vars(shop))  # noqa: S102
    built = shop.build(wrapper)
    assert (built._builder.module, built._builder.package) == ("shop.jobs", "shop")
    assert built.tenure._service.definitions.registry.named("shop:remind") is sys.modules["shop"].remind
    assert wrapper.build()._builder.module == HERE


def test_what_may_be_found_is_said_in_one_way():
    with pytest.raises(ConfigurationError, match=r"importable='shop'|importable: 'shop'"):
        BackgroundScheduler(importable="shop")
    with pytest.raises(ConfigurationError, match="Write one of the two"):
        BackgroundScheduler(importable=["shop"], functions=[tell]).start()


class Report:
    @classmethod
    def send(cls, *args: object) -> None:
        called.put((cls.__name__, *args))


class Monthly(Report): ...


class Yearly(Report): ...


def test_a_class_method_runs_after_a_restart_where_it_is_allowed(sqlite_url, caplog):
    stores = {"default": SQLAlchemyJobStore(url=sqlite_url)}
    first = BackgroundScheduler(timezone="UTC", jobstores=stores)
    first.start(paused=True)
    for _ in range(2):
        caplog.clear()
        first.add_job(Report.send, "cron", hour=3, id="send", replace_existing=True)
        assert "job 'send': its function or its arguments cannot be stored" in caplog.text
    first.shutdown()
    caplog.clear()
    again = BackgroundScheduler(timezone="UTC", jobstores=stores, functions=[Report.send])
    again.start(paused=True)
    again.add_job(Report.send, "interval", seconds=1, args=["kept"], id="send")
    again.shutdown()
    last = BackgroundScheduler(timezone="UTC", jobstores=stores, functions=[Report.send])
    last.start()
    assert called.get(timeout=20) == ("Report", "kept")
    last.shutdown()
    assert "cannot" not in caplog.text


def loudly(func: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(func)
    def wrapper(*args: object) -> None:
        func("loudly", *args)

    return wrapper


def test_functions_that_share_a_name_do_not_run_in_place_of_each_other():
    now = datetime.now(UTC)
    sched = BackgroundScheduler(timezone="UTC")
    sched.start(paused=True)
    for job_id, func in {"month": Monthly.send, "year": Yearly.send, "plain": tell, "wrapped": loudly(tell)}.items():
        sched.add_job(func, "interval", days=40, args=[job_id], id=job_id, next_run_time=now)
    made = [sched.add_job(func, "interval", days=40).id for func in (Monthly.send, Yearly.send)]
    assert made == [f"{HERE}:Monthly.send", f"{HERE}:Yearly.send"]
    sched.resume()
    found = {called.get(timeout=20) for _ in range(4)}
    sched.shutdown()
    assert found == {("Monthly", "month"), ("Yearly", "year"), ("plain",), ("loudly", "wrapped")}


def test_arguments_that_another_worker_changed_are_shown_and_outlive_a_new_name():
    sched = BackgroundScheduler(timezone="UTC")
    sched.start(paused=True)
    sched.add_job(tell, "cron", hour=3, args=["before"], id="report:7")
    sched.tenure.update(
        "report:7", kwargs={"args": [datetime(2026, 1, 1)], "kwargs": {}}
    )  # as modify_job elsewhere does
    assert sched.get_job("report:7").args == (datetime(2026, 1, 1),)
    sched.modify_job("report:7", name="the seventh")
    job = sched.get_job("report:7")
    assert (job.name, job.args) == ("the seventh", (datetime(2026, 1, 1),))
    assert sched.tenure.find_job("report:7").kwargs["args"] == [datetime(2026, 1, 1)]
    sched.shutdown()


@pytest.mark.parametrize("running", [False, True])
def test_a_date_that_is_over_when_it_is_added_is_told_as_missed(running):
    heard: list[tuple[int, str]] = []
    sched = BackgroundScheduler(timezone="UTC")
    sched.add_listener(lambda event: heard.append((event.code, event.job_id)), EVENT_JOB_ADDED | EVENT_JOB_MISSED)
    if running:
        sched.start(paused=True)
    sched.add_job(tell, "date", run_date=datetime.now(UTC) - timedelta(hours=1), id="old")
    if not running:
        sched.start(paused=True)
    sched.shutdown()
    assert heard == [(EVENT_JOB_ADDED, "old"), (EVENT_JOB_MISSED, "old")]


def test_what_a_store_cannot_keep_is_said_when_it_is_added_and_after_a_restart(sqlite_url, caplog):
    stores = {"default": SQLAlchemyJobStore(url=sqlite_url)}
    first = BackgroundScheduler(timezone="UTC", jobstores=stores)
    first.start(paused=True)
    first.add_job(tell, "cron", hour=3, id="kept")
    assert "cannot keep" not in caplog.text
    first.add_job(lambda: None, "cron", hour=3, id="lost")
    assert "job 'lost': its function or its arguments cannot be stored in the database." in caplog.text
    first.shutdown()
    again = BackgroundScheduler(timezone="UTC", jobstores=stores)
    again.start(paused=True)
    said = "1 job runs only in processes that add it, and this one does not: 'lost'."
    eventually(lambda: said in caplog.text, what="a warning that names the job")
    again.shutdown()


def test_a_change_by_hand_holds_and_can_be_reset_after_the_program_modifies_the_job():
    def start() -> BackgroundScheduler:
        sched = BackgroundScheduler(timezone="UTC")
        sched.add_job(tell, "interval", minutes=1, id="poll")
        sched.start(paused=True)
        return sched

    sched = start()
    sched.tenure.update("poll", trigger=every("2h"), by="ops")
    sched.modify_job("poll", max_instances=2)
    sched.shutdown()
    sched = start()
    job = sched.tenure.find_job("poll")
    assert (job.changed_by, job.trigger.startswith("Every 2 h")) == ("ops", True)
    assert sched.tenure.reset("poll").trigger.startswith("Every 1 min")
    sched.modify_job("poll", max_instances=3)
    assert sched.tenure.find_job("poll").changed_at is None, "the program is no change by hand"
    sched.shutdown()
