"""What a node finds on every store, and writes: each kind of alert opens and closes. The rules alone are in tests/core."""

import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime

import pytest

from harness import constants
from harness.scratch import eventually
from stores.ledger.scene import Scene
from tenure.alerts import AlertNews
from tenure.alerts.options import AlertOptions
from tenure.alerts.sinks import Sink
from tenure.core.alerts import EVERYTHING, MANY, AlertLimits
from tenure.core.cluster import Acquire, Cadence
from tenure.core.database_clock import DatabaseClock
from tenure.core.keys import planner_of
from tenure.core.messages import NewRun, Planned
from tenure.core.records import JobState, NodeFacts, RunState
from tenure.errors import StoreUnavailable
from tenure.scheduling.agenda import Step
from tenure.scheduling.alert_look import AlertLook
from tenure.scheduling.alert_messages import AlertMessages
from tenure.scheduling.alert_sender import AlertSender
from tenure.scheduling.context import LoopContext, LoopSignals
from tenure.scheduling.engine_options import EngineOptions
from tenure.scheduling.slices import SliceSize
from tenure.stores import store_for
from tenure.triggers import at, every
from tenure.util.clock import boottime

SOON = every("1s").to_json()


class Accepting(Sink):
    """Accepts everything."""

    def __init__(self) -> None:
        super().__init__("accepting")
        self.told: list[str] = []

    def send(self, news: AlertNews) -> None:
        self.told.append(f"{news.event} {news.kind} {news.target}".rstrip())


class Watcher:
    """The looks of one node, turned by hand. It plans, unless another node does."""

    id, label, lease_until, is_leader = "watcher", "watcher", float("inf"), True

    def __init__(self, scene: Scene, **limits: float) -> None:
        self.scene, self.sink, self.clock = scene, Accepting(), DatabaseClock()
        self.believe(0.0)
        limits = {"no_planner": 0.0, "orphaned": 0.0, **limits}
        told = AlertOptions((self.sink,), limits=AlertLimits(**limits))
        options = EngineOptions(scene.application, "UTC", Cadence(), alerts=told)
        sender = AlertSender(told.sinks, scene.application, self.label, self.wake)
        context = LoopContext(self, self, None, None, self.clock, options, LoopSignals(self), sender=sender)
        self.agenda = context.agenda
        self.agenda.at(Step.CLAIM, float("inf"))
        self.looker, self.messages, self.sender = AlertLook(context), AlertMessages(context), sender

    def believe(self, leap: float) -> None:
        """The clock of the database has been as it is for a while, but for a leap."""
        now = boottime() - (0.0 if self.clock.known else 100.0)
        offset = self.scene.ledger.now() - boottime()
        self.clock.observe(now + offset + leap, now, now)

    def wake(self) -> None:
        pass

    def slice(self) -> None:
        self.looker.look(self.scene.ledger)

    def look(self) -> list[tuple[str, str]]:
        """A whole look: the kinds and targets that are open after it."""
        before = self.looker.looks
        while self.looker.looks == before:
            self.slice()
        rows = self.scene.ledger.open_alerts(self.scene.application)
        return [(row.kind, row.target) for row in rows if row.open]

    def until(self, *alerts: tuple[str, str]) -> None:
        """Look until exactly these are open."""
        seen: list[tuple[str, str]] = []

        def there() -> bool:
            seen[:] = self.look()
            return sorted(seen) == sorted(alerts)

        try:
            eventually(there)
        except TimeoutError:
            raise AssertionError(f"open are {seen}, not {alerts}") from None


@pytest.fixture
def node(scene):
    """A live node that has the function of all jobs, and plans."""
    worker = scene.worker("node")
    facts = NodeFacts(worker.id, scene.application, frozenset("f"), None, 4, 0, "1", "2026a")
    scene.ledger.write_facts(facts)
    worker.session.acquire(Acquire(worker.id, planner_of(scene.application), fenced=True))
    return worker


@pytest.fixture
def watcher(scene, node):
    watcher = Watcher(scene)
    yield watcher
    watcher.sender.stop(0.0)


def _fail(worker, scene, times, end=RunState.FAILED, name="job"):
    for _ in range(times):
        scene.ask(name)
        run = worker.take()
        now = scene.ledger.now()
        worker.finish(run.id, end, error="ValueError: no", started_at=now, finished_at=now)


def test_nothing_is_wrong(watcher, scene):
    scene.add("job")
    assert watcher.look() == []
    assert scene.ledger.alert_history(scene.application, 10) == []


def test_failing(watcher, scene, node):
    scene.add("job")
    _fail(node, scene, 2)
    assert watcher.look() == []
    _fail(node, scene, 1)
    assert watcher.look() == [("failing", "job")]
    _fail(node, scene, 1, RunState.SUCCEEDED)
    assert watcher.look() == []


def test_not_started(watcher, scene, node):
    scene.add("job", next_due=scene.at(200))
    assert watcher.look() == [("not_started", "job")]
    scene.pause()
    scene.resume()
    assert watcher.look() == []


def test_orphaned_explains_why_it_is_late(watcher, scene):
    scene.add("job", next_due=scene.at(200), function="gone")
    assert watcher.look() == [("orphaned", "job")]
    new = scene.worker("new")
    scene.ledger.write_facts(NodeFacts(new.id, scene.application, frozenset({"gone"}), None, 1, 0, "1", "2026a"))
    scene.remove()
    assert watcher.look() == []


def test_overdue(watcher, scene, node):
    scene.add("job", trigger=SOON, expect_within=1.5)
    watcher.until(("overdue", "job"))
    _fail(node, scene, 1)
    assert watcher.look() == [("overdue", "job")]
    _fail(node, scene, 1, RunState.SUCCEEDED)
    assert watcher.look() == [], "a success for this moment makes up for what was due before"


def test_a_one_off_that_a_user_cancelled_is_settled(watcher, scene):
    soon = scene.ledger.now() + 0.3
    scene.add(
        "job", trigger=at(datetime.fromtimestamp(soon, UTC)).to_json(), next_due=soon, grace=0.1, expect_within=0.1
    )
    row = scene.job()
    assert scene.ledger.plan([Planned(row.id, row.generation, soon, None, (NewRun(soon, soon, None),))]) == 1
    [run] = scene.runs()
    scene.ledger.cancel(run.id, "ada", "not needed")
    assert scene.job().state is JobState.DONE
    scene.add("beside it", trigger=SOON, expect_within=0.1)
    watcher.until(("overdue", "beside it"))
    scene.pause("beside it")
    assert watcher.look() == []
    assert {row.target for row in scene.ledger.alert_history(scene.application, 10)} == {"beside it"}


def test_a_run_that_waits_for_its_pool_is_not_overdue(watcher, scene, node):
    scene.add("before", 10, trigger=None, pool="pool")
    node.take()
    scene.add("job", trigger=SOON, timeout=0.1, grace=0.1, pool="pool", overlap="wait")
    scene.plan("job", 0.0)
    assert not node.claim().runs
    scene.add("beside it", trigger=SOON, timeout=0.1, grace=0.1)
    watcher.until(("overdue", "beside it"))
    assert scene.told() == ["waiting"]
    assert {row.target for row in scene.ledger.alert_history(scene.application, 10)} == {"beside it"}


def test_never_ran_and_missed(watcher, scene, node, monkeypatch):
    constants.give(monkeypatch.setattr, SLACK=0.0)
    scene.add("job", trigger=SOON, grace=0.1)
    watcher.until(("never_ran", "job"))
    _fail(node, scene, 1, RunState.SUCCEEDED)
    watcher.until()
    now = scene.ledger.now() - scene.start
    scene.plan("job", scene.new(-now - 0.1, expired_ago=-now - 0.2))
    found = []
    eventually(lambda: found.extend(scene.ledger.missed(scene.application, 10)) or found)
    [missed] = found
    scene.ledger.settle(missed.id, missed.generation, make_up=(), skip=[one.id for one in missed.runs], reason="missed")
    watcher.until(("missed", "job"))
    _fail(node, scene, 1, RunState.SUCCEEDED)
    watcher.until()


def test_unusually_long(watcher, scene, node, monkeypatch):
    constants.give(monkeypatch.setattr, LONG=0.05, KEPT=0.0)
    scene.add("job", trigger=None)
    _fail(node, scene, 20, RunState.SUCCEEDED)
    assert watcher.look() == []
    scene.ask()
    run = node.take()
    watcher.until(("too_long", "job"))
    node.finish(run.id)
    watcher.until()


def test_paused_for_long(scene, node):
    watcher = Watcher(scene, paused=0.3)
    scene.add("job")
    scene.pause()
    assert Watcher(scene, paused=3600.0).look() == []
    watcher.until(("paused", "job"))
    scene.resume()
    watcher.until()


def test_no_planner(scene):
    watcher, node = Watcher(scene), scene.worker("node")
    scene.ledger.write_facts(NodeFacts(node.id, scene.application, frozenset("f"), None, 1, 0, "1", "2026a"))
    assert watcher.look() == [("no_planner", "")]
    node.session.acquire(Acquire(node.id, planner_of(scene.application), fenced=True))
    assert watcher.look() == []


def test_a_successor_within_the_time_keeps_it_silent(scene):
    watcher, node = Watcher(scene, no_planner=30.0), scene.worker("node")
    scene.ledger.write_facts(NodeFacts(node.id, scene.application, frozenset("f"), None, 1, 0, "1", "2026a"))
    assert watcher.look() == watcher.look() == []
    [row] = scene.ledger.open_alerts(scene.application)
    assert (row.kind, row.open, row.seen) == ("no_planner", False, 2)
    node.session.acquire(Acquire(node.id, planner_of(scene.application), fenced=True))
    assert watcher.look() == []
    assert scene.ledger.open_alerts(scene.application) == []


def test_node_silent(watcher, scene, node):
    died = scene.worker("died")
    facts = NodeFacts(died.id, scene.application, frozenset("f"), None, 1, 0, "1", "2026a")
    scene.ledger.write_facts(facts)
    node.session.declare(died.id, None, "its process ended")
    assert watcher.look() == [("node_silent", "died")]
    back = scene.worker("died")
    scene.ledger.write_facts(NodeFacts(back.id, scene.application, frozenset("f"), None, 1, 0, "1", "2026a"))
    assert watcher.look() == []


def test_a_clock_that_is_doubted_is_all_that_is_told(watcher, scene, node):
    scene.add("job")
    _fail(node, scene, 3)
    watcher.believe(3600.0)
    assert watcher.look() == [("clock_doubted", "")], "what is late cannot be known"
    watcher.believe(0.0)
    assert watcher.look() == [("failing", "job")]


def test_a_node_that_believes_the_clock_does_not_contradict_one_that_doubts_it(scene, node, monkeypatch):
    doubts, believes = Watcher(scene), Watcher(scene)
    doubts.believe(3600.0)
    assert doubts.look() == [("clock_doubted", "")]
    [row] = scene.ledger.open_alerts(scene.application)
    for _ in range(2):
        assert believes.look() == [("clock_doubted", "")]
        assert doubts.look() == [("clock_doubted", "")]
    assert scene.ledger.open_alerts(scene.application) == [row], "one sentence, whoever looks and whenever"
    doubts.believe(0.0)
    assert doubts.look() == [], "the node has seen that the clock came back"
    assert len(scene.ledger.alert_history(scene.application, 10)) == 1
    doubts.believe(3600.0)
    doubts.look()
    doubts.clock._doubts_until = 0.0
    doubts.believe(3600.0)
    assert not doubts.clock.doubts
    assert doubts.look() == [("clock_doubted", "")], "it has accepted the new time; others may not have"
    constants.give(monkeypatch.setattr, DOUBT=(0.0, 0.0), NOTICED=0.0)
    assert believes.look() == []


def test_a_job_still_fails_though_another_one_fails_more(watcher, scene, node, monkeypatch):
    constants.give(monkeypatch.setattr, FAILURES=3)
    scene.add("job")
    scene.add("another")
    _fail(node, scene, 3)
    assert watcher.look() == [("failing", "job")]
    _fail(node, scene, 3, name="another")
    for _ in range(2):
        assert sorted(watcher.look()) == [("failing", "another"), ("failing", "job")]
    _fail(node, scene, 1, RunState.SUCCEEDED)
    assert watcher.look() == [("failing", "another")]


def test_slow_statistics_hold_back_nothing_else(watcher, scene, node, monkeypatch):
    constants.give(monkeypatch.setattr, LONG=-1.0)
    scene.add("job")
    scene.add("long", trigger=None)
    _fail(node, scene, 3)
    scene.ask("long")
    node.take()

    def stats(*_):
        raise StoreUnavailable("statement timeout")

    monkeypatch.setattr(scene.ledger, "stats", stats)
    with pytest.raises(StoreUnavailable):
        watcher.look()
    [row] = scene.ledger.open_alerts(scene.application)
    assert (row.kind, row.target, row.open) == ("failing", "job", True)


def test_many_jobs_of_which_one_cause_stops_all_are_one_alert(watcher, scene, node, monkeypatch):
    """Also if they are looked at in several parts, each of which is noted by itself."""
    names = [f"job {number:03}" for number in range(3 * (MANY + 1))]
    for name in names:
        scene.add(name, trigger=SOON, expect_within=0.05)
    time.sleep(1.2)
    monkeypatch.setattr("tenure.scheduling.alert_look.PART", 0.0)
    watcher.looker._jobs = SliceSize(MANY + 1, (MANY + 1, MANY + 1), 1.0)
    assert watcher.look() == [("overdue", EVERYTHING)]
    assert watcher.look() == [("overdue", EVERYTHING)]
    for name in names[:-1]:
        scene.pause(name)
    assert watcher.look() == [("overdue", EVERYTHING)], "it stays one until the last is over"
    scene.pause(names[-1])
    assert watcher.look() == []
    assert len(scene.ledger.alert_history(scene.application, 100)) == 1


def test_an_alert_of_a_job_that_is_removed_closes_whichever_part_comes_last(watcher, scene, monkeypatch):
    names = [f"job {number}" for number in range(12)]
    for name in names:
        scene.add(name, trigger=SOON, expect_within=0.05)
    time.sleep(1.2)
    monkeypatch.setattr("tenure.scheduling.alert_look.PART", 0.0)
    watcher.looker._jobs = SliceSize(5, (5, 5), 1.0)
    assert sorted(watcher.look()) == sorted(("overdue", name) for name in names)
    scene.remove(names[1])
    scene.remove(names[-1])
    left = [("overdue", name) for name in names[2:-1]]
    assert sorted(watcher.look()) == sorted([("overdue", names[0]), *left])


def test_two_nodes_that_look_at_the_same_time_open_one_alert(scene, node):
    one, two = Watcher(scene), Watcher(scene)
    scene.add("job")
    _fail(node, scene, 3)
    one.slice()
    two.look()
    assert one.look() == [("failing", "job")]
    assert len(scene.ledger.alert_history(scene.application, 10)) == 1


def test_a_look_that_read_before_an_alert_was_opened_does_not_close_it(scene, node):
    one, two = Watcher(scene), Watcher(scene)
    scene.add("job")
    for _ in range(3):
        one.slice()
    _fail(node, scene, 3)
    two.look()
    assert one.look() == [("failing", "job")]


def test_a_look_that_was_interrupted_for_long_begins_anew(scene, node, monkeypatch):
    """As of a node that was frozen in the middle."""
    watcher = Watcher(scene)
    scene.add("job")
    _fail(node, scene, 3)
    for _ in range(3):
        watcher.slice()
    _fail(node, scene, 1, RunState.SUCCEEDED)
    watcher.looker._last_at -= 11.0
    assert watcher.look() == []
    assert scene.ledger.alert_history(scene.application, 10) == []


def test_a_claim_goes_first(watcher, scene):
    scene.add("job")
    watcher.slice()
    soon = boottime() + 0.004
    watcher.agenda.at(Step.CLAIM, soon)
    watcher.looker._timer.not_after = soon + 1.0
    looks, worked = watcher.looker.looks, watcher.looker._worked
    watcher.slice()
    assert watcher.agenda.due(Step.LOOK) >= soon
    assert (watcher.looker.looks, watcher.looker._worked) == (looks, worked)


def test_a_look_that_fails_reads_less_and_comes_later(watcher, scene, monkeypatch):
    scene.add("job")

    def job_marks(*_):
        raise StoreUnavailable("statement timeout")

    monkeypatch.setattr(scene.ledger, "job_marks", job_marks)
    with pytest.raises(StoreUnavailable):
        watcher.look()
    assert watcher.looker._jobs.now == 10
    assert watcher.agenda.due(Step.LOOK) > boottime() + 10
    monkeypatch.undo()
    assert watcher.look() == []


def test_what_a_look_has_opened_is_told_at_once(watcher, scene, node):
    scene.add("job")
    _fail(node, scene, 3)
    watcher.look()
    assert watcher.agenda.due(Step.TELL) == 0.0
    watcher.messages.tell(scene.ledger)
    eventually(lambda: watcher.sink.told == ["opened failing job"] and watcher.sender.outcomes)
    assert scene.ledger.claim_messages(scene.application, "other", ["accepting"], 0.0, 10) == []
    watcher.messages.tell(scene.ledger)
    [row] = scene.ledger.open_alerts(scene.application)
    [message] = scene.ledger.alert_messages(scene.application, [row.id])
    assert message.sent_at is not None


def test_an_idle_file_is_not_written_by_looks(tmp_path):
    store = store_for(f"sqlite:///{tmp_path / 'jobs.db'}")
    store.prepare()
    with closing(Scene(store)) as scene:
        node = scene.worker("node")
        scene.ledger.write_facts(NodeFacts(node.id, scene.application, frozenset("f"), None, 1, 0, "1", "2026a"))
        node.session.acquire(Acquire(node.id, planner_of(scene.application), fenced=True))
        for number in range(30):
            scene.add(f"job {number}")
        watcher = Watcher(scene)
        with closing(sqlite3.connect(tmp_path / "jobs.db")) as other:
            before = other.execute("PRAGMA data_version").fetchone()
            assert watcher.look() == []
            watcher.messages.tell(scene.ledger)
            assert other.execute("PRAGMA data_version").fetchone() == before
            scene.pause("job 0")
            assert other.execute("PRAGMA data_version").fetchone() != before
