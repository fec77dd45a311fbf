"""Programs that keep APScheduler 3, made safe by claims."""

import collections
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger

from harness.components import need
from harness.valkey import Valkey
from tenure.errors import ConfigurationError
from tenure.ext.apscheduler import BackgroundScheduler as OurScheduler
from tenure.ext.apscheduler import make_cluster_safe
from tenure.ext.apscheduler.cluster import Claims, key_of

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
    due = datetime(2026, 6, 1, 3, tzinfo=UTC)
    assert [one.claim(job, due) for one in claims] == [True, False]
    assert claims[1].claim(job, due.replace(hour=4))
    assert key_of(job, due) == key_of(job, due.replace(day=2))


def test_of_an_interval_the_slot_is_claimed(jobs):
    job = jobs.add_job(os.getpid, "interval", seconds=10, id="a")
    due = datetime(2026, 6, 1, 3, 0, 2, tzinfo=UTC)
    assert key_of(job, due) == key_of(job, due.replace(second=9))
    assert key_of(job, due) != key_of(job, due.replace(second=10))
    long = jobs.add_job(os.getpid, "interval", weeks=1, id="b")
    keys = [key_of(long, due.replace(day=day)) for day in (1, 8, 15)]
    assert len(set(keys)) == 3


def test_jitter_does_not_make_another_due_time(jobs):
    job = jobs.add_job(os.getpid, CronTrigger(hour=3, jitter=120, timezone="UTC"), id="a")
    due = datetime(2026, 6, 1, 3, tzinfo=UTC)
    assert key_of(job, due) == key_of(job, due.replace(minute=1, second=7, microsecond=5))
    assert job.trigger.jitter == 120


def test_ids_that_apscheduler_makes_up_do_not_count(jobs):
    first, second = (jobs.add_job(abs, "cron", hour=3, args=[3]) for _ in range(2))
    others = [jobs.add_job(abs, "cron", hour=4, args=[3]), jobs.add_job(abs, "cron", hour=3, args=[4])]
    due = datetime(2026, 6, 1, 3, tzinfo=UTC)
    assert first.id != second.id
    assert key_of(first, due) == key_of(second, due)
    assert key_of(first, due) not in [key_of(other, due) for other in others]


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
    with pytest.raises(ConfigurationError, match="safe already"):
        make_cluster_safe(OurScheduler(), sqlite_url)
