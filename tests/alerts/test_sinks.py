"""What each sink sends, to real servers and processes; and that no secret is seen anywhere."""

import base64
import json
import logging
import socket
import sys
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks.webhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from receiver import receiver
from tenure import AsyncScheduler, Scheduler
from tenure.alerts import AlertNews, CheckIn, Command, Log, NotAccepted, PlannerPing, Webhook
from tenure.alerts.options import AlertOptions
from tenure.core.alerts import AlertLimits
from tenure.errors import ConfigurationError

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
AT = datetime(2026, 11, 19, 3, 0, tzinfo=UTC)
NEWS = AlertNews(
    id=str(uuid.UUID(int=7)),
    event="opened",
    application="shop",
    kind="failing",
    target="nightly",
    text="'nightly' has failed at least 3 times in a row",
    label="web-1",
    alert=str(uuid.UUID(int=8)),
    since=AT,
    opened_at=AT + timedelta(seconds=10),
)


def test_a_webhook_is_signed_as_standard_webhooks_says():
    with receiver() as server:
        Webhook(f"{server.url}/hook", secret=SECRET, headers={"X-Team": "ops"}).send(NEWS)
    [got] = server.received
    assert (got.method, got.path, got.headers["webhook-id"]) == ("POST", "/hook", NEWS.id)
    assert (got.headers["content-type"], got.headers["x-team"]) == ("application/json", "ops")
    payload = Verifier(SECRET).verify(got.body, got.headers)
    assert payload["type"] == "alert.opened"
    assert datetime.fromisoformat(payload["timestamp"]).tzinfo is not None
    assert payload["data"] == {
        "id": NEWS.id,
        "event": "opened",
        "application": "shop",
        "kind": "failing",
        "target": "nightly",
        "text": "'nightly' has failed at least 3 times in a row",
        "label": "web-1",
        "alert": NEWS.alert,
        "since": "2026-11-19T03:00:00+00:00",
        "opened_at": "2026-11-19T03:00:10+00:00",
        "closed_at": None,
    }
    with pytest.raises(WebhookVerificationError):
        Verifier(SECRET).verify(got.body + b" ", got.headers)


def test_a_webhook_without_a_secret_has_no_signature():
    with receiver() as server:
        Webhook(server.url).send(NEWS)
    assert "webhook-signature" not in server.received[0].headers


@pytest.mark.parametrize("code", [301, 302, 400, 404, 410, 500, 503])
def test_only_an_answer_of_2xx_accepts(code):
    with receiver(code) as server, pytest.raises(NotAccepted, match=f"the answer is HTTP {code}"):
        Webhook(server.url).send(NEWS)
    assert len(server.received) == 1, "a redirect is not followed"


def test_a_webhook_does_not_wait_longer_than_its_timeout():
    with receiver(hold=True) as server, pytest.raises(NotAccepted, match=r"no answer within 0\.2 s"):
        Webhook(server.url, timeout=0.2).send(NEWS)


def test_a_webhook_to_a_closed_port_says_why_and_quotes_no_url():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(NotAccepted, match=r"^Connection refused$"):
        Webhook(f"http://127.0.0.1:{port}/secret-path").send(NEWS)


def test_a_command_gets_json_on_stdin_and_texts_in_its_environment(tmp_path):
    program = "import json, os, sys; json.dump([json.load(sys.stdin), dict(os.environ)], open(sys.argv[1], 'w'))"
    Command([sys.executable, "-c", program, str(tmp_path / "got")]).send(NEWS)
    said, environment = json.loads((tmp_path / "got").read_text())
    assert said == NEWS.as_dict()
    assert {name: text for name, text in environment.items() if name.startswith("TENURE_A")} == {
        "TENURE_ALERT_ID": NEWS.id,
        "TENURE_ALERT_EVENT": "opened",
        "TENURE_ALERT_KIND": "failing",
        "TENURE_ALERT_TARGET": "nightly",
        "TENURE_ALERT_TEXT": "[shop] alert opened: failing nightly. 'nightly' has failed at least 3 times in a row",
        "TENURE_APPLICATION": "shop",
    }


def test_no_shell_reads_a_command(tmp_path):
    Command(["/bin/echo", f"; touch {tmp_path}/b"]).send(NEWS)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["false"], "the command ended with 1"),
        (["/nowhere/at-all"], "the command cannot be started: No such file or directory"),
        (["sh", "-c", "sleep 60 & sleep 60"], r"the command had not ended after 0\.2 s, and was killed"),
    ],
)
def test_a_command_that_does_not_end_well_accepts_nothing(command, said):
    with pytest.raises(NotAccepted, match=said):
        Command(command, timeout=0.2).send(NEWS)


def test_a_command_that_reads_nothing_may_accept():
    Command(["true"]).send(NEWS)


def test_the_log_has_a_warning_of_one_line(caplog):
    with caplog.at_level(logging.WARNING, "tenure"):
        Log().send(NEWS)
    [record] = caplog.records
    assert record.getMessage() == NEWS.message
    assert (record.action, record.kind, record.target) == ("alert_opened", "failing", "nightly")


PLACES = ("https://hooks.example/T0PSECRET", "https://hc.example/T0PSECRET/{job}")


@pytest.mark.parametrize(
    "made",
    [
        Webhook(PLACES[0], secret=SECRET, headers={"Authorization": "T0PSECRET"}),
        Command(["page", "T0PSECRET"]),
        CheckIn(PLACES[1], style="healthchecks"),
        PlannerPing(PLACES[0]),
    ],
    ids=lambda made: type(made).__name__,
)
def test_no_secret_is_in_a_repr(made):
    shown = repr(made) + str(made) + repr(AlertOptions.of((made,), AlertLimits()))
    assert "T0PSECRET" not in shown
    assert SECRET[6:] not in shown


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Webhook("hooks.example/T0P"), "the scheme ''. Write 'https://host/path'"),
        (lambda: Webhook("file:///etc/T0P"), "the scheme 'file'"),
        (lambda: Webhook("https://a b/T0P"), "has spaces"),
        (lambda: Webhook("https://[T0P"), "cannot be parsed"),
        (lambda: Webhook("https://me:T0P@hooks.example"), "has a user name before the '@'"),
        (lambda: Webhook(7), "the URL is an int"),
        (lambda: Webhook("https://x", secret="T0P!"), "secret is not base64"),
        (lambda: Webhook("https://x", secret="whsec_" + base64.b64encode(b"T0P").decode()), "secret has 3 bytes"),
        (lambda: Webhook("https://x", secret=b"T0P"), "secret is a bytes"),
        (lambda: Webhook("https://x", headers={"A": "T0P\n"}), "the header 'A' must be a text on one line"),
        (lambda: Webhook("https://x", timeout=60), "60 is too long. Write 15s or less"),
        (lambda: Command("page --T0P"), r"must be a list of texts: Command\(\['"),
        (lambda: Command([]), "must be a list of texts"),
        (lambda: CheckIn("https://x/{job}", style="pigeon"), "style='pigeon' is not one of 'healthchecks', 'sentry'"),
        (lambda: CheckIn("https://x/T0P", style="snitch"), r"the URL has no \{job\}, so it is the monitor of one job"),
        (lambda: PlannerPing("https://x", every="1s"), "every='1s' is too often"),
        (lambda: Scheduler("memory://").alert_to(), "nothing is told"),
        (lambda: Scheduler("memory://").alert_to(Log(), Log()), "two sinks are called 'log'"),
        (lambda: Scheduler("memory://").alert_to("log"), "a str cannot be told"),
        (lambda: Scheduler("memory://").alert_to(lambda _: None), "has no name. Write a function with def"),
        (lambda: Scheduler("memory://").alert_to(Log(), failing=0), "failing: 0 must be a whole number"),
        (lambda: AsyncScheduler("memory://").alert_to(Log(), paused="x"), "paused: 'x'"),
        (lambda: Scheduler("memory://").alert_to(Log(), failures=2), "failures= is not an option. The options are fai"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_written_without_quoting_a_secret(make, said):
    with pytest.raises(ConfigurationError, match=said) as refused:
        make()
    assert "T0P" not in str(refused.value)


def test_a_coroutine_function_is_refused():
    async def tell(news): ...

    with pytest.raises(ConfigurationError, match="is a coroutine function"):
        Scheduler("memory://").alert_to(tell)


def test_alert_to_is_called_once_and_before_the_start(any_url):
    scheduler = Scheduler(any_url)
    scheduler.alert_to(Log())
    with pytest.raises(ConfigurationError, match="was called already"):
        scheduler.alert_to(Log())
    started = Scheduler(any_url)
    with started, pytest.raises(ConfigurationError, match="the scheduler is started"):
        started.alert_to(Log())
