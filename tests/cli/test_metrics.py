"""`tenure metrics`: printed once, served, with the probes, and without a database."""

import signal
import subprocess
import sys

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.scratch import eventually, free_port
from tenure import Scheduler
from tenure.cli import main


@pytest.fixture
def jobs(sqlite_url):
    """A database with two jobs."""
    scheduler = Scheduler(sqlite_url, application="shop")
    for name in ("nightly", "hourly"):
        scheduler.job(name=name)(lambda: None)
    with scheduler:
        pass
    return sqlite_url


def parsed(text):
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_it_prints_them_once(jobs, capsys):
    assert main(["metrics", "--url", jobs]) == 0
    found = parsed(capsys.readouterr().out)
    assert found["tenure_up"].samples[0].value == 1
    assert {sample.labels["job_name"] for sample in found["tenure_job_info"].samples} == {"nightly", "hourly"}
    assert main(["metrics", "--url", jobs, "--jobs", "night*"]) == 0
    found = parsed(capsys.readouterr().out)
    assert [sample.labels["job_name"] for sample in found["tenure_job_info"].samples] == ["nightly"]


def test_without_a_database_it_says_so_if_it_knows_the_application(capsys):
    away = f"postgresql://postgres@127.0.0.1:{free_port()}/app"
    assert main(["metrics", "--url", away]) == 3
    assert "127.0.0.1" in capsys.readouterr().err
    assert main(["metrics", "--url", away, "--app", "shop"]) == 3
    found = parsed(capsys.readouterr().out)
    assert [*found] == ["tenure_up"]
    assert found["tenure_up"].samples[0].value == 0


def test_what_is_wrong_is_said(jobs, capsys):
    assert main(["metrics", "--url", jobs, "--listen", "everywhere:http"]) == 2
    assert "Write 127.0.0.1:9187" in capsys.readouterr().err
    assert main(["metrics", "--url", jobs, "--app", "shoop"]) == 2
    assert "Did you mean 'shop'?" in capsys.readouterr().err


def test_without_the_client_it_says_what_to_install(jobs, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert main(["metrics", "--url", jobs]) == 2
    assert "pip install 'tenure[metrics]'" in capsys.readouterr().err


def test_it_serves_until_it_is_told_to_end(jobs):
    port = free_port()
    command = [sys.executable, "-m", "tenure", "metrics", "--url", jobs, "--listen", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        base = f"http://127.0.0.1:{port}"

        def answers():
            try:
                return httpx.get(f"{base}/livez").status_code
            except httpx.TransportError:
                return None

        eventually(answers, within=30)
        assert parsed(httpx.get(f"{base}/metrics").text)["tenure_up"].samples[0].value == 1
        assert httpx.get(f"{base}/metrics", headers={"Host": "evil.example"}).status_code == 403
        assert [httpx.get(f"{base}/{probe}", headers={"Host": "10.0.0.7"}).text for probe in ("livez", "readyz")] == [
            "live\n",
            "ready\n",
        ]
        assert httpx.get(f"{base}/").status_code == 404
        assert httpx.post(f"{base}/metrics").status_code == 405
        assert "# EOF" in httpx.get(f"{base}/metrics", headers={"Accept": "application/openmetrics-text"}).text
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        said = process.stderr.read()
    assert f"{base}/metrics" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(("word", "beginning"), [("--rules", "#"), ("--dashboard", "{")])
def test_it_prints_what_comes_with_tenure_without_a_database(capsys, monkeypatch, word, beginning):
    monkeypatch.delenv("TENURE_URL", raising=False)
    assert main(["metrics", word]) == 0
    assert capsys.readouterr().out.startswith(beginning)
