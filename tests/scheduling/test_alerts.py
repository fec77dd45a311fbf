"""Alerts of real processes to real HTTP servers: told at least once, under one id, and no run waits for it."""

import asyncio
import threading
import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from harness import constants
from harness.scenes import APPLICATION, stage
from harness.scratch import eventually
from receiver import Receiver, receiver
from tenure import AsyncScheduler, Scheduler
from tenure.alerts import AlertNews, CheckIn, NotAccepted, Webhook
from tenure.alerts.check_ins import PingState, RunPing
from tenure.alerts.sinks import Sink
from tenure.core.alerts import NAMESPACE
from tenure.events import RunFailed
from tenure.scheduling.alert_sender import MISSES, AlertSender
from tenure.scheduling.check_in_sender import _Monitor
from tenure.util.clock import boottime

QUICK = {"LOOK_EVERY": 0.3, "TELL_EVERY": 0.2, "LOOK_RESTS": 1.0, "PAUSES": (0.05, 0.05), "AGAIN_IN": 0.3}
FAILING = [{"name": "bad", "every": 1, "body": "fails"}]
STEADY = [{"name": "good", "every": 1, "body": "note"}]


@pytest.fixture
def make(tmp_path):
    with stage(tmp_path) as make:
        yield make


def scene_of(make, url, server, jobs, *, waits=None, **options):
    told = {"webhook": {"url": server.url, **options.pop("webhook", {})}, "rules": {"orphaned": "1s"}}
    return make(url, jobs=jobs, constants={**QUICK, **(waits or {})}, alerts=told, **options)


def kinds(server: Receiver) -> Counter[str]:
    return Counter(f"{event} {kind} {target}".rstrip() for event, kind, target in server.told())


def messages(scene, kind="failing"):
    """The messages of the ledger: event, id, whether it was sent, and how many tries failed."""
    with scene.scheduler._service.ledger() as ledger:
        rows = [row for row in ledger.alert_history(APPLICATION, 100) if row.kind == kind]
        found = ledger.alert_messages(APPLICATION, [row.id for row in rows])
    return [(one.event, one.key, one.sent_at is not None, one.tries) for one in found]


def all_sent(scene):
    return all(sent for *_, sent, _ in messages(scene))


def mend(scene):
    for worker in scene.alive:
        worker.say(do="go")


@pytest.mark.timeout(120)
def test_a_cluster_of_five_tells_each_event_once(url, make):
    with receiver() as server:
        scene = scene_of(make, url, server, FAILING).start(5)
        server.wait(lambda: kinds(server)["opened failing bad"])
        mend(scene)
        server.wait(lambda: kinds(server)["closed failing bad"])
        scene.eventually(lambda: all_sent(scene))
        for worker in scene.alive:
            scene.retire(worker)
        assert kinds(server) == {"opened failing bad": 1, "closed failing bad": 1}
        opened, closed = server.received
        assert opened.json["data"]["alert"] == closed.json["data"]["alert"]
        assert [one.headers["webhook-id"] for one in server.received] == [key for _, key, _, _ in messages(scene)]
        assert {(sent, tries) for *_, sent, tries in messages(scene)} == {(True, 0)}


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("failpoint", "times"), [("claim_messages:after", 1), ("end_message:before", 2)])
def test_a_message_whose_sender_is_killed_arrives_under_the_same_id(url, make, failpoint, times):
    """Killed between claim and sending; and between sending and noting it, when it comes twice."""
    with receiver() as server:
        short = {"CLAIM_LASTS": 3.0, "LEAST_LEFT": 0.5}
        scene = scene_of(make, url, server, FAILING, waits=short)
        first = scene.add(env={"TENURE_TEST_FAILPOINT": failpoint})
        scene.fell(first)
        assert len(server.received) == times - 1
        scene.add()
        server.wait(lambda: kinds(server)["opened failing bad"] == times)
        scene.eventually(lambda: all_sent(scene))
        [key] = {key for event, key, _, _ in messages(scene) if event == "opened"}
        found = [one for one in server.received if one.json["data"]["kind"] == "failing"]
        assert [one.headers["webhook-id"] for one in found] == [key] * times
        assert [one.json["data"]["label"] for one in found] == ["w0", "w1"][-times:]


@pytest.mark.timeout(120)
def test_a_sink_that_refuses_is_told_again_under_the_same_id(url, make):
    with receiver(500, 500, 500, 503) as server:
        scene = scene_of(make, url, server, FAILING).start(2)
        server.wait(lambda: len(server.received) == 5)
        scene.eventually(lambda: all_sent(scene))
        assert [(event, sent, tries) for event, _, sent, tries in messages(scene)] == [("opened", True, 1)]
        assert len({one.headers["webhook-id"] for one in server.received}) == 1
        assert "alert sink 'webhook' did not accept '[scene] alert opened: failing bad'" in scene.stories()


@pytest.mark.timeout(120)
def test_a_sink_that_hangs_delays_no_run_and_no_beat(url, make):
    with receiver(hold=True) as server:
        jobs = [*FAILING, {"name": "good", "every": 1, "copies": 5, "body": "note"}]
        scene = scene_of(make, url, server, jobs, webhook={"timeout": 15}).start(2)
        server.wait(lambda: server.received)
        since = scene.now()
        scene.eventually(lambda: scene.now() > since + 5)
        until = scene.now()
        assert len(server.received) == 1, "it hangs"
        scene.settled(until)
        good = [row for row in scene.rows(since + 1, until - 1) if row.name != "bad"]
        assert len(good) >= 15
        assert {(row.state.value, row.attempt, row.losses) for row in good} == {("succeeded", 1, 0)}
        assert not scene.query(f"SELECT id FROM {scene.prefix}node WHERE state = 'dead'")
        for worker in scene.alive:
            scene.retire(worker)


@pytest.mark.timeout(180)
def test_while_only_the_planner_is_frozen_nothing_else_is_told(url, make):
    with receiver() as server:
        jobs = [{**STEADY[0], "policy": {"expect_within": 20, "overlap": "allow"}}]
        scene = scene_of(make, url, server, jobs, ttl=2.0).start(5)
        planner = scene.planner()
        scene.freeze(planner)
        server.wait(server.told, within=60)
        since = scene.now()
        scene.eventually(lambda: len(scene.rows(since)) > 10, within=60)
        assert set(kinds(server)) == {f"opened node_silent {planner.label}"}
        scene.thaw(planner)
        server.wait(lambda: kinds(server)[f"closed node_silent {planner.label}"], within=60)
        assert kinds(server) == {f"opened node_silent {planner.label}": 1, f"closed node_silent {planner.label}": 1}


@pytest.mark.timeout(120)
def test_a_job_is_orphaned_once_the_nodes_with_its_function_are_gone(url, make):
    with receiver() as server:
        scene = scene_of(make, url, server, [{"name": "elsewhere", "every": 1, "body": "note"}])
        scene.add(jobs=STEADY)
        having = [scene.add(), scene.add()]
        scene.eventually(lambda: any(row.name == "elsewhere" for row in scene.rows()))
        scene.retire(having[0])
        assert server.told() == []
        scene.retire(having[1])
        server.wait(server.told)
        assert server.told()[0] == ("opened", "orphaned", "elsewhere")
        assert server.of("opened")[0]["text"].startswith("'elsewhere' is orphaned: no live node has its function")
        scene.add()
        server.wait(lambda: ("closed", "orphaned", "elsewhere") in server.told())


@pytest.mark.timeout(120)
def test_a_node_that_cannot_read_the_database_says_so_itself(database, proxy, make):
    with receiver() as server:
        scene = scene_of(
            make, proxy.url(database.rpartition("/")[2]), server, STEADY, waits={"ANSWER_EVERY": 0.5}
        ).start(1)
        scene.eventually(scene.rows)
        proxy.hold()
        server.wait(server.told)
        [opened] = server.of("opened")
        assert (opened["kind"], opened["target"], opened["label"]) == ("no_answer", "w0", "w0")
        assert "node w0 has not been able to read the database since" in opened["text"]
        proxy.heal()
        server.wait(lambda: server.of("closed"))
        [closed] = server.of("closed")
        assert (closed["kind"], closed["alert"]) == ("no_answer", opened["alert"])
        assert closed["id"] != opened["id"]


# In one process


class Held(Sink):
    """Accepts or refuses a message once it may."""

    def __init__(self, name: str, *, accepts: bool = True) -> None:
        super().__init__(name)
        self.may, self.accepts, self.told = threading.Event(), accepts, []

    def send(self, news: AlertNews) -> None:
        assert self.may.wait(30)
        self.told.append((news.event, news.alert))
        if not self.accepts:
            raise NotAccepted("not now")


def test_what_was_being_told_when_the_database_answered_again_is_closed_too(monkeypatch):
    quick(monkeypatch, TRIES=1)
    slow, refuses = Held("slow"), Held("refuses", accepts=False)
    sender = AlertSender([slow, refuses], "shop", "me", lambda: None)

    def look(answers):
        sender.look(answers, lambda: "it is away")

    for _ in range(MISSES):
        look(0)
    assert sender.free == ()
    for answers in (1, 2):
        look(answers)
    for sink in (slow, refuses):
        sink.may.set()
    eventually(lambda: len(sender.free) == 2)
    look(3)
    eventually(lambda: len(sender.free) == 2)
    [(opened, alert), (closed, same)] = slow.told
    assert (opened, closed, alert) == ("opened", "closed", same)
    assert [event for event, _ in refuses.told] == ["opened"], "it does not know that there was something"
    for _ in range(MISSES):
        look(3)
    eventually(lambda: len(slow.told) == 3)
    assert slow.told[2][0] == "opened"
    sender.stop(0.0)


def test_a_node_remembers_so_many_jobs_that_checked_in(monkeypatch):
    quick(monkeypatch, JOBS_KEPT=2)
    due = datetime(2026, 11, 19, 3, tzinfo=UTC)

    def fail(job, second):
        monitor.put(RunPing(PingState.FAIL, "shop", job, "k", 1, due + timedelta(seconds=second)))

    with receiver() as server:
        monitor = _Monitor(CheckIn(f"{server.url}/{{job}}", style="plain"), "me")
        monitor.put(RunPing(PingState.OK, "shop", "ok", "k", 1, due))
        for job in ("a", "b", "a", "c"):
            fail(job, 0)
        assert [*monitor._told] == ["a", "c"]
        monitor.put(RunPing(PingState.OK, "shop", "a", "k", 1, due + timedelta(seconds=1)))
        assert monitor._told["a"] == (due.timestamp(), True), "it has checked in for this minute"
        fail("b", 1)
        assert [*monitor._told] == ["c", "b"]
        assert monitor.thread.finish(boottime() + 30)
        monitor.thread.stop()


def quick(monkeypatch, **more):
    constants.give(monkeypatch.setattr, **{**QUICK, **more})


def test_a_function_is_told_and_may_refuse(any_url, monkeypatch):
    quick(monkeypatch, TRIES=1)
    scheduler, told, healed = Scheduler(any_url, application="shop", label="me"), [], threading.Event()

    @scheduler.every("0.2s", overlap="allow")
    def bad() -> None:
        if not healed.is_set():
            raise ValueError("T0PSECRET")

    def mail(news: AlertNews) -> None:
        told.append(news)
        if len(told) == 1:
            raise NotAccepted("the mail server is away")
        if len(told) == 2:
            raise KeyError("T0PSECRET")

    scheduler.alert_to(mail, failing=2)
    with scheduler:
        eventually(lambda: len(told) == 1 and scheduler.health().notes)
        assert scheduler.health().notes == ("alert sink 'mail' does not accept messages: the mail server is away",)
        [alert] = scheduler.alerts()
        eventually(lambda: len(told) == 3 and not scheduler.alerts()[0].untold)
        [alert] = scheduler.alerts()
        assert (alert.kind, alert.target, alert.open) == ("failing", "bad", True)
        [message] = alert.messages
        assert (message.sink, message.event, message.tries, message.error) == ("mail", "opened", 2, "")
        assert len({news.id for news in told}) == 1
        assert told[0].title == "[shop] alert opened: failing bad"
        healed.set()
        eventually(lambda: told[-1].event == "closed")
        eventually(lambda: not scheduler.alerts()[0].open)
        assert alert.id == told[-1].alert == scheduler.alerts()[0].as_dict()["id"]
        assert scheduler.health().notes == ()


def test_the_error_of_a_function_is_named_and_not_quoted(any_url, monkeypatch, caplog):
    quick(monkeypatch, TRIES=1, AGAIN_IN=60.0)
    scheduler = AsyncScheduler(any_url)

    @scheduler.every("0.2s", overlap="allow")
    def bad() -> None:
        raise ValueError

    def mail(news: AlertNews) -> None:
        raise KeyError("https://hooks.example/T0PSECRET")

    scheduler.alert_to(mail, failing=1)

    async def watch():
        async with scheduler:
            while True:
                found = await scheduler.alerts()
                if found and found[0].messages and found[0].messages[0].error:
                    return found
                await asyncio.sleep(0.05)

    [alert, *_] = asyncio.run(watch())
    assert alert.messages[0].error == "it raised KeyError"
    assert "T0PSECRET" not in caplog.text


def test_nothing_looks_and_no_thread_begins_without_alert_to(any_url, monkeypatch):
    quick(monkeypatch)
    scheduler = Scheduler(any_url)
    with scheduler:
        assert scheduler.alerts() == []
        assert not [thread.name for thread in threading.enumerate() if "alerts" in thread.name]


# Check-ins


def pings(server: Receiver, job: str) -> list[str]:
    return [one.path.removeprefix(f"/key/{job}") for one in list(server.received) if one.path.startswith(f"/key/{job}")]


def check_in(server, **more):
    return {"check_in": {"url": f"{server.url}/key/{{job}}", "style": "healthchecks", **more}}


@pytest.mark.timeout(120)
def test_runs_check_in_when_they_begin_and_when_they_end(url, make):
    jobs = [
        {"name": "works", "body": "note", "for": 1.5},
        {"name": "fails", "body": "fails", "for": 1.5},
        {"name": "quick", "body": "note"},
    ]
    with receiver() as server:
        scene = make(url, jobs=jobs, alerts=check_in(server), constants={"BEGUN_EVERY": 0.1})
        scene.start(2)
        for job in ("works", "fails", "quick"):
            scene.scheduler.run_now(job, key="k")
        server.wait(lambda: len(server.received) >= 5)
        assert (pings(server, "works"), pings(server, "fails")) == (["/start", ""], ["/start", "/fail"])
        assert pings(server, "quick")[-1] == ""
        for job in ("works", "fails"):
            found = [one for one in server.received if one.path.startswith(f"/key/{job}")]
            assert {one.query["rid"] for one in found} == {rid(job, "k", 1)}
            assert found[-1].body == (b"ValueError: not yet" if job == "fails" else b"")


def rid(job, key, attempt):
    return str(uuid.uuid5(NAMESPACE, f"{APPLICATION}\n{job}\n{key}\n{attempt}"))


@pytest.mark.timeout(120)
def test_a_lost_run_is_told_as_failed_by_another_node_under_the_id_of_its_start(url, make):
    jobs = [{"name": "long", "body": "note", "for": 60, "policy": {"on_lost": "fail"}}]
    with receiver() as server:
        scene = make(url, jobs=jobs, alerts=check_in(server), constants={"BEGUN_EVERY": 0.1}).start(2)
        scene.scheduler.run_now("long", key="k")
        server.wait(lambda: server.received)
        [mine] = {line.label for line in scene.lines}
        scene.kill(next(worker for worker in scene.workers if worker.label == mine))
        server.wait(lambda: len(server.received) == 2)
        assert pings(server, "long") == ["/start", "/fail"]
        assert {one.query["rid"] for one in server.received} == {rid("long", "k", 1)}


@pytest.mark.timeout(120)
def test_a_missed_due_time_is_told_as_failed(url, make):
    jobs = [{"name": "tick", "every": 3, "body": "note", "policy": {"grace": 1, "missed": "skip"}}]
    with receiver() as server:
        scene = make(url, jobs=jobs, alerts=check_in(server))
        scene.retire(scene.add())
        before = scene.now()
        scene.eventually(lambda: scene.now() > before + 5)
        scene.add()
        server.wait(lambda: any(one.path == "/key/tick/fail" for one in server.received))
        [failed, *_] = [one for one in server.received if one.path == "/key/tick/fail"]
        assert b"no node began it in time" in failed.body


@pytest.mark.timeout(120)
def test_a_job_that_runs_every_second_checks_in_once_a_minute_and_when_it_begins_to_fail(url, make):
    jobs = [{"name": "good", "every": 1, "body": "note"}, {"name": "bad", "every": 1, "body": "fails"}]
    with receiver() as server:
        scene = make(url, jobs=jobs, alerts=check_in(server)).start(1)
        scene.eventually(lambda: len([row for row in scene.rows() if row.state.final]) >= 10)
        scene.retire(scene.workers[0])
        assert Counter(one.path for one in server.received) == {"/key/good": 1, "/key/bad/fail": 1}


@pytest.mark.timeout(120)
def test_a_monitor_that_hangs_delays_no_run(url, make):
    jobs = [{"name": "good", "every": 1, "copies": 5, "body": "note"}]
    with receiver(hold=True) as server:
        scene = make(url, jobs=jobs, alerts=check_in(server, timeout=15)).start(1)
        server.wait(lambda: server.received)
        since = scene.now()
        scene.eventually(lambda: len([row for row in scene.rows(since) if row.state.final]) >= 15)
        assert len(server.received) == 1
        scene.retire(scene.workers[0])


@pytest.mark.timeout(120)
def test_whichever_node_plans_pings_for_all(url, make):
    with receiver() as server:
        told = {"ping": {"url": f"{server.url}/alive", "every": 0.3}}
        scene = make(url, jobs=STEADY, alerts=told, constants={"LEAST_EVERY": 0.1}).start(2)
        server.wait(lambda: len(server.received) >= 2)
        scene.kill(scene.planner())
        before = len(server.received)
        scene.planner()
        server.wait(lambda: len(server.received) >= before + 3)
        assert {(one.method, one.path) for one in server.received} == {("GET", "/alive")}


def test_a_stop_notes_what_was_sent(url, monkeypatch):
    """Or another node would send it again."""
    quick(monkeypatch)
    with receiver(hold=True) as server:
        scheduler = Scheduler(url, application="shop")

        @scheduler.every("0.2s", overlap="allow")
        def bad() -> None:
            raise ValueError

        scheduler.alert_to(Webhook(server.url), failing=1)
        scheduler.start()
        server.wait(lambda: server.received)
        threading.Timer(0.3, server.release).start()
        scheduler.stop()
        [alert, *_] = scheduler.alerts()
        assert alert.untold == ()
        scheduler.close()


def test_a_child_that_is_forked_sends_nothing_of_its_parent(sqlite_url):
    scheduler = Scheduler(sqlite_url, application="shop")
    scheduler.job(name="idle")(lambda: None)
    with receiver() as server:
        scheduler.alert_to(CheckIn(f"{server.url}/{{job}}", style="healthchecks"))
        with scheduler:
            listeners = scheduler._service.listeners
            assert listeners.wants(RunFailed)
            scheduler._service.forked()  # as the hook does in a child
            assert not listeners.wants(RunFailed)
            [scheduler._service._engine] = scheduler._service._inherited


def test_a_scheduler_that_is_started_again_checks_in_once_for_each_run(sqlite_url, caplog):
    scheduler = Scheduler(sqlite_url, application="shop")
    scheduler.job(name="idle")(lambda: None)
    with receiver() as server:
        scheduler.alert_to(CheckIn(f"{server.url}/{{job}}", style="healthchecks"))
        for key in ("one", "two", "three"):
            with scheduler:
                scheduler.run_now("idle", key=key).wait(timeout=10)
        assert [one.query["rid"] for one in server.received if one.path == "/idle"] == [
            str(uuid.uuid5(NAMESPACE, f"shop\nidle\n{key}\n1")) for key in ("one", "two", "three")
        ]
        assert "check-ins" not in caplog.text
