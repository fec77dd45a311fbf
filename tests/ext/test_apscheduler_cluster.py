"""Programs that keep APScheduler 3, made safe by claims."""

import collections
import contextlib
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from apscheduler.events import EVENT_JOB_EXECUTED
from apscheduler.jobstores.base import JobLookupError
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore as TheirStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import BaseScheduler
from apscheduler.triggers.cron import CronTrigger

from harness.components import need
from harness.valkey import Valkey
from tenure.errors import ConfigurationError
from tenure.ext.apscheduler import BackgroundScheduler as OurScheduler
from tenure.ext.apscheduler import make_cluster_safe
from tenure.ext.apscheduler.cluster import CYCLE, Claims, key_of

WORKER = Path(__file__).parent / "apps" / "still_apscheduler.py"
SECONDS = 4


def read(record: Path) -> list[tuple[int, str, float]]:
    lines = record.read_text().splitlines() if record.exists() else []
    return [(int(pid), job, float(at)) for pid, job, at in map(str.split, lines)]


def wait_for(record: Path, what, patience: float = 30.0):
    """What is wanted of the record, as soon as it is there."""
    end = time.monotonic() + patience
    while not (found := what(read(record))):
        assert time.monotonic() < end, f"nothing came of it: {read(record)[-5:]}"
        time.sleep(0.05)
    return found


@pytest.fixture(params=["memory", "sqlalchemy", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A job store of APScheduler: one for each worker, or one that they share."""
    match request.param:
        case "redis":
            need("valkey")
            with Valkey() as server:
                yield f"redis:{server.port}"
        case "sqlalchemy":
            yield f"sqlite:///{tmp_path / 'jobs.db'}"
        case memory:
            yield memory


def test_workers_share_the_due_times_and_go_on_when_one_is_killed(store, tmp_path, database):
    record = tmp_path / "record"
    command = [sys.executable, str(WORKER), database, store, str(record)]
    with contextlib.ExitStack() as stack:
        workers = []
        for _ in range(3):
            workers.append(subprocess.Popen(command))
            stack.callback(workers[-1].wait)
            stack.callback(workers[-1].kill)
            wait_for(record, len)  # two at once may both make the table of APScheduler's store
        wait_for(record, lambda lines: len({pid for pid, *_ in lines}) > 1)
        victim = next(worker for worker in workers if worker.pid == read(record)[-1][0])
        victim.kill()
        killed_at = time.time()
        wait_for(record, lambda lines: lines[-1][2] > killed_at + SECONDS)
        for worker in workers:
            if worker is not victim:
                worker.send_signal(signal.SIGTERM)
                assert worker.wait(20) == 0
    for job in ("beat", "poll"):
        slots = collections.Counter(int(due) for _, name, due in read(record) if name == job)
        assert max(slots.values()) == 1, f"{job}: {slots}"
        assert sum(slots.values()) >= SECONDS - 1, f"{job}: {slots}"


@pytest.fixture
def jobs():
    scheduler = BackgroundScheduler(timezone="UTC")
    scheduler.start(paused=True)
    yield scheduler
    scheduler.shutdown()


def test_a_due_time_is_claimed_once_and_again_the_next_day(jobs, sqlite_url):
    job = jobs.add_job(os.getpid, "cron", hour=3, id="a")
    claims = [Claims(sqlite_url, "apscheduler") for _ in range(2)]
    claims[0].open()
    due = datetime.now(UTC).replace(microsecond=0)
    assert [one.claim(job, due) for one in claims] == [True, False]
    assert claims[1].claim(job, due + timedelta(days=1))
    assert not claims[0].claim(job, due + timedelta(days=1))


def test_what_comes_late_takes_nothing_from_a_due_time_to_come(jobs, sqlite_url):
    """A worker that was frozen claims what the others have run long ago."""
    job = jobs.add_job(os.getpid, "cron", hour=3, id="a", misfire_grace_time=None)
    due = datetime(2026, 6, 1, 3, tzinfo=UTC)
    coming = {key_of(job, due + timedelta(days=day), due)[0] for day in range(1, CYCLE)}
    late = [key_of(job, due, due + timedelta(hours=hours)) for hours in (12, 71, 73, 24 * CYCLE, 24 * 365)]
    assert late[0] == late[1] == key_of(job, due, due)
    assert late[2] == late[3] == late[4] == ("a due 2026-06-01T03:00:00+00:00", None)
    assert not coming & {key for key, _ in late}


def test_of_an_interval_the_slot_is_claimed(jobs):
    job = jobs.add_job(os.getpid, "interval", seconds=10, id="a")
    due = datetime(2026, 6, 1, 3, 0, 2, tzinfo=UTC)
    assert key_of(job, due, due) == key_of(job, due.replace(second=9), due)
    assert key_of(job, due, due) != key_of(job, due.replace(second=10), due)
    long = jobs.add_job(os.getpid, "interval", weeks=1, id="b")
    keys = [key_of(long, due.replace(day=day), due) for day in (1, 8, 15)]
    assert len(set(keys)) == 3


def test_jitter_does_not_make_another_due_time(jobs):
    job = jobs.add_job(os.getpid, CronTrigger(hour=3, jitter=120, timezone="UTC"), id="a")
    due = datetime(2026, 6, 1, 3, tzinfo=UTC)
    assert key_of(job, due, due) == key_of(job, due.replace(minute=1, second=7, microsecond=5), due)
    assert job.trigger.jitter == 120


def test_ids_that_apscheduler_makes_up_do_not_count(jobs):
    first, second = (jobs.add_job(abs, "cron", hour=3, args=[3]) for _ in range(2))
    others = [jobs.add_job(abs, "cron", hour=4, args=[3]), jobs.add_job(abs, "cron", hour=3, args=[4])]
    due = datetime(2026, 6, 1, 3, tzinfo=UTC)
    assert first.id != second.id
    assert key_of(first, due, due) == key_of(second, due, due)
    assert key_of(first, due, due) not in [key_of(other, due, due) for other in others]


def test_workers_that_list_a_set_in_another_order_mean_the_same_job(jobs):
    sets = [{0, 8}, {8, 0}]
    assert repr(sets[0]) != repr(sets[1]), "as two processes may have it"
    first, second = (jobs.add_job(len, "cron", hour=3, args=[one]) for one in sets)
    due = datetime(2026, 6, 1, 3, tzinfo=UTC)
    assert key_of(first, due, due) == key_of(second, due, due)


class ByHand(BaseScheduler):
    """Looks for due jobs when the test says so."""

    def wakeup(self) -> None: ...

    def shutdown(self, wait: bool = True) -> None:
        super().shutdown(wait)


def test_a_round_goes_on_although_another_worker_has_ended_some_of_its_jobs(tmp_path, sqlite_url):
    """All workers find a date job that is due, and all but one find it gone when they come to remove it."""
    url, now, heard = f"sqlite:///{tmp_path / 'jobs.db'}", datetime.now(UTC), queue.SimpleQueue()
    first, second = (ByHand(jobstores={"default": TheirStore(url)}, timezone="UTC") for _ in range(2))
    for scheduler in (first, second):
        make_cluster_safe(scheduler, sqlite_url).start()
    second.add_listener(heard.put, EVENT_JOB_EXECUTED)
    options = {"misfire_grace_time": 60, "max_instances": 5}
    first.add_job(os.getpid, "date", run_date=now - timedelta(seconds=3), id="date", **options)
    first.add_job(os.getpid, "cron", hour=3, next_run_time=now - timedelta(seconds=2), id="cron", **options)
    first.add_job(os.getpid, "cron", hour=3, next_run_time=now - timedelta(seconds=1), id="last", **options)
    store = second._jobstores["default"]
    look = store.get_due_jobs

    def look_and_be_overtaken(until):
        due = look(until)
        first.remove_job("date")
        first.remove_job("cron")
        return due

    store.get_due_jobs = look_and_be_overtaken
    second._process_jobs()
    assert {heard.get(timeout=20).job_id for _ in range(3)} == {"date", "cron", "last"}
    assert [job.id for job in first.get_jobs()] == ["last"]
    for scheduler in (first, second):
        scheduler.shutdown()


def test_only_a_round_of_the_scheduler_forgives_that_a_job_is_gone(jobs, sqlite_url):
    make_cluster_safe(jobs, sqlite_url)
    with pytest.raises(JobLookupError):
        jobs.remove_job("nothing")


def test_what_cannot_be_claimed_is_not_run(jobs, tmp_path, caplog):
    job = jobs.add_job(os.getpid, "cron", hour=3, id="a")
    claims = Claims("postgresql://nobody@127.0.0.1:1/nothing", "apscheduler")
    assert not claims.claim(job, datetime(2026, 6, 1, 3, tzinfo=UTC))
    assert "cannot be claimed" in caplog.text


def test_every_executor_is_wrapped_once(sqlite_url):
    scheduler = BackgroundScheduler(executors={"more": {"type": "threadpool", "max_workers": 2}}, timezone="UTC")
    scheduler.add_jobstore(MemoryJobStore())
    assert make_cluster_safe(make_cluster_safe(scheduler, sqlite_url), sqlite_url) is scheduler
    assert {type(one).__name__ for one in scheduler._executors.values()} == {"Claiming"}
    assert {type(one.inner).__name__ for one in scheduler._executors.values()} == {"ThreadPoolExecutor"}
    scheduler.start()
    scheduler.shutdown()


def test_only_theirs_are_made_safe(sqlite_url):
    with pytest.raises(ConfigurationError, match="do not need it"):
        make_cluster_safe(OurScheduler(), sqlite_url)
