"""A beat of which any number may run."""

import json
import re
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from celery import Celery
from celery.beat import BeatLazyFunc
from celery.contrib.testing.worker import start_worker
from celery.schedules import crontab, schedule

import tenure.ext.celery
from ext import beats
from harness.components import need
from harness.processes import Worker
from harness.scratch import eventually
from tenure.cluster.control_loop import ControlLoop
from tenure.errors import ConfigurationError, StoreUnavailable
from tenure.ext.celery import task_id
from tenure.ext.celery.beat import AGAIN, AWAKE, CAPACITY, Node
from tenure.ext.celery.schedules import trigger_of
from tenure.triggers import cron, every
from tenure.util.signals import SAME

MINUTE = timedelta(minutes=1)


@pytest.mark.timeout(120)
def test_killing_the_sender_costs_no_due_time_and_repeats_carry_the_same_id(tmp_path, database) -> None:
    need("valkey")
    verdict = beats.play(tmp_path, database, kills=2, apart=2.0)
    print(verdict)
    assert verdict.missing == []
    assert verdict.strangers == []
    assert verdict.too_many <= 2 * CAPACITY
    assert verdict.seconds >= 6


def test_a_signal_that_comes_while_a_beat_leaves_is_the_same_one(app, ticking, monkeypatch) -> None:
    """Celery's handler closes its scheduler on top of whatever the main thread is at: here, on top of the same."""
    beat = tenure.ext.celery.Scheduler(app)
    ticking(beat)
    stop, signals = ControlLoop.stop, []

    def stop_while_asked_again(self: ControlLoop, patience: float) -> None:
        signal.raise_signal(signal.SIGUSR1)
        stop(self, patience)

    def handler(*_: object) -> None:
        signals.append(beat._node.started)
        beat.close()
        assert not beat._node.started

    monkeypatch.setattr(ControlLoop, "stop", stop_while_asked_again)
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        beat.close()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(signals) == 1
    assert not beat._node.started


def test_a_second_signal_ends_a_beat_that_is_still_sending(app, ticking, monkeypatch) -> None:
    app.conf.beat_schedule = {"hourly": {"task": "t", "schedule": 3600}}
    sending, sent = threading.Event(), threading.Event()

    def send(*_: object, **__: object) -> None:
        sending.set()
        sent.wait(30)

    monkeypatch.setattr(tenure.ext.celery.Scheduler, "apply_async", send)
    beat = tenure.ext.celery.Scheduler(app)
    ticking(beat)
    beat._node.run_now("hourly")
    assert sending.wait(10)
    before = signal.signal(signal.SIGALRM, lambda *_: beat.close())
    signal.setitimer(signal.ITIMER_REAL, SAME + 0.1)
    try:
        began = time.monotonic()
        beat.close()
        assert time.monotonic() - began < 9, "it did not wait for its drain of 10 s"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sent.set()
    assert beat._node.stop("10s"), "what was being sent has been sent, and the node has left"


@pytest.mark.parametrize("named", [True, False])
def test_each_scheduler_of_a_beat_is_prepared_before_it_starts(app, ticking, monkeypatch, named) -> None:
    prepared = []

    def prepare(node: Node) -> None:
        prepared.append((node, node.started))

    monkeypatch.setattr(beats, "prepare", prepare, raising=False)
    app.conf.tenure_prepare = "ext.beats:prepare" if named else prepare
    beat = tenure.ext.celery.Scheduler(app)
    ticking(beat)
    assert prepared == [(beat._node, False)]
    beat.schedule["another"] = beat.Entry(name="another", task="t", schedule=schedule(timedelta(hours=1)), app=app)
    beat._look()
    assert prepared[1:] == [(beat._node, False)]
    assert prepared[0] != prepared[1]


def test_a_message_of_a_beat_is_sent_in_a_span(app, ticking, monkeypatch) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    monkeypatch.setattr(trace, "_TRACER_PROVIDER", TracerProvider())
    app.conf.beat_schedule = {"hourly": {"task": "t", "schedule": 3600}}
    app.conf.tenure_prepare = "tenure.ext.opentelemetry:instrument"
    in_spans = []
    monkeypatch.setattr(
        tenure.ext.celery.Scheduler,
        "apply_async",
        lambda *_, **__: in_spans.append(trace.get_current_span().get_span_context().is_valid),
    )
    beat = tenure.ext.celery.Scheduler(app)
    ticking(beat)
    beat._node.run_now("hourly").wait(timeout=20)
    assert in_spans == [True]


@pytest.mark.parametrize("wrong", ["nowhere.at_all:prepare", "ext.beats:nothing", 7])
def test_what_cannot_prepare_is_refused(app, wrong) -> None:
    app.conf.tenure_prepare = wrong
    with pytest.raises(ConfigurationError, match=r"tenure_prepare: .* Write "):
        tenure.ext.celery.Scheduler(app)._look()


@pytest.fixture
def app() -> Celery:
    queue = str(uuid.uuid4())
    made = Celery(queue, broker="memory://", set_as_current=False)
    made.conf.update(
        tenure_url=f"memory://{queue}",
        tenure_options={"application": "beats", "ttl": 6, "heartbeat_every": 0.5, "attempt_timeout": 1},
        task_default_queue=queue,
        result_expires=None,
    )
    return made


@pytest.fixture
def ticking() -> Iterator[Callable[[tenure.ext.celery.Scheduler], None]]:
    """Starts a beat as `celery beat` would; it is closed at the end."""
    started = []

    def start(beat: tenure.ext.celery.Scheduler) -> None:
        started.append(beat)
        assert beat._look() == beat.max_interval

    yield start
    for beat in started:
        beat.close()


def messages(app: Celery, count: int) -> list[dict[str, object]]:
    """The headers of the next messages."""
    with app.connection_for_read() as connection:
        queue = connection.SimpleQueue(app.conf.task_default_queue)
        found = []
        for _ in range(count):
            message = queue.get(timeout=10)
            message.ack()
            found.append(message.headers)
        queue.close()
    return found


def test_a_message_that_is_sent_again_carries_the_same_id(app, ticking) -> None:
    class Forgetful(tenure.ext.celery.Scheduler):
        """Fails once, after the message is with the broker: the same as a death before the ledger was told."""

        once = threading.Event()

        def sent(self, _entry, _run) -> None:
            if not self.once.is_set():
                self.once.set()
                raise ConnectionError("forgot it")

    app.conf.beat_schedule = {"hourly": {"task": "nothing", "schedule": timedelta(hours=1)}}
    beat = Forgetful(app)
    ticking(beat)
    beat._node.run_now("hourly", key="asked")
    first, second = messages(app, 2)
    assert first["id"] == second["id"]


def test_the_id_is_made_of_application_entry_and_due_time(app, ticking) -> None:
    app.conf.beat_schedule = {"tick": {"task": "nothing", "schedule": 1.0}}
    ticking(tenure.ext.celery.Scheduler(app))
    (headers,) = messages(app, 1)
    due = datetime.fromisoformat(headers["scheduled_for"])
    assert headers["id"] == task_id("beats", "tick", due)
    assert headers["id"] == task_id("beats", "tick", due.astimezone(ZoneInfo("Asia/Seoul")))
    others = {task_id("other", "tick", due), task_id("beats", "tock", due), task_id("beats", "tick", due + MINUTE)}
    assert headers["id"] not in others
    assert len(others) == 3


@pytest.mark.filterwarnings("ignore")
def test_a_task_sees_arguments_options_and_its_due_time(app, ticking) -> None:
    seen = []

    @app.task(name="note", bind=True)
    def note(self, word: str, when: str) -> None:
        seen.append((word, when, self.request.id, self.request.headers["scheduled_for"]))

    app.add_periodic_task(1.0, note.s("word", when=BeatLazyFunc(lambda: "worked out")), name="tick")
    ticking(tenure.ext.celery.Scheduler(app))
    with start_worker(app, pool="solo", perform_ping_check=False):
        eventually(lambda: seen, within=15)
    word, when, id_, scheduled_for = seen[0]
    assert (word, when) == ("word", "worked out")
    assert id_ == task_id("beats", "tick", datetime.fromisoformat(scheduled_for))


def test_what_is_changed_while_it_runs_is_taken_in(app, ticking) -> None:
    app.conf.beat_schedule = {
        "kept": {"task": "nothing", "schedule": timedelta(hours=1)},
        "gone": {"task": "nothing", "schedule": timedelta(hours=1)},
    }
    beat = tenure.ext.celery.Scheduler(app)
    ticking(beat)
    node = beat._node
    beat._look()
    assert beat._node is node
    del beat.schedule["gone"]
    beat.add(name="new", task="nothing", schedule=timedelta(hours=2))
    beat._look()
    assert [job.name for job in beat._node.jobs()] == ["kept", "new"]
    assert not node.started


def test_a_removal_that_failed_is_tried_again(app, ticking, monkeypatch) -> None:
    app.conf.beat_schedule = {
        name: {"task": "nothing", "schedule": timedelta(hours=1)} for name in ("kept", "gone", "gone too", "back")
    }
    beat = tenure.ext.celery.Scheduler(app)
    ticking(beat)
    remove = Node.remove

    def away(self: Node, name: str, **words: str) -> object:
        monkeypatch.setattr(Node, "remove", remove)
        raise StoreUnavailable("the database is away")

    monkeypatch.setattr(Node, "remove", away)
    entry = beat.schedule["back"]
    for name in ("gone", "gone too", "back"):
        del beat.schedule[name]
    assert beat._look() == AGAIN
    node = beat._node
    beat.schedule["back"] = entry
    assert beat._look() == beat.max_interval
    assert [job.name for job in beat._node.jobs()] == ["back", "kept"]
    assert not node.started
    node = beat._node
    beat._look()
    assert beat._node is node


def test_an_entry_that_comes_back_is_sent_again_but_not_one_that_people_removed(app, ticking) -> None:
    """As one of django-celery-beat that is disabled and enabled again."""
    app.conf.beat_schedule = {
        name: {"task": "nothing", "schedule": timedelta(hours=1)} for name in ("blinks", "removed")
    }
    beat = tenure.ext.celery.Scheduler(app)
    ticking(beat)
    beat._node.remove("removed", by="ada")
    entry = beat.schedule.pop("blinks")
    beat._look()
    assert beat._node.jobs() == []
    beat.schedule["blinks"] = entry
    beat._look()
    assert [(job.name, job.state) for job in beat._node.jobs()] == [("blinks", "active")]


def test_an_update_by_hand_of_an_entry_outlives_a_restart_of_the_beat(app, ticking) -> None:
    app.conf.beat_schedule = {"hourly": {"task": "nothing", "schedule": timedelta(hours=1)}}
    for _ in range(2):
        beat = tenure.ext.celery.Scheduler(app)
        ticking(beat)
        beat._node.update("hourly", trigger=every("9h"), by="ada")
        beat.close()
    assert beat._node.find_job("hourly").changed_by == "ada"
    app.conf.beat_schedule["hourly"]["schedule"] = timedelta(hours=2)
    beat = tenure.ext.celery.Scheduler(app)
    ticking(beat)
    assert beat._node.find_job("hourly").changed_at is None


def test_a_database_that_is_away_is_tried_again(app, ticking) -> None:
    app.conf.tenure_url = "postgresql://nobody@127.0.0.1:1/nowhere"
    beat = tenure.ext.celery.Scheduler(app)
    assert 0 < beat.tick() <= AWAKE
    app.conf.tenure_url = f"memory://{uuid.uuid4()}"
    ticking(beat)
    assert beat._node.started


@pytest.mark.parametrize(
    "given",
    [
        crontab(),
        crontab(minute=30, hour="2"),
        crontab(minute="*/7", hour="8-17/3"),
        crontab(minute="3,*/20", hour="*/5,1"),
        crontab(minute=0, hour=0, day_of_week="fri-mon"),
        crontab(minute=0, hour=[6, 18], day_of_week="*/2"),
        crontab(minute=0, hour=4, day_of_month="1-7,15-21", day_of_week="monday"),
        crontab(minute=0, hour=4, day_of_month="*/3", day_of_week="1,3"),
        crontab(minute=15, hour=4, day_of_month="31", month_of_year="jan-mar,*/5"),
        crontab(minute=15, hour="22-2", day_of_month="30-2"),
    ],
    ids=repr,
)
def test_a_crontab_means_the_same_as_in_celery(given) -> None:
    given.app = Celery(set_as_current=False)
    trigger = trigger_of("entry", given)
    when = end = datetime(2027, 1, 1, tzinfo=UTC)
    end += timedelta(days=120)
    by_celery = [when + minute * MINUTE for minute in range(120 * 24 * 60) if _matches(given, when + minute * MINUTE)]
    ours, due = [], trigger.next_after(when - MINUTE)
    while due is not None and due < end:
        ours.append(due)
        due = trigger.next_after(due)
    assert ours == by_celery


def _matches(given, at: datetime) -> bool:
    return (
        at.minute in given.minute
        and at.hour in given.hour
        and at.day in given.day_of_month
        and at.month in given.month_of_year
        and at.isoweekday() % 7 in given.day_of_week
    )


def test_a_crontab_is_read_in_the_zone_of_the_app() -> None:
    app = Celery(set_as_current=False)
    app.conf.timezone = "Asia/Seoul"
    trigger = trigger_of("entry", crontab(minute=0, hour=3, app=app))
    assert trigger.next_after(datetime(2027, 1, 1, tzinfo=UTC)) == datetime(2027, 1, 1, 18, tzinfo=UTC)


class Whim(schedule):
    def is_due(self, last_run_at):
        return super().is_due(last_run_at)


@pytest.mark.parametrize("given", [Whim(10), schedule(0), object()], ids=["whim", "never", "object"])
def test_what_cannot_be_shared_is_refused_by_name(given) -> None:
    with pytest.raises(ConfigurationError, match="entry 'the one'"):
        trigger_of("the one", given)


@pytest.mark.timeout(120)
def test_the_entries_of_django_celery_beat_are_taken_with_their_changes(tmp_path) -> None:
    pytest.importorskip("django_celery_beat")
    env = {"FILE": str(tmp_path / "django.db"), "TENURE_URL": f"sqlite:///{tmp_path / 'tenure.db'}"}
    worker = Worker(beats.PROJECTS / "django_beat.py", env=env).start()
    assert worker.wait(within=60) == 0, worker.story()
    told = json.loads(worker.lines[-1])
    assert set(told["first"]) == {"tick", "clocked"}
    assert told["first"].count("clocked") == 1
    assert set(told["after"][-2:]) == {"off"}
    tables = told["tables"]
    assert tables["off"]["count"] >= 2
    assert tables["clocked"] == {"enabled": False, "count": 0, "ran": True}
    assert tables["later"]["count"] == 0
    [refused] = told["refused"]  # once, although all rows were read again
    assert "entry 'always': a period of 0 s would always be due" in refused


def test_the_schedule_of_the_page_can_be_shared() -> None:
    page = (Path(__file__).parents[2] / "docs/coming-from/celery-beat.md").read_text()
    world: dict[str, Any] = {}
    exec(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[0], world)  # noqa: S102 - that is the point
    beat = tenure.ext.celery.Scheduler(world["app"])
    jobs = {job.name: job.trigger for job in beat.node(beat.schedule)._service.definitions.jobs}
    assert jobs["daily-report"] == cron("0 3 * * *", "Asia/Seoul")
    assert jobs["poll"].period == timedelta(seconds=30)
