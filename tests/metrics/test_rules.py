"""The alert rules under promtool, Prometheus' own test program: each fires when it should, and is silent when it should
not."""

import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from harness.components import need, promtool
from tenure import Scheduler, metrics
from tenure.metrics import collector, measure

HERE = Path(__file__).parent
RULES = HERE.parents[1] / "src/tenure/metrics/rules.yml"
FILES = [HERE / "rules.test.yml", HERE / "rules.days.test.yml"]
ALERTS = [rule["alert"] for rule in yaml.safe_load(metrics.rules())["groups"][0]["rules"]]


def run(*words: object, given: bytes = b"") -> subprocess.CompletedProcess[str]:
    need("promtool")
    program = promtool()
    assert program is not None
    done = subprocess.run([program, *map(str, words)], input=given, capture_output=True, check=False, timeout=120)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def cases(file):
    for group in yaml.safe_load(file.read_text())["tests"]:
        for case in group["alert_rule_test"]:
            yield case["alertname"], bool(case.get("exp_alerts"))


def test_each_rule_has_a_case_that_fires_and_one_that_is_silent():
    found = {case for file in FILES for case in cases(file)}
    assert found == {(alert, fires) for alert in ALERTS for fires in (True, False)}


def test_promtool_reads_the_rules():
    done = run("check", "rules", RULES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_each_rule_fires_and_is_silent_as_it_should(file):
    done = run("test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_a_rule_that_never_fires_or_always_does_is_noticed(alert, tmp_path):
    file = next(file for file in FILES if alert in {name for name, _ in cases(file)})
    written = yaml.safe_load(file.read_text())
    written["tests"] = [
        {**group, "alert_rule_test": [case for case in group["alert_rule_test"] if case["alertname"] == alert]}
        for group in written["tests"]
    ]
    written["tests"] = [group for group in written["tests"] if group["alert_rule_test"]]
    written["rule_files"] = ["rules.yml"]
    (tmp_path / "test.yml").write_text(yaml.safe_dump(written))
    for expression in ("vector(1) == 2", "vector(1)"):
        rules = yaml.safe_load(RULES.read_text())
        [rule] = [rule for rule in rules["groups"][0]["rules"] if rule["alert"] == alert]
        rules["groups"][0]["rules"] = [{**rule, "expr": expression}]
        (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules))
        done = run("test", "rules", tmp_path / "test.yml")
        assert done.returncode != 0
        assert f"alertname: {alert}" in done.stdout + done.stderr


def test_promtool_finds_nothing_wrong_with_what_is_exported(sqlite_url):
    registry = CollectorRegistry()
    scheduler = Scheduler(sqlite_url)
    scheduler.every("1h", name="report", expect_within="1h")(lambda: None)
    measure(scheduler, registry)
    registry.register(collector(scheduler))
    with scheduler:
        text = generate_latest(registry)
    assert b"tenure_job_expected_by_timestamp_seconds{" in text
    done = run("check", "metrics", given=text)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
