"""The doctor says what to do, changes nothing, and always comes back."""

import io
import json
import re
import threading
import time
from pathlib import Path

import pytest

from harness import scratch
from tenure import Election, doctor
from tenure.doctor import sqlite as sqlite_doctor
from tenure.doctor.postgres import inspector, server
from tenure.stores.sqlite import filesystem

DOCS = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "doctor.md"


class TestItAlwaysComesBack:
    def test_a_closed_port(self):
        report = doctor.diagnose(f"postgresql://u@127.0.0.1:{scratch.free_port()}/x")
        (found,) = report.findings
        assert (found.code, found.severity, report.exit_code) == ("connection", "problem", 3)

    def test_a_network_that_swallows_everything(self, ready, proxy, monkeypatch):
        monkeypatch.setattr(inspector, "CONNECT_TIMEOUT", 2)
        proxy.black_hole()
        began = time.monotonic()
        assert doctor.run(proxy.url(ready.rpartition("/")[2]), out=io.StringIO()) == 3
        assert time.monotonic() - began < 5

    def test_a_server_that_freezes_during_the_examination(self, ready, proxy, monkeypatch):
        monkeypatch.setattr(inspector, "ANSWER_TIMEOUT", 0.3)
        monkeypatch.setattr(server, "clock", lambda _: proxy.black_hole())
        monkeypatch.setattr(inspector, "CONNECT_TIMEOUT", 2)
        report = doctor.diagnose(proxy.url(ready.rpartition("/")[2]))
        assert report.exit_code == 3
        assert any("stopped answering" in found.what for found in report.findings)
        assert "server-version" in {found.code for found in report.findings}, "what was seen before is told"

    def test_whatever_hangs_the_whole_has_a_deadline(self, sqlite_url, monkeypatch):
        release = threading.Event()
        monkeypatch.setattr(doctor, "DEADLINE", 0.1)
        monkeypatch.setattr(filesystem, "type_number", lambda _: release.wait(10))
        report = doctor.diagnose(sqlite_url)
        release.set()
        assert (report.findings[0].code, report.exit_code) == ("deadline", 3)

    def test_a_bug_of_its_own_is_told(self, sqlite_url, monkeypatch):
        monkeypatch.setattr(sqlite_doctor, "examine", lambda *_: 1 / 0)
        (found,) = doctor.examine(sqlite_url)
        assert (found.code, "ZeroDivisionError" in found.what) == ("deadline", True)

    @pytest.mark.parametrize(
        ("url", "options", "words"),
        [
            ("postgresql://u:***@h/x", {}, "masked"),
            ("mysql://h/x", {}, "mysql"),
            ("postgresql://h/x", {"schema": "Bad-Name"}, "schema"),
            ("memory://", {"ttl": 100}, "ttl"),
            ("postgresql://h/x?nonsense=1", {}, "nonsense"),
        ],
    )
    def test_what_was_written_wrongly_is_a_finding(self, url, options, words):
        (found,) = doctor.examine(url, **options)
        assert (found.code, found.severity, words in found.what) == ("configuration", "problem", True)
        assert doctor.run(url, out=io.StringIO(), **options) == 1

    def test_the_url_may_come_from_the_environment(self, sqlite_url, monkeypatch):
        monkeypatch.setenv("TENURE_URL", sqlite_url)
        assert doctor.diagnose().store == sqlite_url
        assert [found.severity for found in doctor.examine("memory://")] == ["ok"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


class TestWhatItPrints:
    def test_problems_come_first_with_why_and_what_to_do(self, tmp_path):
        out = io.StringIO()
        assert doctor.run(f"sqlite:///{tmp_path}/nowhere/x.db", out=out) == 3
        text = out.getvalue()
        assert text.index("Problems") < text.index("Fine")
        assert "why: Without the store no term is granted" in text
        assert "do:  Create it" in text
        assert "1 problem, 1 check fine. The store could not be examined completely." in text

    def test_in_a_narrow_terminal_reasons_are_wrapped(self, monkeypatch):
        monkeypatch.setenv("COLUMNS", "50")
        monkeypatch.setenv("NO_COLOR", "1")
        plain, terminal = io.StringIO(), Terminal()
        for out in (plain, terminal):
            doctor.run("mysql://h/x", out=out)
        assert max(map(len, terminal.getvalue().splitlines())) <= 50 < max(map(len, plain.getvalue().splitlines()))

    def test_colour_only_on_a_terminal_and_not_against_the_users_wish(self, tmp_path, monkeypatch):
        url = f"sqlite:///{tmp_path}/x.db"
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("TERM", "xterm")
        plain, terminal, wished = io.StringIO(), Terminal(), Terminal()
        doctor.run(url, out=plain)
        doctor.run(url, out=terminal)
        monkeypatch.setenv("NO_COLOR", "1")
        doctor.run(url, out=wished)
        assert "\033[" in terminal.getvalue()
        assert "\033[" not in plain.getvalue() + wished.getvalue()

    def test_json_has_everything(self, sqlite_url):
        out = io.StringIO()
        with Election(sqlite_url, "billing") as election:
            election.wait_until_leading(10)
            assert doctor.run(sqlite_url, as_json=True, out=out) == 0
        whole = json.loads(out.getvalue())
        assert set(whole) == {"store", "server", "reachable", "exit", "findings", "holders", "locks"}
        assert set(whole["findings"][0]) == {"code", "severity", "what", "why", "do"}
        assert whole["holders"][0]["election"] == "billing"

    def test_the_how_to_page_has_every_code(self):
        text = DOCS.read_text(encoding="utf-8")
        assert set(re.findall(r"^\| `([a-z-]+)` \|", text, flags=re.MULTILINE)) == set(doctor.CODES)
