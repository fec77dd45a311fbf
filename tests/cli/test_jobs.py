"""The verbs about jobs and runs, on names alone: the functions are in another process, or nowhere."""

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace

import psycopg
import pytest

from harness import constants
from harness.scratch import eventually
from stores.ledger.scene import Worker
from tenure import Run, Scheduler, cron, every
from tenure.cli import main
from tenure.core.messages import JobChange, NewRun, Planned
from tenure.core.records import Change, RunState
from tenure.scheduler import service_of
from tenure.util.instants import moment

SECOND = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{3})? \w+"

CLOCK = r"\d\d:\d\d:\d\d"

APP = """
from tenure import AsyncScheduler, Run, Scheduler

scheduler = Scheduler({url!r}, application="shop", label="worker")

@scheduler.job
def greet(run: Run, name: str = "you") -> None:
    run.log(f"hello {{name}}")

other = AsyncScheduler(scheduler)
"""


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch, tmp_path):
    for name in ("TENURE_URL", "TENURE_SCHEMA", "TENURE_DEBUG", "TENURE_OFF"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def asked(tenure):
    """Run a verb for its JSON."""
    return lambda *words: json.loads(tenure(*words, "--json")[1])


def shop(url, capacity=0, **more):
    scheduler = Scheduler(url, application="shop", capacity=capacity, label="worker", tz="Asia/Seoul", **more)

    @scheduler.cron("0 3 * * *")
    def daily(run: Run) -> None:
        run.log(run.scheduled_for)

    @scheduler.job
    def greet(run: Run, name: str = "you") -> None:
        run.log(f"hello {name}")
        if name == "nobody":
            raise ValueError("nobody is there")

    return scheduler


@pytest.fixture
def jobs(url):
    """Its jobs are in the ledger, and nobody runs them."""
    scheduler = shop(url)
    scheduler.start()
    return scheduler


@pytest.fixture
def running(url):
    with shop(url, capacity=4) as scheduler:
        yield scheduler


def test_jobs_are_listed_with_how_they_do(tenure, asked, running):
    assert tenure("run-now", "greet", "--wait", "20s")[0] == 0
    code, out, _ = tenure("jobs")
    header, daily, greet = out.splitlines()
    assert code == 0
    assert re.match(r"job +state +last run +next, \w+ +trigger$", header)
    assert re.match(r"daily +active +\d\d:\d\d:\d\d +At 03:00 every day, Asia/Seoul$", daily)
    assert re.match(r"greet +active +ok \d+ s ago +on request$", greet)
    found = {job["name"]: job for job in asked("jobs")}
    assert found["daily"]["tz"] == "Asia/Seoul"
    assert (found["daily"]["standing"], found["daily"]["outcome"]) == ("active", None)
    assert found["greet"]["outcome"]["state"] == "succeeded"
    assert found["greet"]["stats"]["runs"] == 1
    assert found["greet"]["stats"]["duration_p99"] >= 0
    header, daily, greet = tenure("jobs", "--stats")[1].splitlines()
    assert re.match(r"daily +0$", daily)
    assert re.match(r"greet +1( +\S+ m?s){4}$", greet)


@pytest.fixture
def troubled(customers, url):
    """Of the jobs of the customers, one failed twice, one is paused, and a job has no function on a live node."""
    customers.stop()
    other = Scheduler(url, application="shop", capacity=0)
    other.job(name="gone")(lambda: None)
    other.start()
    other.stop()
    with shop(url, capacity=4) as scheduler:
        scheduler.update("report:2", kwargs={"name": "nobody"})
        for job in ("report:2", "report:2", "report:1"):
            run = scheduler.run_now(job)
            eventually(lambda run=run: scheduler.find_run(run.id).finished_at is not None)
        scheduler.pause("sync:3")
        yield scheduler


def _listed(out):
    return [line.split()[0] for line in out.splitlines()[1:]]


def test_jobs_are_found_by_what_is_wrong_with_them(tenure, asked, troubled):
    code, out, _ = tenure("jobs", "--failing")
    assert (code, _listed(out)) == (0, ["report:2"])
    assert re.match(r"report:2 +failing +failed \d+ s ago, 2 in a row", out.splitlines()[1])
    assert _listed(tenure("jobs", "--paused")[1]) == ["sync:3"]
    assert _listed(tenure("jobs", "--orphaned")[1]) == ["gone"]
    assert _listed(tenure("jobs", "--paused", "--failing")[1]) == ["report:2", "sync:3"]
    assert _listed(tenure("jobs", "*:?", "--sort", "failures")[1])[0] == "report:2"
    assert _listed(tenure("jobs", "*:?", "--sort", "last")[1])[:2] == ["report:1", "report:2"]
    assert _listed(tenure("jobs", "--tag", "customer-3")[1]) == ["report:3", "sync:3"]
    assert [job["name"] for job in asked("jobs", "--queue", "sync", "--sort", "next")] == ["sync:1", "sync:2", "sync:3"]
    assert tenure("jobs", "sync:*", "--failing")[:2] == (0, "no such jobs\n")
    assert tenure("jobs", "nothing")[:2] == (0, "no such jobs\n")
    by_name = {job["name"]: job for job in asked("jobs")}
    assert [by_name[name]["standing"] for name in ("report:1", "report:2", "sync:3", "gone")] == [
        "active",
        "failing",
        "paused",
        "orphaned",
    ]
    assert by_name["report:2"]["outcome"]["failures"] == 2


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_terminal_cuts_no_name(tenure, troubled, monkeypatch, width):
    long = "report:of-all-that-the-customer-with-the-long-name-has-ever-bought"
    troubled.add("greet", every("1h"), name=long)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    out = tenure("jobs")[1]
    assert any(long in line for line in out.splitlines())
    assert all(len(line) <= max(width, len(f"job {long}")) for line in out.splitlines())
    assert (long in out.splitlines()) == (width == 80), "a line of its own, if there is a table"
    monkeypatch.delenv("NO_COLOR")
    coloured = tenure("jobs")[1]
    plain = re.sub("\033\\[\\d+m", "", coloured)
    told = [re.sub(r"\d+ s ago", "a moment ago", text).split() for text in (plain, out)]
    assert told[0] == told[1], "colours change nothing else"
    assert len(plain.splitlines()) == len(out.splitlines())
    assert re.search("\033\\[31m(state )?failing\033\\[0m", coloured)


def test_a_job_is_shown_with_all_that_there_is_to_say(tenure, asked, troubled):
    troubled.update("report:2", timeout="20m", backoff=("10s", "5m"), by="ada", why="slow disks")
    code, out, _ = tenure("show", "report:2")
    assert code == 0
    first, *lines = out.splitlines()
    assert re.match(r"'report:2' fails: 2 runs in a row, since \d+ s ago: ValueError: nobody is there$", first)
    assert "function  greet" in lines
    assert 'arguments {"name": "nobody"}' in lines
    assert "options   timeout=20m, backoff=(10s, 5m), queue=report" in lines
    assert "tags      customer-2, report" in lines
    assert re.search(r"^\d+ +\d\d:\d\d:\d\d +failed +\S+ m?s +worker +ValueError: nobody is there$", out, re.MULTILINE)
    assert re.search(r"^\d\d:\d\d:\d\d +updated +ada +slow disks$", out, re.MULTILINE)
    assert re.search(r"^the last error: tenure log \d+$", out, re.MULTILINE)
    found = asked("show", "report:2")
    assert (len(found["next"]), found["changes"][0]["by"], found["runs"][0]["state"]) == (3, "ada", "failed")
    assert "'sync:3' is paused" in tenure("show", "sync:3")[1]
    assert "'gone' is orphaned: no live node has its function 'gone'" in tenure("show", "gone")[1]
    assert re.match(r"'report:1' is active; its last run succeeded", tenure("show", "report:1")[1])
    code, _, err = tenure("show", "report:9")
    assert (code, "Did you mean" in err) == (1, True)


def test_a_run_is_shown_by_its_number(tenure, asked, troubled):
    [run, *_] = troubled.runs("report:2")
    assert tenure("show", str(run.id))[1].startswith(f"run {run.id} of 'report:2'")
    assert asked("show", str(run.id))["job"] == "report:2"
    assert tenure("show", "4711")[0] == 1


def test_what_is_watched_is_shown_again_until_interrupted(tenure, troubled, monkeypatch):
    frames = iter([None, None, KeyboardInterrupt])

    def pause(_seconds):
        if (what := next(frames)) is not None:
            raise what

    monkeypatch.setattr("tenure.cli.watch.sleep", pause)
    code, out, _ = tenure("jobs", "--failing", "--watch", "2s")
    assert code == 0
    assert out.count("tenure jobs, every 2 s (Ctrl-C ends)") == 3
    assert out.count("report:2") == 3
    assert "\033" not in out


def test_a_watched_terminal_is_redrawn_in_place(tenure, troubled, monkeypatch):
    monkeypatch.setattr("tenure.cli.watch.sleep", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("LINES", "6")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    out = tenure("jobs", "--watch")[1]
    assert out.startswith("\033[2J\033[H")
    assert out.endswith("\033[J\n")
    assert re.search(r"… \d+ more lines", out)
    assert len(out.split("\n")) <= 7


def test_a_database_that_does_not_answer_is_watched_on(tenure, troubled, monkeypatch):
    from tenure.errors import StoreUnavailable

    answers = iter([StoreUnavailable("the server is away"), None])

    def jobs(_arguments):
        if (error := next(answers)) is not None:
            raise error
        print("here again")
        return 0

    frames = iter([None, KeyboardInterrupt])
    monkeypatch.setattr("tenure.cli.watch.sleep", lambda _: (_ for _ in ()).throw(e) if (e := next(frames)) else None)
    monkeypatch.setattr("tenure.cli.job_list.jobs", jobs)
    from tenure.cli.watch import watchable

    monkeypatch.setattr("tenure.cli.jobs_parser.watchable", lambda _: watchable(jobs))
    out = tenure("jobs", "--watch")[1]
    assert "the server is away" in out
    assert "here again" in out


def test_watching_is_for_people(tenure, jobs):
    assert tenure("jobs", "--watch", "1s", "--json")[0] == 2
    with pytest.raises(SystemExit):
        tenure("jobs", "--watch", "daily")


def test_a_run_that_is_asked_for_by_name(tenure, asked, running):
    run = asked("run-now", "greet", "--kwargs", '{"name": "Ada"}', "--by", "ops", "--wait", "20s")
    assert (run["state"], run["kind"], run["by"], run["node"]) == ("succeeded", "manual", "ops", "worker")
    code, out, err = tenure("log", str(run["id"]))
    assert code == 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  #1  hello Ada\n", out)
    assert re.search(rf"run {run['id']} of 'greet' for {SECOND}: succeeded", err)
    code, out, _ = tenure("run-now", "greet", "--kwargs", '{"name": "nobody"}', "--wait", "20s")
    assert code == 1
    failed = int(re.match(r"run (\d+) of 'greet' .*: failed", out)[1])
    out = tenure("log", str(failed))[1]
    assert "  #1  hello nobody\nTraceback" in out
    assert out.endswith("ValueError: nobody is there\n")
    code, out, _ = tenure("runs", "--state", "failed", "--since", "-1d")
    assert code == 0
    assert len(out.splitlines()) == 2
    assert out.endswith("ValueError: nobody is there\n")
    assert [run["id"] for run in asked("runs", "greet", "--limit", "1")] == [failed]
    assert tenure("runs", "daily")[:2] == (0, "no such runs\n")
    (line,) = asked("log", str(failed))["log"]
    assert (line["attempt"], line["text"]) == (1, "hello nobody")


def test_the_same_key_is_the_same_run(asked, jobs):
    first, second = (asked("run-now", "greet", "--key", "order-7") for _ in range(2))
    assert first["id"] == second["id"]
    assert first["state"] == "pending"


def test_a_run_that_nobody_begins_is_not_waited_for_longer(tenure, jobs):
    code, out, _ = tenure("run-now", "greet", "--wait", "200ms")
    assert (code, out.endswith(": pending\n")) == (1, True)


def test_how_an_application_is(tenure, asked, jobs, url):
    code, out, _ = tenure("status")
    assert code == 1
    assert "planner  none: no node of this application is running" in out
    with shop(url, capacity=4) as scheduler:
        while not scheduler.health().plans:
            threading.Event().wait(0.05)
        code, out, _ = tenure("status")
        assert code == 0
        assert re.search(r"^planner  worker, for ", out, re.MULTILINE)
        assert re.search(rf"^next     {SECOND}  daily$", out, re.MULTILINE)
        tenure("pause", "daily")
        found = asked("status")
        assert (found["application"], found["planner"]["label"], found["paused"]) == ("shop", "worker", ["daily"])


def test_pausing_resuming_removing(tenure, asked, jobs):
    code, out, _ = tenure("pause", "daily", "--why", "maintenance", "--until", "2h", "--by", "ada")
    assert code == 0
    assert re.fullmatch(rf"'daily' is paused until {SECOND}\n", out)
    [daily] = [job for job in asked("jobs") if job["name"] == "daily"]
    assert (daily["state"], daily["paused_by"], daily["paused_why"]) == ("paused", "ada", "maintenance")
    assert "maintenance" in tenure("why", "daily")[1]
    code, out, _ = tenure("resume", "daily")
    assert (code, bool(re.fullmatch(rf"'daily' is active; next due at {SECOND}\n", out))) == (0, True)
    assert tenure("pause", "daily")[1] == "'daily' is paused until it is resumed\n"
    assert "2036" in tenure("pause", "daily", "--until", "2036-01-01T00:00Z")[1]
    code, out, _ = tenure("remove", "daily")
    assert code == 0
    assert "'daily' was removed" in out
    assert "defined in code" in out
    assert [job["name"] for job in asked("jobs")] == ["greet"]
    assert "was removed" in asked("why", "daily")["why"]


def test_what_was_removed_and_is_still_defined_is_shown_and_can_be_restored(tenure, asked, jobs, url, caplog):
    tenure("remove", "daily", "--by", "ada")
    shop(url).start()
    assert re.search(r"'daily' is defined here, but was removed by ada at .*`tenure restore daily`", caplog.text)
    [daily] = [job for job in asked("jobs") if job["name"] == "daily"]
    assert (daily["state"], daily["removed_by"]) == ("removed", "ada")
    assert re.search(rf"removed by ada at {SECOND}", tenure("jobs")[1])
    (concern,) = [one for one in asked("status")["attention"] if one["cause"] == "removed"]
    assert (concern["jobs"], concern["fails"]) == (["daily"], False), "no live node has its function"
    assert "`tenure restore daily` brings it back" in tenure("status")[1]
    assert (
        "until it is restored (`tenure restore daily`) or its definition in the code changes"
        in tenure("why", "daily")[1]
    )
    code, _, err = tenure("run-now", "daily")
    assert code != 0
    assert re.search("has no job 'daily': it was removed by ada at .*tenure restore daily", err)
    code, out, _ = tenure("restore", "daily", "--by", "ada", "--why", "a mistake")
    assert (code, bool(re.fullmatch(rf"'daily' is active again; next due at {SECOND}\n", out))) == (0, True)
    assert [one["cause"] for one in asked("status")["attention"]] == ["no_node"]
    code, _, err = tenure("restore", "daily")
    assert (code != 0, "is active, not removed" in err) == (True, True)
    assert tenure("restore", "dayly")[0] != 0


def test_what_was_changed_is_shown_with_what_the_code_says_and_can_be_reset(tenure, asked, jobs):
    assert "(changed)" not in tenure("jobs")[1]
    jobs.update("daily", trigger=every("9h"), by="ada\n", why="too often")
    [daily] = [job for job in asked("jobs") if job["name"] == "daily"]
    assert (daily["changed_by"], daily["changed_why"]) == ("ada\n", "too often")
    assert daily["code"] == {"trigger": "At 03:00 every day, Asia/Seoul"}
    out = tenure("jobs")[1]
    assert re.search(r"^daily +active +\d\d:\d\d:\d\d +Every 9 h \(changed\)", out, re.MULTILINE)
    assert re.search(
        rf"'daily' was changed by ada.* \(too often\) at {SECOND}\. The code says trigger: At 03:00 every day", out
    )
    assert "It runs as changed by ada" in tenure("why", "daily")[1]
    code, out, _ = tenure("reset", "daily", "--by", "ada", "--why", "a mistake")
    assert (code, bool(re.fullmatch(rf"'daily' runs as the code defines it again; next due at {SECOND}\n", out))) == (
        0,
        True,
    )
    code, _, err = tenure("reset", "daily")
    assert (code != 0, "There is nothing to reset." in err) == (True, True)
    [daily] = [job for job in asked("jobs") if job["name"] == "daily"]
    assert (daily["changed_at"], daily["code"]) == (None, None)


@pytest.mark.usefixtures("jobs")
def test_why_names_the_function_that_no_live_node_has(tenure, url):
    assert tenure("run-now", "greet")[0] == 0
    assert "No node of the application 'shop' is alive, so 'daily' does not run." in tenure("why", "daily")[1]
    assert re.search(
        r"has been pending since .*: no node of the application 'shop' is alive", tenure("why", "greet")[1]
    )
    with shop(url, capacity=1):
        eventually(lambda: "'daily' has not run yet." in tenure("why", "daily")[1], what="a node that has it")
        eventually(lambda: "ran on worker and succeeded" in tenure("why", "greet")[1], what="its run")


@pytest.mark.usefixtures("jobs")
def test_the_status_names_jobs_whose_function_no_live_node_has(tenure, asked, url):
    other = Scheduler(url, application="shop", label="other")
    other.job(greet_by_name, name="greet")
    with other:
        eventually(lambda: asked("status")["planner"] and asked("jobs")[0]["orphaned"], what="a node that plans")
        eventually(lambda: not asked("jobs")[1]["orphaned"], what="the node's functions")
        (concern,) = asked("status")["attention"]
        assert (concern["cause"], concern["jobs"], concern["fails"]) == ("no_function", ["daily"], False)
        code, out, _ = tenure("status")
        assert (code, "daily is orphaned: no live node has its function 'daily'." in out) == (0, True)
        assert re.search(r"^daily +orphaned ", tenure("jobs")[1], re.MULTILINE)
        why = asked("why", "daily")
        assert (why["cause"], why["facts"]["function"], why["facts"]["queue"]) == ("no_function", "daily", "default")
        _make_late(url, other, "daily")
        code, out, _ = tenure("status")
        assert code == 1
        assert re.search(rf"daily is orphaned: .* 1 due time is overdue since {SECOND[:-4]}", out)
        (concern,) = asked("status")["attention"]
        assert (concern["fails"], concern["overdue"]) == (True, 1)
        code, out, _ = tenure("audit")
        assert code == 1
        assert re.search(r"overdue: .*: it is not planned: no live node has its function 'daily'", out)
        assert "1 due time is overdue: they should have run" in out


def _make_late(url, scheduler, name, seconds=100.0):
    """The job has been there for an hour, was due so long ago, and no node has planned that."""
    with service_of(scheduler).ledger() as ledger:
        (job,) = ledger.jobs("shop", name)
        due = ledger.now() - seconds
        spec = replace(job.spec, trigger=every(days=1, anchor=moment(due)).to_json())
        ledger.change(JobChange("shop", name, Change.UPDATED, spec, next_due=due))
    if url.startswith("postgres"):
        with psycopg.connect(url, autocommit=True) as server:
            server.execute("UPDATE tenure.job_change SET at = at - interval '1 hour'")
    else:
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
            file.execute("UPDATE tenure_change SET at = at - 3600000000")


def test_a_healthy_application_is_no_news(tenure, asked, url, monkeypatch):
    """Long runs, waiting runs, paused jobs: both commands end with 0."""
    constants.give(monkeypatch.setattr, SLACK=4.0)
    may_end = threading.Event()
    scheduler = Scheduler(url, application="shop", capacity=4, label="worker")

    @scheduler.every("1s", overlap="wait", grace="1s")
    def long(run: Run) -> None:
        run.wait(30)
        may_end.wait(30)

    @scheduler.every("1s", grace="1s")
    def paused() -> None:
        pass

    @scheduler.every("1s", grace="1s")
    def quick() -> None:
        pass

    with scheduler:
        scheduler.pause("paused")
        eventually(lambda: asked("status")["open"]["waiting"], what="a run that waits")
        later = time.monotonic() + 7
        while time.monotonic() < later:
            assert tenure("status")[0] == 0, tenure("status")[1]
            assert tenure("audit")[0] == 0, tenure("audit")[1]
            assert asked("status")["attention"] == []
            time.sleep(1)
        assert asked("why", "long")["cause"] in {"running", "overlap"}
        may_end.set()
        for run in scheduler.runs("long", state="running"):
            scheduler.cancel(run.id)


def test_slots_that_are_all_busy_are_named(tenure, asked, url):
    scheduler = Scheduler(url, application="shop", capacity=1, label="worker")
    may_end = threading.Event()

    @scheduler.job
    def hold() -> None:
        may_end.wait(60)

    scheduler.job(greet_by_name, name="greet")
    with scheduler:
        held = scheduler.run_now("hold")
        eventually(lambda: scheduler.find_run(held.id).state == "running", what="its start")
        scheduler.run_now("greet")
        time.sleep(1.1)
        why = asked("why", "greet")
        assert (why["cause"], why["facts"]["state"]) == ("no_free_slot", "pending")
        assert "the only slot of worker is busy." in why["why"]
        may_end.set()


@pytest.mark.usefixtures("jobs")
def test_the_nodes_that_are_alive(tenure, asked, url):
    code, out, _ = tenure("nodes")
    assert (code, out) == (1, "no node of 'shop' is alive\n")
    other = Scheduler(url, application="shop", label="other", capacity=2, queues=("slow", "mail"), release=7)
    other.job(greet_by_name, name="greet")
    with shop(url, capacity=4) as scheduler, other:
        eventually(lambda: len(asked("nodes")) == 2, what="both nodes")
        eventually(lambda: any(node["plans"] for node in asked("nodes")), what="a planner")
        other_, worker = asked("nodes")
        assert (worker["label"], worker["capacity"], worker["queues"], worker["running"]) == ("worker", 4, None, 0)
        assert (worker["only_here"], other_["only_here"], other_["functions"]) == (["daily"], [], ["greet"])
        assert (other_["release"], other_["queues"], other_["capacity"]) == (7, ["slow", "mail"], 2)
        assert worker["host"] == socket.gethostname()
        assert abs(worker["clock_offset"]) < 5
        view = scheduler.nodes()[1]
        assert (view.label, view.id, view.since.isoformat()[-6:]) == ("worker", worker["id"], "+09:00")
        code, out, _ = tenure("nodes")
        assert code == 0
        assert out.splitlines()[0].split() == ["node", "up", "running", "queues", "release", "clock", "host"]
        assert re.search(r"^other( \(plans\))? +\S+ m?s +0 of 2 +slow, mail +7 ", out, re.MULTILINE)
        assert re.search(r"^all with tenure \S+ and tzdata \S+$", out, re.MULTILINE)
        assert "only worker has daily\n" in out


def greet_by_name(run: Run, name: str = "you") -> None:
    run.log(f"good day, {name}")


def test_cancelling_a_run(tenure, asked, jobs):
    run = asked("run-now", "greet")["id"]
    code, out, _ = tenure("cancel", str(run), "--why", "a mistake")
    assert (code, out.rstrip().endswith(": cancelled")) == (0, True)
    assert "a mistake" in asked("runs")[0]["reason"]
    assert asked("cancel", str(run))["state"] == "cancelled"


def test_cancelling_what_is_over_is_a_no(tenure, running, asked):
    run = asked("run-now", "greet", "--wait", "20s")["id"]
    assert tenure("cancel", str(run))[0] == 1


def fail(scheduler, count=1):
    """Runs of `greet` that failed, by their numbers."""
    node = Worker(scheduler.store, "shop", "worker")
    asked = [scheduler.run_now("greet").id for _ in range(count)]
    for _ in asked:
        node.finish(node.take().id, RunState.FAILED, error="Traceback …\nValueError: nobody is there")
    node.close()
    return asked


def test_a_failed_run_is_retried(tenure, asked, url):
    with shop(url, capacity=4) as scheduler:
        run = asked("run-now", "greet", "--kwargs", '{"name": "nobody"}', "--wait", "20s")
        assert run["state"] == "failed"
        code, out, _ = tenure("retry", str(run["id"]), "--why", "once more")
        assert (code, f"run {run['id']} of 'greet'" in out) == (0, True)
        eventually(lambda: scheduler.find_run(run["id"]).attempt == 2, what="the next attempt")
        eventually(lambda: scheduler.find_run(run["id"]).state == "failed", what="its end")
        assert asked("retry", str(run["id"]))["state"] == "pending"


def test_a_retry_of_what_is_not_over_or_has_succeeded_is_a_no(tenure, asked, running):
    run = asked("run-now", "greet", "--wait", "20s")["id"]
    code, _, err = tenure("retry", str(run))
    assert (code, "has succeeded" in err) == (1, True)
    assert tenure("retry", "999999")[0] == 1
    code, _, err = tenure("retry")
    assert (code, "the number of a run, or --failed" in err) == (2, True)


def test_what_failed_is_listed_until_it_is_meant(tenure, asked, jobs):
    runs = fail(jobs, 2)
    code, out, err = tenure("retry", "--failed", "greet")
    assert (code, len(out.splitlines())) == (2, 2)
    assert out.splitlines()[0].startswith(f"run {runs[0]} of 'greet'")
    assert out.splitlines()[0].endswith("ValueError: nobody is there")
    assert "would retry 2 runs. Nothing was changed; add --yes" in err
    jobs.pause("greet")
    code, out, _ = tenure("retry", "--failed", "gr*", "--since", "-1h", "--yes")
    assert (code, out) == (0, "2 runs will run again, as many at once as the options of their jobs allow\n")
    assert {run["state"] for run in asked("runs", "greet")} == {"pending"}
    assert tenure("retry", "--failed", "greet")[0] == 0, "there is nothing to retry"
    assert tenure("retry", "--failed")[0] == 2
    assert tenure("retry", "--failed", "great", "--yes")[0] == 1


def test_a_retried_run_of_a_paused_job_says_what_it_waits_for(tenure, jobs):
    [run] = fail(jobs)
    jobs.pause("greet")
    assert "begins after `tenure resume greet`" in tenure("retry", str(run))[1]


def test_a_run_for_later_is_requested_listed_and_cancelled(tenure, asked, jobs):
    code, out, _ = tenure("run-at", "greet", "--in", "5m", "--slot", "a", "--kwargs", '{"name": "Ann"}')
    assert (code, out.rstrip().endswith(": pending")) == (0, True)
    (first,) = asked("runs", "greet")
    later = asked("run-at", "greet", "--in", "9m", "--slot", "a", "--if-waiting", "later")
    assert (later["id"], later["kwargs"], later["scheduled_for"] > first["scheduled_for"]) == (first["id"], None, True)
    at = asked("run-at", "greet", "2099-01-01T00:00Z", "--key", "k", "--why", "later")
    assert [run["id"] for run in asked("runs", "--state", "pending")] == [at["id"], first["id"]]
    assert [run["id"] for run in asked("runs", "--state", "failed")] == []
    assert tenure("run-at", "greet")[0] == 2
    assert "one of them" in tenure("run-at", "greet")[2]
    assert tenure("cancel", "--slot", "a")[0] == 0
    code, _, err = tenure("cancel", "--slot", "a")
    assert (code, "no run waits in the slot 'a'" in err) == (1, True)
    assert asked("cancel", "greet", "--key", "k")["state"] == "cancelled"


def test_a_backfill_is_a_list_until_it_is_meant(tenure, asked, jobs):
    span = ("2026-11-01T00:00Z", "2026-11-04T00:00Z")
    code, out, err = tenure("backfill", "daily", *span)
    days = [f"2026-11-0{day} 03:00:00 KST" for day in (2, 3, 4)]
    assert (code, out.splitlines()) == (0, days)
    assert "3 due times of 'daily' would run. Nothing was changed" in err
    assert asked("runs") == []
    assert len(asked("backfill", "daily", *span)["due"]) == 3
    code, out, _ = tenure("backfill", "daily", *span, "--yes")
    assert (code, out.startswith("3 due times of 'daily' will run")) == (0, True)
    assert {run["kind"] for run in asked("runs", "daily")} == {"backfill"}
    assert tenure("backfill", "daily", *span)[1] == ""
    assert tenure("backfill", "daily", "-2d", "-0s")[0] == 0


def test_a_backfill_of_what_was_forgotten_needs_a_word(tenure, asked, jobs, caplog):
    span = ("2026-11-01T00:00Z", "2026-11-04T00:00Z")
    for run in jobs.backfill("daily", *span, dry_run=False):
        jobs.cancel(run.id)
    with jobs._service.ledger() as ledger:
        ledger.advance_backfills("shop", 10)
        assert ledger.prune("shop", before=ledger.now(), keep=0, limit=10).removed == 3
    code, out, _ = tenure("backfill", "daily", *span, "--yes")
    assert (code, out.startswith("0 due times")) == (0, True)
    assert "--even-forgotten" in caplog.text
    code, out, _ = tenure("backfill", "daily", *span, "--even-forgotten")
    assert (code, len(out.splitlines())) == (0, 3)
    assert "They may run a second time" in caplog.text
    assert asked("backfill", "daily", *span) == {"dry_run": True, "due": [], "forgotten": 3}
    filled = asked("backfill", "daily", *span, "--even-forgotten", "--yes")
    assert (filled["dry_run"], len(filled["runs"]), filled["forgotten"]) == (False, 3, 3)


def test_one_is_not_many(tenure, jobs):
    span = ("2026-11-01T00:00Z", "2026-11-02T00:00Z")
    assert (
        "1 due time of 'daily' would run. Nothing was changed; add --yes to run it."
        in tenure("backfill", "daily", *span)[2]
    )
    assert tenure("backfill", "daily", *span, "--yes")[1].startswith("1 due time of 'daily' will run")


def test_a_pause_says_that_it_waits_for_a_node_that_does_not_answer(tenure, jobs, monkeypatch):
    """The node has claimed a run, and is frozen."""
    monkeypatch.setattr("tenure.cli.job_operations.ASKING", 0.1)
    jobs.run_now("greet")
    node = Worker(jobs.store, "shop", "frozen", ttl=0.5)
    try:
        node.take()
        code, _, err = tenure("pause", "greet")
        assert (code, err.count("waiting for nodes to confirm")) == (1, 1)
    finally:
        node.close()


@pytest.mark.usefixtures("jobs")
def test_a_long_audit_says_how_far_it_is(tenure, monkeypatch):
    monkeypatch.setattr("tenure.jobs.queries.PAGE", 1)
    assert "audited" not in tenure("audit")[2]
    monkeypatch.setattr("tenure.cli.jobs.PROGRESS", 0.0)
    code, out, said = tenure("audit", "--json")
    assert code == 0
    assert json.loads(out)["clean"]
    assert "1 of 2 jobs audited" in said
    assert "2 of 2" not in said


def test_the_audit_says_whether_all_is_accounted_for(tenure, asked, jobs, url):
    code, out, _ = tenure("audit", "--since", "-1d")
    assert code == 0
    assert out.splitlines()[-1] == "0 due times of 2 jobs, all accounted for"
    with jobs._service.ledger() as ledger:  # a due time that no trigger explains
        [row] = ledger.jobs("shop", "daily")
        stranger = NewRun(ledger.now() - 100, ledger.now() - 100, None)
        assert ledger.plan([Planned(row.id, row.generation, row.next_due, row.next_due, (stranger,))]) == 1
    code, out, _ = tenure("audit", "daily")
    assert code == 1
    assert "daily: NOT CLEAN" in out
    assert "belongs to no due time" in out
    found = asked("audit", "daily")
    assert (found["clean"], found["jobs"][0]["counts"]) == (False, {"unexpected": 1})


def test_which_application(tenure, jobs, url):
    assert tenure("jobs")[1].count("\n") == 3
    other = Scheduler(url, application="blog", capacity=0)
    other.job(name="publish")(lambda: None)
    other.start()
    code, _, err = tenure("jobs")
    assert code == 2
    assert "2 applications have jobs here: blog, shop. Write --app NAME, or set TENURE_APP." in err
    assert "publish" in tenure("jobs", "--app", "blog")[1]
    assert tenure("jobs", "--app", "nowhere")[:2] == (2, "")


def test_unknown_names_are_a_no_with_the_nearest(tenure, jobs):
    for words in (["pause", "dayly"], ["why", "dayly"], ["runs", "dayly"], ["backfill", "dayly", "-1d", "-0s"]):
        code, out, err = tenure(*words)
        assert (code, out) == (1, "")
        assert "Did you mean 'daily'?" in err
    assert tenure("log", "4711")[0] == 1


def test_the_planner_can_be_asked_to_resign(tenure, running):
    while not running.health().plans:
        threading.Event().wait(0.05)
    code, out, _ = tenure("resign")
    assert code == 0
    assert re.fullmatch(r"asked worker to resign term \d+ of 'tenure planner of shop'\n", out)


def test_looking_needs_tables_and_creates_none(tenure, tmp_path):
    before = sorted(path.name for path in tmp_path.iterdir())
    assert tenure("jobs")[0] in {3, 4}
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_the_load_ahead_hour_by_hour(url, tenure, asked):
    with shop(url, capacity=1) as scheduler:
        for number in range(12):
            scheduler.add("greet", cron("30 2 * * *", tz="Europe/Berlin"), name=f"nightly:{number}", queue="etl")
        code, said = tenure("load")[:2]
        assert code == 0
        assert said.startswith("13 runs may begin in the next 24 h, the most in one minute at ")
        assert re.search(r"\n\w{3} \d\d:\d\d .*12 at \d\d:30", said)
        assert re.search(r"\netl +12 +12 at \w{3} \d\d:30", said)
        assert "No run has been timed yet, so it is not known whether the load fits." in said
        assert "herd: 12 jobs are due in the same minute" in said
        assert "clock change: nightly:0, nightly:1, nightly:2, nightly:3, nightly:4 and 7 more:" in said
        found = asked("load")
        assert (found["jobs"], sum(hour["due"] for hour in found["hours"]), found["slots"]) == (13, 13, 1)
    assert tenure("load")[0] == 1, "no node is alive"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["0 3 * * *", "--tz", "Asia/Seoul"], "At 03:00 every day, Asia/Seoul"),
        (["@daily"], "00:00"),
        (["90m"], "Every 1 h 30 min of elapsed time"),
        (["every 30s"], "Every 30 s of elapsed time"),
    ],
)
def test_when_an_expression_is_due(words, said, capsys):
    assert main(["next", *words, "-n", "3", "--after", "2026-11-15T00:00Z"]) == 0
    out = capsys.readouterr().out
    assert said in out
    assert len(re.findall("2026-11-1[5-8]", out)) >= 3
    assert main(["next", *words, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["times"]) == 10


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["next", "5/15 * * * *"], "a step needs a range"),
        (["next", "0 3 * * *", "--tz", "Mars/Olympus"], "Mars/Olympus"),
        (["next", "0 3 * * *", "--after", "2026-11-15T00:00"], "has no zone"),
        (["run-now", "greet", "--kwargs", "{", "--url", "sqlite:///x.db"], "are not JSON"),
        (["run-now", "greet", "--kwargs", "[7]", "--url", "sqlite:///x.db"], "are not a JSON object"),
        (["run-now", "greet", "--wait", "20", "--url", "sqlite:///x.db"], "'20' has no unit"),
        (["pause", "greet", "--until", "soon", "--url", "sqlite:///x.db"], "'soon' is not a duration"),
        (["start", "nowhere.to:be_found"], "there is no module 'nowhere'"),
        (["start", "json:dumps"], "'dumps' is a function"),
        (["start", "json"], "which scheduler? It has: none"),
        (["start", ":scheduler"], "Write MODULE:SCHEDULER"),
        (["once", "x", "--within", "20", "--url", "sqlite:///x.db", "--", "true"], "'20' has no unit"),
        (["jobs", "--url", "memory://"], "lives inside one process"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(words, message, capsys, tmp_path):
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert message in said.err
    assert len(said.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_once_is_once_and_a_failure_gives_it_back(tenure, tmp_path):
    mark = f"echo ran >> {tmp_path}/ran"
    assert tenure("once", "nightly", "--within", "1h", "--", "sh", "-c", f"{mark}; exit 3")[0] == 3
    code, _, err = tenure("once", "nightly", "--within", "1h", "--", "sh", "-c", mark)
    assert (code, err) == (0, "")
    code, _, err = tenure("once", "nightly", "--within", "1h", "--", "sh", "-c", mark)
    assert (code, "another process has already run" in err) == (0, True)
    assert (tmp_path / "ran").read_text() == "ran\nran\n"
    assert tenure("once", "other", "--", "sh", "-c", mark)[0] == 0
    assert tenure("once", "nightly", "--within", "1ms", "--", "sh", "-c", mark)[0] == 0
    assert (tmp_path / "ran").read_text() == "ran\n" * 4
    assert tenure("once", "new", "--", "no-such-command")[0] == 127
    assert tenure("once", "new", "--", "sh", "-c", "kill -TERM $$")[0] == 128 + 15


def start(place, folder):
    return subprocess.Popen(
        [sys.executable, "-m", "tenure", "start", place, "--lines"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("place", ["app:scheduler", "app:other"])
def test_start_runs_the_scheduler_of_a_module_until_sigterm(place, sqlite_url, tmp_path):
    (tmp_path / "app.py").write_text(APP.format(url=sqlite_url))
    asking = Scheduler(sqlite_url, application="shop", capacity=0)
    with start(place, tmp_path) as process:
        try:
            while not asking.jobs():
                assert process.poll() is None, process.stderr.read()
                threading.Event().wait(0.05)
            assert main(["run-now", "greet", "--url", sqlite_url, "--wait", "20s"]) == 0
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (process.returncode, err) == (0, "")
    if place == "app:scheduler":
        assert "application 'shop', node worker" in out
        assert "greet succeeded" in out


def test_start_ends_with_the_first_signal_also_where_the_module_runs_its_scheduler(sqlite_url, tmp_path):
    (tmp_path / "app.py").write_text(APP.format(url=sqlite_url) + "\nscheduler.run()\n")
    asking = Scheduler(sqlite_url, application="shop", capacity=0)
    with start("app:scheduler", tmp_path) as process:
        try:
            while not asking.jobs():
                assert process.poll() is None, process.stderr.read()
                threading.Event().wait(0.05)
            assert main(["run-now", "greet", "--url", sqlite_url, "--wait", "20s"]) == 0
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "below if __name__ == '__main__'" in err


def test_start_shows_why_a_module_cannot_be_imported(tmp_path):
    (tmp_path / "broken.py").write_text("import json\njson.no_such_thing()\n")
    with start("broken:scheduler", tmp_path) as process:
        _, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "json.no_such_thing()" in err
    assert "tenure: module 'broken' cannot be imported: AttributeError" in err


def test_who_did_what_and_why(tenure, asked, jobs, monkeypatch):
    monkeypatch.setenv("LOGNAME", "ops")
    run = jobs.run_now("greet")
    jobs.pause("greet", by="ada")
    tenure("pause", "daily", "--why", "maintenance", "--until", "2h")
    tenure("cancel", str(run.id), "--by", "bob", "--why", "wrong name")
    tenure("resume", "daily")
    code, out, _ = tenure("actions")
    assert code == 0
    lines = out.splitlines()
    assert re.match(r"at, \w+ +who +what +why +from$", lines[0])
    assert re.match(rf"{CLOCK} +ops +resume daily +command line on \S+$", lines[1])
    assert re.match(rf"{CLOCK} +bob +cancel run {run.id} of greet +wrong name +command line on", lines[2])
    assert re.match(rf"{CLOCK} +ops +pause daily, until {SECOND} +maintenance +command line on", lines[3])
    assert re.match(rf"{CLOCK} +ada +pause greet +worker$", lines[4])
    assert len(lines) == 5, "what the program itself did is no action"
    assert [action["what"] for action in asked("actions", "--job", "daily")] == ["resume", "pause"]
    assert [action["run"] for action in asked("actions", "--by", "bob")] == [run.id]
    assert tenure("actions", "--by", "nobody")[:2] == (0, "no such actions\n")
    assert len(asked("actions", "--limit", "1")) == 1
    assert asked("actions", "--until", "-1h") == []


def test_a_command_of_a_user_without_a_name_is_an_action(asked, tenure, jobs, monkeypatch):
    monkeypatch.setattr("getpass.getuser", lambda: (_ for _ in ()).throw(KeyError("uid not found: 4711")))
    tenure("pause", "daily")
    assert re.fullmatch(r"user \d+", asked("actions")[0]["by"])


@pytest.fixture
def customers(url):
    """Two jobs for each of three customers, and one that belongs to none."""
    scheduler = shop(url)
    scheduler.start()
    for customer in range(1, 4):
        for kind in ("report", "sync"):
            tags = [kind, f"customer-{customer}"]
            scheduler.add("greet", every("1h"), name=f"{kind}:{customer}", tags=tags, queue=kind)
    return scheduler


def test_several_jobs_are_listed_and_nothing_is_done_without_yes(tenure, asked, customers):
    code, out, err = tenure("pause", "report:*")
    assert (code, out.split()) == (2, ["report:1", "report:2", "report:3"])
    assert err == ("tenure: pause: this would pause 3 jobs. Nothing was changed; add --yes to pause them.\n")
    code, out, _ = tenure("remove", "--queue", "sync", "--json")
    assert (code, json.loads(out)) == (2, {"would": "remove", "names": ["sync:1", "sync:2", "sync:3"]})
    assert {job.state for job in customers.jobs()} == {"active"}


def test_several_jobs_by_pattern_tag_and_queue(tenure, asked, customers):
    assert tenure("pause", "--tag", "customer-2", "--why", "has not paid", "--yes")[:2] == (0, "paused 2 jobs\n")
    paused = [job for job in customers.jobs() if job.state == "paused"]
    assert [(job.name, job.paused_why) for job in paused] == [("report:2", "has not paid"), ("sync:2", "has not paid")]
    assert tenure("pause", "--tag", "customer-2", "--yes") == (
        0,
        "",
        "tenure: there is nothing to pause with tag 'customer-2'\n",
    )
    assert tenure("resume", "sync:?", "--yes")[:2] == (0, "resumed 1 job\n")
    assert tenure("run-now", "*", "--queue", "sync", "--yes")[:2] == (0, "requested 3 runs\n")
    assert [job["name"] for job in asked("pause", "*:1", "--tag", "report", "--yes")] == ["report:1"]
    code, out, err = tenure("cancel", "--queue", "sync")
    assert (code, len(out.splitlines())) == (2, 3)
    assert "this would cancel 3 runs" in err
    assert tenure("cancel", "sync:*", "--yes")[:2] == (0, "cancelled 3 runs\n")
    assert tenure("remove", "report:*", "--yes")[:2] == (0, "removed 3 jobs\n")
    assert [job.name for job in customers.jobs()] == ["daily", "greet", "sync:1", "sync:2", "sync:3"]
    done = [(action["what"], action["target"]) for action in asked("actions", "--job", "report:2")]
    assert done == [("remove", "report:2"), ("pause", "report:2")]


def test_jobs_that_are_not_there_and_no_jobs_at_all(tenure, customers):
    code, _, err = tenure("pause", "--tag", "customer-9", "--yes")
    assert (code, err) == (1, "tenure: application 'shop' has no job with tag 'customer-9'.\n")
    code, _, err = tenure("pause", "r*", "--queue", "sync", "--yes")
    assert (code, "that matches 'r*', on queue 'sync'" in err) == (1, True)
    code, _, err = tenure("remove", "--yes")
    assert (code, err.startswith("tenure: remove: which jobs? Write a name, a pattern")) == (2, True)


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("", 1), ("no", 1)])
def test_a_person_at_a_terminal_is_asked(tenure, customers, monkeypatch, answer, code):
    monkeypatch.setattr("tenure.cli.selection.terminal", lambda: True)
    monkeypatch.setattr("builtins.input", lambda question: answer if question == "pause 3 jobs? [y/N] " else "?")
    assert tenure("pause", "report:*")[0] == code
    assert customers.find_job("report:1").state == ("active" if code else "paused")


def test_runs_of_several_jobs_are_waited_for(tenure, url):
    with shop(url, capacity=4) as scheduler:
        scheduler.add("greet", None, name="hi:1", tags=["hi"])
        scheduler.add("greet", None, name="hi:2", kwargs={"name": "nobody"}, tags=["hi"])
        code, out, _ = tenure("run-now", "--tag", "hi", "--yes", "--wait", "20s")
        assert code == 1
        [failed, total] = out.splitlines()
        assert re.search(r"'hi:2' .*: failed .*: ValueError: nobody is there. The whole error: tenure log \d+$", failed)
        assert total == "requested 2 runs, 1 succeeded"


def test_cancelling_a_run_that_is_over(tenure, running):
    run = running.run_now("greet")
    eventually(lambda: running.find_run(run.id).state == "succeeded")
    code, out, _ = tenure("cancel", str(run.id))
    assert (code, out.endswith(" on worker. It was over already.\n")) == (1, True)
    waits = running.pause("greet") and running.run_now("greet")
    assert tenure("cancel", str(waits.id))[0] == 0
    code, out, _ = tenure("cancel", str(waits.id))
    assert (code, out.endswith("It was over already.\n")) == (1, True)


def test_the_application_may_come_from_the_environment(tenure, asked, jobs, url, monkeypatch):
    blog = Scheduler(url, application="blog", capacity=0)
    blog.job(name="post")(lambda: None)
    blog.start()
    blog.stop()
    monkeypatch.setenv("TENURE_APP", "blog")
    assert [job["name"] for job in asked("jobs")] == ["post"]
    assert [job["name"] for job in asked("jobs", "--app", "shop")] == ["daily", "greet"]
    monkeypatch.setenv("TENURE_APP", "blogg")
    code, _, err = tenure("jobs")
    assert (code, err) == (
        2,
        "tenure: TENURE_APP: no application 'blogg' has jobs here; there are: blog, shop. Did you mean 'blog'?\n",
    )
    code, _, err = tenure("status", "--app", "nope")
    assert (code, err) == (2, "tenure: --app: no application 'nope' has jobs here; there are: blog, shop.\n")


def test_without_a_store_it_says_which_the_command_line_can_see(capsys):
    assert main(["status"]) == 2
    err = capsys.readouterr().err
    assert "--url sqlite:///jobs.db" in err
    assert "memory:" not in err


@pytest.mark.parametrize(("word", "meant"), [("stauts", "`tenure status`"), ("pasue", "`tenure pause`")])
def test_a_mistyped_command(capsys, word, meant):
    with pytest.raises(SystemExit) as ended:
        main([word, "--json"])
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert f"there is no command {word!r}. Did you mean {meant}" in err
    assert len(err) < 400, "not all commands are listed"


def test_advice_for_a_shell_names_no_python_call(tenure, jobs):
    tenure("remove", "daily")
    for words in (["why", "nothing at all"], ["pause", "daily"], ["show", "dayly"], ["restore", "greet"]):
        err = tenure(*words)[2]
        assert err
        assert "scheduler." not in err
        assert "()" not in err


def test_only_the_names(tenure, customers):
    assert tenure("jobs", "--names")[1].split() == [job.name for job in customers.jobs()]
    assert tenure("jobs", "sync:*", "--names")[1].split() == ["sync:1", "sync:2", "sync:3"]
    customers.pause("sync:2")
    assert tenure("jobs", "--paused", "--names")[1].split() == ["sync:2"]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("tenure pause rep", ["report:1", "report:2", "report:3"]),
        ("tenure show report:", ["1", "2", "3"]),
        ("tenure why report:2", ["2"]),
        ("tenure runs --state fa", ["failed"]),
        ("tenure jobs --sort n", ["name", "next"]),
        ("tenure actions --job nothing", []),
    ],
)
def test_bash_completes_names_of_jobs_and_values(customers, url, line, offered, capsys):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    words = " ".join(f"'{word}'" for word in re.findall(r":|[^\s:]+", line)) + (
        " ''" if line.endswith((" ", ":")) else ""
    )
    ask = f"""
tenure() {{ {sys.executable} -m tenure "$@"; }}
{script}
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}
_tenure; printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    environment = {**os.environ, "TENURE_URL": url}
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True, env=environment)
    assert [word for word in done.stdout.split() if not word.startswith("-")] == offered


def test_argcomplete_knows_names_of_jobs(customers, url, monkeypatch):
    from tenure.cli import completion, parser

    monkeypatch.setenv("TENURE_URL", url)
    monkeypatch.setattr(completion, "PATIENCE", 30.0)
    assert completion.job_names("sync:") == ["sync:1", "sync:2", "sync:3"]
    built = parser.build()
    completion.complete_jobs(built)
    [commands] = [action for action in built._actions if action.dest == "subcommand"]
    [job] = [action for action in commands.choices["pause"]._actions if action.dest == "job"]
    assert job.completer is completion.job_names
    monkeypatch.setenv("TENURE_URL", "postgresql://nobody@127.0.0.1:1/x")
    assert completion.job_names("") == []


def test_a_calm_application_is_told_in_a_few_lines(tenure, running):
    eventually(lambda: tenure("status")[1].startswith("'shop' is fine: worker plans 2 jobs"), what="a node that plans")
    code, out, _ = tenure("status")
    assert code == 0
    assert out.splitlines()[0] == "'shop' is fine: worker plans 2 jobs, and nothing needs attention."
    assert "\033" not in out
    assert len(out.splitlines()) <= 12


def test_the_status_groups_failures_by_their_errors_and_says_what_to_type(tenure, asked, troubled):
    for customer in (1, 3):
        troubled.update(f"report:{customer}", kwargs={"name": "nobody"})
        run = troubled.run_now(f"report:{customer}")
        eventually(lambda run=run: troubled.find_run(run.id).finished_at is not None)
    code, out, _ = tenure("status")
    lines = out.splitlines()
    assert code == 0, "failures alone are no reason to wake anyone"
    assert lines[0] == "'shop' needs attention: 1 job is orphaned, 3 jobs fail."
    assert "gone is orphaned: no live node has its function 'gone'." in lines
    at = lines.index("3 jobs fail:")
    assert re.match(r"  report:2, report:1, report:3: up to 2 runs in a row, since \d+ s ago$", lines[at + 1])
    assert lines[at + 2] == "    ValueError: nobody is there"
    hint = re.match(r"    tenure log (\d+)$", lines[at + 3])
    assert "ValueError: nobody is there" in tenure("log", hint[1])[1]
    found = asked("status")
    assert found["verdict"] == lines[0]
    assert [(one["job"], one["failures"]) for one in found["failing"]] == [
        ("report:2", 2),
        ("report:1", 1),
        ("report:3", 1),
    ]
    troubled.update("report:2", kwargs={})
    run = troubled.run_now("report:2")
    eventually(lambda: troubled.find_run(run.id).state == "succeeded")
    assert "failed in the last 24 h, and has succeeded since: report:2" in tenure("status")[1]
    assert asked("status")["recovered"] == ["report:2"]


def test_the_status_lists_runs_for_later_among_what_is_next(tenure, asked, jobs):
    jobs.run_at("greet", in_="5s")
    jobs.run_at("greet", in_="9s")
    jobs.add("greet", None, name="paused")
    jobs.run_at("paused", in_="1s")
    jobs.pause("paused")
    assert [one["job"] for one in asked("status")["next"]][:3] == ["greet", "greet", "daily"]
    told = [line.rpartition("  ")[2] for line in tenure("status")[1].splitlines()]
    assert told[-5:-2] == ["greet", "greet", "daily"]


def test_all_that_is_shown_of_a_job_is_in_its_zone(tenure, asked, jobs, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        jobs.backfill("daily", "2026-11-01T00:00Z", "2026-11-02T00:00Z", dry_run=False)
        out = tenure("show", "daily")[1]
        assert re.search(r"^next +\d{4}-\d\d-\d\d 03:00:00 KST$", out, re.MULTILINE)
        assert re.search(r"^run +for, Asia/Seoul +state", out, re.MULTILINE)
        assert re.search(r"^\d+ +\S+ 03:00 +pending", out, re.MULTILINE)
        assert "changed, Asia/Seoul" in out
        assert {one["at"][-6:] for one in asked("show", "daily")["changes"]} == {"+09:00"}
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_retried_run_is_on_no_node_until_it_begins(tenure, asked, troubled):
    troubled.pause("report:2")
    (run, *_) = [run for run in asked("runs", "report:2") if run["state"] == "failed"]
    assert run["node"] == "worker"
    assert tenure("retry", str(run["id"]))[1].startswith(f"run {run['id']} of 'report:2' for ")
    (again,) = asked("runs", "report:2", "--state", "pending")
    assert (again["id"], again["node"], again["attempt"]) == (run["id"], "", 1)
    assert " on worker" not in tenure("retry", str(run["id"]))[2]
    assert asked("show", str(run["id"]))["attempts"][0]["node"] == "worker"


def test_the_status_of_a_narrow_terminal_is_wrapped(tenure, troubled, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setenv("NO_COLOR", "1")
    out = tenure("status")[1]
    assert all(len(line) <= 50 for line in out.splitlines() if "tenure.db" not in line and "postgres" not in line)
    monkeypatch.delenv("NO_COLOR")
    assert re.sub("\033\\[\\d+m", "", tenure("status")[1]).splitlines()[0] == out.splitlines()[0]


def test_an_audit_lists_findings_first_and_healthy_jobs_on_request(tenure, asked, jobs):
    jobs.add("greet", every("1h"), name="paused")
    jobs.pause("paused")
    code, out, _ = tenure("audit", "--since", "-1h")
    assert code == 0
    assert out.splitlines()[-2:] == [
        "3 healthy jobs not listed: --all lists them",
        "0 due times of 3 jobs, all accounted for",
    ]
    assert tenure("audit", "--since", "-1h", "--all")[1].count("clean.") == 3
    assert tenure("audit", "daily", "--since", "-1h")[1].count("clean.") == 1


# One run


def test_a_run_tells_its_whole_story(tenure, asked, running):
    out = tenure("run-now", "greet", "--kwargs", '{"name": "nobody"}', "--by", "ops", "--wait", "20s")[1]
    number = re.match(r"run (\d+) of 'greet' .*: failed", out)[1]
    eventually(lambda: asked("log", number)["log"], what="the line")
    run = asked("show", number)
    assert (run["state"], run["arguments"], run["result"], run["progress"]) == (
        "failed",
        {"name": "nobody"},
        None,
        None,
    )
    (attempt,) = run["attempts"]
    assert (attempt["number"], attempt["outcome"], attempt["node"]) == (1, "failed", "worker")
    assert attempt["error"].endswith("ValueError: nobody is there")
    assert [line["text"] for line in run["log"]] == ["hello nobody"]
    code, story, _ = tenure("show", number)
    assert code == 0
    first, *lines = story.splitlines()
    assert first == f"run {number} of 'greet': failed"
    told = [line.split("  ")[1] for line in lines if re.match(r"  \w+( \w+)?  ", line)]
    assert [word for word in told if word in {"key", "due", "kind", "arguments", "claimed", "began", "ended"}] == [
        "key",
        "due",
        "kind",
        "arguments",
        "claimed",
        "began",
        "ended",
    ]
    assert any(re.match(r"attempt 1 on worker: failed after ", line) for line in lines)
    assert "  ValueError: nobody is there" in lines
    assert lines[-1].endswith("#1  hello nobody")
    assert max(len(line) for line in lines if "File" not in line and "^^" not in line) <= 80


def test_a_run_is_found_by_its_key_and_a_job_by_its_name(tenure, asked, jobs):
    number = asked("run-now", "greet", "--key", "order-7")["id"]
    assert asked("show", "order-7")["id"] == asked("show", "order-7", "--job", "greet")["id"] == number
    assert asked("log", "order-7")["id"] == number
    assert "no attempt has begun" in tenure("show", str(number))[1]
    assert asked("show", "greet")["name"] == "greet"
    other = asked("run-now", "daily", "--key", "order-7")["id"]
    code, _, err = tenure("show", "order-7")
    assert (code, "is the key of runs of several jobs: 'daily', 'greet'" in err) == (2, True)
    assert asked("show", "order-7", "--job", "daily")["id"] == other
    assert tenure("show", "order-7", "--job", "nobody")[0] == 1
    assert tenure("show", "999999")[0] == 1
    assert tenure("log", "no such key")[0] == 1


def test_a_key_of_digits_is_meant_where_the_job_is_named(asked, jobs):
    first = asked("run-now", "greet", "--key", "7")["id"]
    assert asked("show", "7", "--job", "greet")["id"] == first
    assert asked("show", str(first))["key"] == "7"


def test_a_log_is_followed_until_the_run_has_ended(url, tenure, jobs):
    go = threading.Event()
    scheduler = Scheduler(url, application="shop", label="worker", heartbeat_every=0.3, attempt_timeout=1.0, ttl=6.0)

    @scheduler.job(name="greet")
    def greet(run: Run, name: str = "you") -> None:
        run.log("first")
        run.progress(1, 2, "half")
        go.wait(30)
        run.log("last")
        if name == "nobody":
            raise ValueError("nobody is there")

    with scheduler:
        for name, code in (("Ada", 0), ("nobody", 1)):
            go.clear()
            run = scheduler.run_now("greet", kwargs={"name": name})
            eventually(lambda: scheduler.log(run.id) == ["first"], within=10)  # noqa: B023 - asked at once
            later = threading.Timer(1.5, go.set)
            later.start()
            ended, out, err = tenure("log", "-f", str(run.id))
            assert ended == code, (out, err)
            said = [line.partition("#1  ")[2] for line in out.splitlines()[:2]]
            assert said == ["first", "last"]
            assert "1 of 2 (50 %), half" in err
            assert out.endswith("ValueError: nobody is there\n") == (name == "nobody")


def test_what_runs_says_for_how_long_and_how_far_it_is(url, tenure, jobs):
    go = threading.Event()
    scheduler = Scheduler(url, application="shop", label="worker", heartbeat_every=0.3, attempt_timeout=1.0, ttl=6.0)

    @scheduler.job(name="greet")
    def greet(run: Run) -> None:
        run.progress(180, 900, "invoices")
        go.wait(30)

    with scheduler:
        run = scheduler.run_now("greet")
        eventually(lambda: scheduler.find_run(run.id).progress, within=10)
        out = tenure("runs", "--state", "running")[1]
        assert re.search(r"greet +.* running .* so far +worker +1 +180 of 900 \(20 %\), invoices\n", out)
        assert re.search(r"running +greet .* so far on worker: 180 of 900 \(20 %\), invoices\n", tenure("status")[1])
        assert re.search(r"attempt 1 on worker: running for ", tenure("show", str(run.id))[1])
        go.set()


def test_an_option_before_the_command_is_named(capsys):
    for words, meant in (
        (
            ["--app", "nope", "status"],
            "'--app' is an option, and options stand behind the command: `tenure status --app nope`",
        ),
        (["--json"], "'--json' is an option, and options stand behind the command: `tenure COMMAND [options]`"),
    ):
        with pytest.raises(SystemExit):
            main(words)
        said = capsys.readouterr().err
        assert meant in said
        assert "invalid choice" not in said


@pytest.mark.usefixtures("jobs")
def test_a_backfill_takes_its_span_as_options_too(tenure, capsys):
    code, spelt, _ = tenure("backfill", "daily", "-3d", "-0s")
    assert code == 0
    assert tenure("backfill", "daily", "--since", "-3d")[:2] == (0, spelt)
    assert tenure("backfill", "daily", "--since", "-3d", "--until", "-0s")[:2] == (0, spelt)
    assert "Write one" in tenure("backfill", "daily", "-3d", "--since", "-2d")[2]
    assert tenure("backfill", "daily", "--until", "-0s")[0] == 2
    with pytest.raises(SystemExit):
        tenure("backfill", "daily", "--sinse", "-3d")
    assert "usage: tenure backfill" in capsys.readouterr().err


def test_runs_of_a_pattern_of_jobs(tenure, asked, jobs, url):
    for name in ("flap:1", "flap:2", "other"):
        jobs.add("greet", every("1h"), name=name)
    numbers = [jobs.run_now(name).id for name in ("flap:1", "flap:2", "flap:1")]
    jobs.run_now("other")
    later = jobs.run_at("flap:2", in_="2h").id
    listed = [(run["id"], run["job"]) for run in asked("runs", "flap:*")]
    assert listed == [(later, "flap:2"), (numbers[2], "flap:1"), (numbers[1], "flap:2"), (numbers[0], "flap:1")]
    assert [run["id"] for run in asked("runs", "flap:*", "--limit", "1", "--until", "-0s")] == [numbers[2]]
    assert [run.job for run in jobs.runs("fl?p:2", until="-0s")] == ["flap:2"]
    assert tenure("runs", "nothing*")[:2] == (0, "no such runs\n")
