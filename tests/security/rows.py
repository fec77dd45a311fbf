"""Rows that nobody should have written, as somebody who may write the tables can write them."""

import json
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg

from tenure.stores import host_lock
from tenure.triggers import every

GOOD_TRIGGER = every("1h").to_json()
DEEP = "[" * 100_000
BAD_RULES = {
    "rules of words": '{"max_running": "many"}',
    "rules out of time": '{"timeout": "soon"}',
    "rules without end": '{"timeout": 1e300}',
    "rules without pairs": '{"backoff": 7}',
    "rules of nobody": '{"overlap": "perhaps"}',
    "rules below zero": '{"max_running": -1}',
}
BAD_TRIGGERS = {
    "trigger of words": "every now and then",
    "trigger of tomorrow": '{"v": 99, "trigger": "cron"}',
    "trigger of nothing": "",
    "trigger of a list": "[]",
    "trigger in a pit": DEEP,
    "trigger that never comes": '{"v": 1, "trigger": "cron", "expr": "0 0 30 2 *"}',
}
BAD_KWARGS = {
    "kwargs of words": "not json",
    "kwargs of a list": "[1]",
    "kwargs of nothing": "null",
    "kwargs in a pit": DEEP,
    "kwargs of strangers": '{"no_such": 1}',
    "kwargs of tomorrow": '{"when": {"$tenure": ["century", 21]}}',
    "kwargs of no zone": '{"when": {"$tenure": ["datetime", "2026-11-16T08:00:00", "../../etc/passwd"]}}',
}
ODD_NAMES = (
    "'; DROP TABLE run; --",
    'quoted "twice"',
    "line\nbreak",
    "escape \x1b[2J",
    "nul-like \\0 \\x00 \\u0000",
    "%s {} :x ? $1 %(name)s",
    "x" * 5000,
)
UNREADABLE = BAD_RULES | BAD_TRIGGERS
"""Jobs that must be named in the log."""


class Hand:
    """Writes rows of one application."""

    def __init__(self, url: str, application: str = "default") -> None:
        self.url, self.application = url, application

    def job(self, name: str, **columns: Any) -> int:
        raise NotImplementedError

    def many(self, count: int) -> None:
        for number in range(count):
            self.job(f"one of many {number}", trigger="?", runs=0)

    def all_jobs(self) -> None:
        for name, rules in BAD_RULES.items():
            self.job(name, rules=rules)
        for name, trigger in BAD_TRIGGERS.items():
            self.job(name, trigger=trigger)
        for name, kwargs in BAD_KWARGS.items():
            self.job(name, kwargs=kwargs)
        for name in ODD_NAMES:
            self.job(name)


def cards() -> Iterator[object]:
    """Host evidence that makes no sense, on this very boot."""
    card = {
        "boot_id": host_lock.boot_id(),
        "pid": 1,
        "pid_namespace": 1,
        "started": 1,
        "device": 1,
        "inode": 1,
        "nonce": "x",
    }
    yield from (card | {"pid": pid} for pid in ("x", -1, 0, 2**70, None, 1.5, "../../1", True))
    yield from (card | {word: value} for word in card for value in (None, [], {}, "x" * 10_000))
    yield card | {"pid_namespace": host_lock.pid_namespace()}
    yield card | {"more": 1}
    yield from ([], "text", 7, None, {})


class PostgresHand(Hand):
    def execute(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(text, values or None)
            return cursor.fetchall() if cursor.description else []

    def job(self, name: str, **columns: Any) -> int:
        columns = {"rules": "{}", "trigger": GOOD_TRIGGER, "kwargs": "{}", "function": "tick", "runs": 1} | columns
        ((job,),) = self.execute(
            "INSERT INTO tenure.job (application, name, function, trigger, kwargs, rules, queue, overlap, max_running, on_time, on_lost,"
            " max_lost, in_code, release, tzdata, since, next_due, lane)"
            " SELECT a.id, %s, %s, %s, %s, %s, 'default', 'allow', NULL, 60, 'retry', 3, false, 0, '', now(), now() - interval '1 hour',"
            " tenure.lane_of(a.id, %s, 'default') FROM tenure.application a WHERE a.name = %s RETURNING id",
            name, *(columns[word] for word in ("function", "trigger", "kwargs", "rules", "function")), self.application,
        )  # fmt: skip
        for number in range(columns["runs"]):
            self.run(job, key=f"'; {number}\n", due_at="now()", scheduled_for="now()")
        return int(job)

    def run(self, job: int, *, key: str, **columns: str) -> None:
        """A run; the values are SQL."""
        columns = {
            "kind": "'manual'",
            "state": "'pending'",
            "generation": "1",
            "due_at": "now()",
            "scheduled_for": "now()",
        } | columns
        self.execute(
            f"INSERT INTO tenure.run (job, application, lane, key, {', '.join(columns)})"
            f" SELECT j.id, j.application, j.lane, %s, {', '.join(columns.values())} FROM tenure.job j WHERE j.id = %s",
            key, job,
        )  # fmt: skip

    def runs(self) -> None:
        job = self.job("runs of all kinds", runs=0)
        far = "'294276-12-31 00:00Z'"
        for number, columns in enumerate([
            {"scheduled_for": "'infinity'", "due_at": "'-infinity'"},
            {"scheduled_for": "'-infinity'"},
            {"scheduled_for": "'4713-01-01 00:00Z BC'"},
            {"scheduled_for": far},
            {"due_at": "'infinity'"},
            {"due_at": far, "scheduled_for": far},
            {"due_at": "'9999-12-31 23:59:59Z'"},
            {"kind": "'due'", "scheduled_for": "'-infinity'", "expires_at": "'-infinity'"},
            {"kind": "'due'", "scheduled_for": "'infinity'", "expires_at": "'-infinity'"},
            {"attempt": "2147483647"},
            {"attempt": "-2147483648"},
            {"failures": "2147483647", "kwargs": "'not json'"},
            {"state": "'running'", "token": "'t'", "node": "gen_random_uuid()", "losses": "2147483647", "scheduled_for": "'infinity'"},
            {"state": "'running'", "token": "'t'", "node": "NULL"},
            {"state": "'waiting'", "scheduled_for": "'infinity'", "due_at": "'-infinity'"},
            {"state": "'succeeded'", "started_at": "'infinity'", "finished_at": "'-infinity'", "claimed_at": far},
            {"state": "'skipped'", "count": "-1", "until": "'infinity'"},
            {"kwargs": "'not json'"},
            {"generation": "9223372036854775807"},
        ]):  # fmt: skip
            self.run(job, key=f"hostile {number}", **columns)

    def nodes(self) -> None:
        for card in cards():
            self.execute(
                "INSERT INTO tenure.node (id, ttl, label, host) VALUES (gen_random_uuid(), 3600, %s, %s)",
                "forged\nERROR all is lost\x1b[2J", json.dumps(card),
            )  # fmt: skip

    def election(self, name: str) -> None:
        self.execute("INSERT INTO tenure.election (name, term) VALUES (%s, %s)", name, 2**62)


class SqliteHand(Hand):
    def execute(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=10)) as connection, connection:
            return connection.execute(text, values).fetchall()

    def job(self, name: str, **columns: Any) -> int:
        columns = {
            "rules": "{}",
            "trigger": GOOD_TRIGGER,
            "kwargs": "{}",
            "function": "tick",
            "next_due": "1",
            "runs": 1,
        } | columns
        lane = [self.application, columns["function"]]
        self.execute(
            "INSERT INTO tenure_lane (application, function, queue) VALUES (?, ?, 'default') ON CONFLICT DO NOTHING",
            *lane,
        )
        ((job,),) = self.execute(
            "INSERT INTO tenure_job (application, name, function, trigger, kwargs, rules, queue, max_running, in_code, release, tzdata, since,"
            f" next_due, lane) VALUES (?, ?, ?, ?, ?, ?, 'default', NULL, 0, 0, '', 0, {columns['next_due']},"
            " (SELECT l.id FROM tenure_lane l WHERE l.application = ? AND l.function = ?)) RETURNING id",
            self.application, name, *(columns[word] for word in ("function", "trigger", "kwargs", "rules")), *lane,
        )  # fmt: skip
        for number in range(columns["runs"]):
            self.run(job, key=f"'; {number}\n")
        return int(job)

    def run(self, job: int, *, key: str, **columns: str) -> None:
        columns = {
            "kind": "'manual'",
            "state": "'pending'",
            "generation": "1",
            "due_at": "1",
            "scheduled_for": "1",
        } | columns
        self.execute(
            f"INSERT INTO tenure_run (job, application, lane, key, {', '.join(columns)})"
            f" SELECT j.id, j.application, j.lane, ?, {', '.join(columns.values())} FROM tenure_job j WHERE j.id = ?",
            key, job,
        )  # fmt: skip

    def all_jobs(self) -> None:
        super().all_jobs()
        for name, rules in {
            "rules of bytes": b"\xff\x00",
            "rules of bare words": "not json",
            "rules in a pit": DEEP,
        }.items():
            self.job(name, rules=rules)
        self.job("trigger of bytes", trigger=b"\xff")
        self.job("kwargs of bytes", kwargs=b"\xff")
        for number, due in enumerate(("'x'", "-9e999", "9e999", "-9223372036854775808", "x'ff'", "0.5")):
            self.job(f"due nowhere {number}", next_due=due, runs=0)
        job = self.job("of no generation", runs=0)
        self.execute("UPDATE tenure_job SET generation = 'x', state = 'paused', paused_until = 1 WHERE id = ?", job)
        self.job("of a function of bytes", function=b"\xff", runs=0)

    def runs(self) -> None:
        job = self.job("runs of all kinds", runs=0)
        for number, columns in enumerate([
            {"scheduled_for": "9e999"},
            {"scheduled_for": "-9e999", "due_at": "-9e999"},
            {"scheduled_for": "'x'"},
            {"scheduled_for": "x'ff'", "due_at": "-9223372036854775808"},
            {"scheduled_for": "9223372036854775807"},
            {"due_at": "9223372036854775807"},
            {"due_at": "'x'"},
            {"kind": "'perhaps'"},
            {"kind": "x'ff'"},
            {"state": "'perhaps'"},
            {"attempt": "9223372036854775807"},
            {"attempt": "'x'"},
            {"attempt": "-1"},
            {"failures": "9223372036854775807"},
            {"kind": "'due'", "expires_at": "1", "scheduled_for": "'x'"},
            {"kind": "'due'", "expires_at": "-9e999", "scheduled_for": "9e999"},
            {"state": "'running'", "token": "'t'", "node": "'gone'", "losses": "9223372036854775807", "due_at": "'x'", "scheduled_for": "'x'"},
            {"state": "'running'", "token": "'t'", "node": "x'ff'", "attempt": "'x'"},
            {"state": "'waiting'", "kind": "'perhaps'", "scheduled_for": "'x'", "due_at": "9e999"},
            {"state": "'succeeded'", "attempt": "'x'", "started_at": "'x'", "finished_at": "9e999", "claimed_at": "-9e999", "count": "'x'"},
            {"kwargs": "x'ff'"},
            {"kwargs": "'not json'"},
            {"generation": "'x'"},
        ]):  # fmt: skip
            self.run(job, key=f"hostile {number}", **columns)

    def nodes(self) -> None:
        for number, card in enumerate(cards()):
            self.execute(
                "INSERT INTO tenure_node (id, ttl, label, host, joined_at) VALUES (?, 3600, ?, ?, 0)",
                f"{uuid.uuid4()}", f"forged {number}\nERROR all is lost\x1b[2J", json.dumps(card),
            )  # fmt: skip
        for node, ttl in (
            ("../../outside", 3600), ("/etc/passwd", 3600), ("a\nb", "x"), ("nul\0", "9e999"), ("x" * 5000, -1), ("", 0), (b"\xff", b"\xff"),
        ):  # fmt: skip
            self.execute(
                "INSERT INTO tenure_node (id, ttl, label, host, joined_at) VALUES (?, ?, 'x', ?, 0)", node, ttl, DEEP
            )

    def election(self, name: str) -> None:
        self.execute("INSERT INTO tenure_election (name, term) VALUES (?, ?)", name, 2**63 - 1)
        self.execute("INSERT INTO tenure_election (name, term) VALUES (?, 'x')", f"{name} of words")
