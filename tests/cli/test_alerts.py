"""`tenure alerts`, its test messages, and what `status` and the metrics say of open alerts."""

import json
import sys

import pytest
from prometheus_client import CollectorRegistry

from harness import constants
from harness.scratch import eventually
from receiver import receiver
from tenure import Scheduler
from tenure.alerts import AlertNews, NotAccepted
from tenure.cli import main
from tenure.metrics import collector

APPLICATION = """
from tenure import AsyncScheduler, Scheduler
from tenure.alerts import CheckIn, Log, NotAccepted, Webhook

scheduler = Scheduler("sqlite:///nowhere.db", application="shop")


def broken(news):
    raise KeyError("no such room")


def busy(news):
    raise NotAccepted("the room is full")


scheduler.alert_to(
    Log(), Webhook({url!r}), Webhook({url!r} + "/other", name="other"), broken, busy, CheckIn({url!r}, style="plain", jobs="a")
)
silent = AsyncScheduler("sqlite:///nowhere.db")
fine = AsyncScheduler("sqlite:///nowhere.db")
fine.alert_to(Log())
"""


@pytest.fixture
def app(tmp_path, monkeypatch):
    """Write the module `alerting`, and run a command in its folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "alerting", raising=False)

    def write(url="http://127.0.0.1:9"):
        (tmp_path / "alerting.py").write_text(APPLICATION.replace("{url!r}", repr(url)))

    yield write
    assert not (tmp_path / "nowhere.db").exists(), "it needs no database"


def test_test_sends_a_message_to_each_sink(app, capsys):
    with receiver(200, 503) as server:
        app(server.url)
        assert main(["alerts", "test", "alerting:scheduler"]) == 1
    out = capsys.readouterr().out
    assert out.splitlines() == [
        "log: accepted",
        "webhook: accepted",
        "other: not accepted: the answer is HTTP 503",
        "broken: not accepted: it raised KeyError: 'no such room'",
        "busy: not accepted: the room is full",
    ]
    first, second = server.received
    assert first.json["type"] == "alert.test"
    assert (second.path, second.json["data"]["text"]) == (
        "/other",
        "This message only tries the sink. Nothing is wrong.",
    )


def test_test_says_it_as_json(app, capsys):
    app()
    assert main(["alerts", "test", "alerting:fine", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"sink": "log", "accepted": True, "error": ""}]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["test"], "whose sinks? Write `tenure alerts test MODULE:SCHEDULER`"),
        (["test", "alerting:silent"], "alerting:silent has no sinks. Write scheduler.alert_to("),
        (["list", "alerting:silent"], "only `tenure alerts test` takes the place of a scheduler"),
    ],
)
def test_what_is_wrong_is_said(app, capsys, words, said):
    app()
    assert main(["alerts", *words]) == 2
    assert said in capsys.readouterr().err


def test_no_alert(tenure, url):
    scheduler = Scheduler(url, application="shop")
    scheduler.job(name="idle")(lambda: None)
    with scheduler:
        assert tenure("alerts") == (0, "no alerts\n", "")
        assert json.loads(tenure("status", "--json")[1])["alerts"] == []


def test_open_alerts_are_seen_in_the_list_in_status_and_in_the_metrics(tenure, url, monkeypatch):
    constants.give(monkeypatch.setattr, LOOK_EVERY=0.3, TELL_EVERY=0.2, LOOK_RESTS=1.0, TRIES=1)
    scheduler, told = Scheduler(url, application="shop"), []

    @scheduler.every("0.2s", overlap="allow")
    def nightly() -> None:
        raise ValueError("no file")

    def room(news: AlertNews) -> None:
        told.append(news)
        raise NotAccepted("the room is full")

    scheduler.alert_to(room, failing=2)
    with scheduler:
        eventually(lambda: told and scheduler.alerts()[0].untold[0].error)
        code, out, _ = tenure("alerts")
        assert code == 0
        [row] = [line for line in out.splitlines() if "failing" in line]
        for text in ("open", "nightly", "room: the room is full", "'nightly' has failed at least 2 times in a row"):
            assert text in row
        assert "open: failing nightly (tenure alerts)" in tenure("status")[1]
        [alert] = json.loads(tenure("alerts", "--json")[1])
        assert alert == json.loads(json.dumps(scheduler.alerts()[0].as_dict(), default=str)) | {
            key: alert[key] for key in ("since", "opened_at", "messages", "text")
        }
        assert [one["kind"] for one in json.loads(tenure("status", "--json")[1])["alerts"]] == ["failing"]
        registry = CollectorRegistry()
        registry.register(collector(scheduler))
        assert registry.get_sample_value("tenure_alerts_open", {"kind": "failing"}) == 1
        assert registry.get_sample_value("tenure_alerts_open", {"kind": "overdue"}) == 0
