"""Whatever rows and exceptions say, no verb hands it to a terminal as it is."""

import json
import os
import pty
import re
import sqlite3
import subprocess
import sys
import threading
import uuid
from contextlib import closing, suppress

import pytest

from harness.scratch import eventually
from tenure import Scheduler
from tenure.cli import main
from tenure.demo.screen import Screen

EVIL = "\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202efdp\x08"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
KEPT = {"application", "name", "election", "state", "mode", "what", "kind", "trigger", "rules", "kwargs", "token", "node", "holder", "id",
        "host", "tzdata", "hash", "functions", "names", "function", "next_reading", "library", "queues"}  # fmt: skip
"""Columns that must stay as they are for a row to be found at all."""


def poison(path):
    with closing(sqlite3.connect(path, timeout=10)) as db, db:
        tables = [
            name
            for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'tenure%'")
        ]
        for table in tables:
            for _, column, kind, *_ in db.execute(f"PRAGMA table_info({table})").fetchall():
                if kind == "TEXT" and column not in KEPT and "version" not in table:
                    db.execute(f"UPDATE OR IGNORE {table} SET {column} = coalesce({column}, '') || ?", [EVIL])


NODE = """
import os, sys, time
from tenure import Election, Scheduler
url, evil = sys.argv[1:]
scheduler = Scheduler(url, application="app")

@scheduler.every("1h")
def logs(run):
    run.log(f"plain {evil}")

@scheduler.every("1h")
def fails():
    raise ValueError(f"bad header: {evil}\\nsecond line")

scheduler.start()
boss = Election(url, "boss")
boss.start()
assert boss.wait_until_leading(20)
runs = [scheduler.run_now("logs").id, scheduler.run_now("fails").id]
ended = lambda: all(scheduler.find_run(run).state in ("succeeded", "failed") for run in runs)
while not (ended() and scheduler.log(runs[0]) and scheduler.health().plans):
    time.sleep(0.02)
scheduler.pause("fails", why="because")
print(*runs, flush=True)
os._exit(0)  # its term and its plans stay in the tables
"""


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    """A ledger that somebody hostile has written to, and the runs that logged and that failed."""
    path = tmp_path_factory.mktemp("hostile") / "jobs.db"
    url = f"sqlite:///{path}"
    command = [sys.executable, "-c", NODE, url, EVIL]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    poison(path)
    return url, [int(word) for word in told.split()]


def on_a_terminal(monkeypatch, *words):
    """What a verb prints where stdout and stderr are a terminal."""
    master, slave = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    chunks = []

    def read():
        while True:
            try:
                chunk = os.read(master, 65536)
            except OSError:
                return
            if not chunk:
                return
            chunks.append(chunk)

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(slave, "w", encoding="utf-8", newline="\n") as terminal, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", terminal)
        patched.setattr(sys, "stderr", terminal)
        with suppress(SystemExit):  # of argparse
            main(list(words))
        terminal.flush()
    reader.join(10)
    os.close(master)
    return b"".join(chunks).decode()


def raw(text):
    """Control characters other than line breaks and our own colours."""
    plain = COLOURS.sub("", text.replace("\r\n", "\n"))
    return sorted({f"U+{ord(c):04X}" for c in plain if c not in "\n\t" and not c.isprintable()})


VERBS = [
    ["status"], ["jobs"], ["runs"], ["runs", "--state", "failed"], ["runs", "fails"], ["audit"], ["audit", "fails"], ["why", "fails"], ["why", "logs"],
    ["pause", "logs"], ["resume", "logs"], ["run-now", "logs"], ["log", "LOGS"], ["log", "FAILS"], ["cancel", "LOGS"], ["backfill", "logs", "--since", "-2h"],
    ["leader", "boss"], ["terms", "boss"], ["terms"], ["elections"], ["doctor"], ["epoch"], ["resign", "boss"],
]  # fmt: skip
OF_THE_STORE = {"leader", "terms", "elections", "doctor", "epoch", "resign"}


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_verb_spells_out_what_rows_say(ledger, monkeypatch, verb, as_json):
    url, (logs, fails) = ledger
    words = [{"LOGS": str(logs), "FAILS": str(fails)}.get(word, word) for word in verb]
    words += [] if verb[0] in OF_THE_STORE else ["--app", "app"]
    shown = on_a_terminal(monkeypatch, *words, "--url", url, *(["--json"] if as_json else []))
    assert shown.strip(), "it printed something"
    assert raw(shown) == []
    if as_json and verb[0] != "doctor":
        assert shown.isascii()


@pytest.mark.parametrize("words", [["runs", f"no such {EVIL}"], ["remove", f"no such {EVIL}"], ["jobs", "--app", f"no such {EVIL}"],
                                   ["next", f"cron {EVIL}"], ["leader", f"no such {EVIL}"], ["runs", "--state", EVIL]])  # fmt: skip
def test_errors_spell_out_what_they_quote(ledger, monkeypatch, words):
    shown = on_a_terminal(monkeypatch, *words, "--url", ledger[0])
    assert shown.strip()
    assert raw(shown) == []


def test_line_breaks_of_an_exception_stay_and_those_of_a_label_do_not(ledger, monkeypatch):
    url, (_, fails) = ledger
    shown = on_a_terminal(monkeypatch, "log", str(fails), "--app", "app", "--url", url)
    assert "\\x1b]0;owned" in shown
    assert "second line" in [line.split("\\x1b")[0] for line in shown.splitlines()], "a text of several lines stays one"


def test_log_is_as_the_body_wrote_it_for_programs(ledger):
    url, (logs, _) = ledger
    command = [sys.executable, "-m", "tenure", "log", str(logs), "--app", "app", "--url", url]
    assert EVIL.encode() in subprocess.run(command, capture_output=True, check=True).stdout
    asked = subprocess.run([*command, "--json"], capture_output=True, check=True).stdout
    assert EVIL in json.loads(asked)["log"][0]["text"], "and as JSON it is exact"


def test_the_log_of_a_node_spells_out_exceptions(caplog):
    scheduler = Scheduler(f"memory://{uuid.uuid4()}", drain=1)

    @scheduler.job
    def fails():
        raise ValueError(f"bad header: {EVIL}")

    with scheduler:
        run = scheduler.run_now("fails")
        eventually(lambda: scheduler.find_run(run.id).state == "failed", what="the failure")
        eventually(
            lambda: any(getattr(r, "action", "") == "run_failed" for r in caplog.records), what="a line about it"
        )
    assert all(record.getMessage().isprintable() for record in caplog.records)


def test_the_demo_spells_out_what_it_says(capsys):
    Screen(sys.stdout).say(f"a leads: {EVIL}")
    assert raw(capsys.readouterr().out) == []
