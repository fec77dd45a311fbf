"""The page for people who come from Celery beat: its program as it stands, with the command that it names, on a real
broker. Run by `python3 dev.py test-ext celery`."""

import json
import queue
import re
from pathlib import Path

import pytest
import redis
from celery import Celery, Task
from celery.contrib.testing.worker import start_worker

from harness.processes import Worker
from harness.scratch import eventually
from harness.valkey import Valkey
from tenure.cli import main

PAGE = (Path(__file__).parents[2] / "docs/coming-from/celery-beat.md").read_text()


@pytest.mark.timeout(120)
def test_the_program_of_the_page_sends_what_it_says(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    command = re.search(r"^celery (-A shop beat .*?) +#", PAGE, re.MULTILINE)
    assert command
    with Valkey() as server:
        program = program.replace("redis://localhost", server.url()).replace("postgresql:///app", database)
        (tmp_path / "shop.py").write_text(program)
        beat = Worker("celery", *command[1].split(), env={"PYTHONPATH": str(tmp_path)}).start()
        try:
            asked = ["--url", database, "--app", "celery:shop"]
            eventually(
                lambda: main(["jobs", *asked]) == 0 and "poll" in capsys.readouterr().out, within=30, what="jobs"
            )
            for entry in ("poll", "daily-report"):
                assert main(["run-now", entry, *asked, "--wait", "30s"]) == 0
            with redis.Redis(port=server.port) as broker:
                sent = [json.loads(broker.brpop([queue], timeout=20)[1]) for queue in ("celery", "slow")]
        finally:
            assert beat.terminate() == 0, beat.story()
    assert [message["headers"]["task"] for message in sent] == ["shop.poll", "shop.report"]
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["import", "celery", "shop:app"]) == 0
    assert "def daily_report" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Celery itself
def test_celery_runs_two_messages_of_one_id_twice() -> None:
    """Which is why the page says that a task has to look at its id itself."""
    with Valkey() as server:
        app = Celery("shop", broker=server.url(), backend=server.url(1))
        ran: queue.SimpleQueue[str] = queue.SimpleQueue()

        @app.task(bind=True, name="shop.report")
        def report(self: Task) -> None:
            ran.put(self.request.id)

        with start_worker(app, perform_ping_check=False):
            for _ in range(2):
                report.apply_async(task_id="one-due-time")
            assert [ran.get(timeout=20), ran.get(timeout=20)] == ["one-due-time"] * 2
        app.producer_pool.force_close_all()
        app.pool.force_close_all()
        app.backend.client.close()
        app.close()  # it only forgets its connections
