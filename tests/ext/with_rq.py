"""The page for people who come from RQ, with RQ and a real server. Run by `python3 dev.py test-ext rq`."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from rq import Queue, Retry
from rq.cron import CronScheduler
from rq.exceptions import DuplicateJobError

import tenure.testing
from harness.scratch import eventually
from harness.valkey import Valkey

PAGE = (Path(__file__).parents[2] / "docs/coming-from/rq.md").read_text()
DUE = "2026-11-16T08:00+09:00"
ID = "reports-2026-11-15T23-00-00Z"


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    with Valkey() as found:
        yield found


@pytest.fixture
def shop(server: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the page's program defines, beside the module whose function it enqueues."""
    monkeypatch.chdir(tmp_path)
    Path("shop.py").write_text("def send_reports():\n    open('sent', 'a').write('sent ')\n")
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert "redis://localhost" in code
    world: dict[str, Any] = {"__name__": "snippet"}
    exec(code.replace("redis://localhost", server.url()), world)  # noqa: S102 - that is the point
    with Redis.from_url(server.url()) as connection:
        connection.flushall()
        yield world
    world["queue"].connection.close()


def work(server: Valkey) -> str:
    """Let a worker of RQ do all that is enqueued; what has been sent so far."""
    worker = [sys.executable, "-m", "rq.cli", "worker", "--burst", "--url", server.url(), "reports"]
    subprocess.run(worker, env=os.environ | {"PYTHONPATH": "."}, check=True, capture_output=True, timeout=60)
    sent = Path("sent")
    return sent.read_text() if sent.exists() else ""


def test_a_due_time_is_worked_off_once_however_often_its_body_is_called(server: Valkey, shop: dict[str, Any]) -> None:
    queue, body = shop["queue"], shop["send_reports"]
    run = tenure.testing.run("send_reports", scheduled_for=DUE)
    body(run)
    assert queue.job_ids == [ID]
    body(tenure.testing.run("send_reports", scheduled_for=DUE, attempt=2))
    assert queue.job_ids == [ID], "its first attempt died after RQ had answered"
    assert work(server) == "sent "
    body(tenure.testing.run("send_reports", scheduled_for=DUE, attempt=3))
    assert work(server) == "sent ", "also after it was worked off"
    body(tenure.testing.run("send_reports", scheduled_for="2026-11-17T08:00+09:00"))
    assert work(server) == "sent sent ", "another due time is another job"


def test_a_scheduler_hands_its_runs_to_rq(server: Valkey, shop: dict[str, Any]) -> None:
    with shop["scheduler"] as scheduler:
        asked = scheduler.run_now("send_reports")
        eventually(lambda: scheduler.find_run(asked.id).state == "succeeded", what="the end of the run")
    assert shop["queue"].job_ids == [f"reports-{asked.key}"]
    assert work(server) == "sent "


def test_what_the_page_says_of_rq(server: Valkey, shop: dict[str, Any]) -> None:
    queue = shop["queue"]
    with pytest.raises(ValueError, match="letters, numbers, underscores and dashes"):
        queue.enqueue("shop.send_reports", job_id="reports:2026-11-15T23:00:00Z")
    for _ in range(2):
        queue.enqueue("shop.send_reports", job_id="twice")
    assert work(server) == "sent sent ", "without unique=True both are run"
    queue.enqueue("shop.send_reports", job_id="forgotten", unique=True, result_ttl=0)
    with pytest.raises(DuplicateJobError):
        queue.enqueue("shop.send_reports", job_id="forgotten", unique=True)
    work(server)
    queue.enqueue("shop.send_reports", job_id="forgotten", unique=True)  # result_ttl is over
    assert Retry(max=3, interval=10).max == 3
    job = CronScheduler(connection=queue.connection).register(work, "reports", cron="0 8 * * *")
    assert job.next_enqueue_time is not None
    assert job.next_enqueue_time.utcoffset().total_seconds() == 0  # type: ignore[union-attr]
    assert job.next_enqueue_time.hour == 8, "in UTC"
    assert isinstance(queue, Queue)
