"""How SQLite finds what the ledger asks for: by an index, in an empty file and in a full one that was analysed."""

import re
import sqlite3
from contextlib import closing

import pytest

from tenure.stores import store_for
from tenure.stores.sqlite.rows import sql

INDEXES = {
    "due_lanes": {"tenure_run_due"},
    "due_in_lane": {"tenure_run_due"},
    "expired": {"tenure_run_expires"},
    "next_at": {"tenure_run_due"},
    "released": {"tenure_run_waits", "tenure_run_began", "tenure_run_pool"},
    "candidates": {"tenure_run_began"},
    "unplanned": {"tenure_job_unplanned"},
    "resuming": {"tenure_job_resumes"},
    "running": {"tenure_run_running"},
    "unserved": {"tenure_job_function", "tenure_run_open"},
    "overdue_jobs": {"tenure_job_unplanned"},
    "overdue_runs": {"tenure_run_due", "tenure_run_expires"},
    "missed_jobs": {"tenure_run_expires"},
    "orphans": {"tenure_run_running"},
    "held": {"tenure_run_running"},
    "owed": {"tenure_run_owed"},
    "owed_after": {"tenure_run_owed"},
    "followers": {"tenure_job_after", "tenure_run_open"},
    "wakes": {"tenure_run_waiting", "tenure_run_began"},
    "runs_in_state": {"tenure_run_of_application"},
    "final_states": {"tenure_run_of_application"},
    "open_in_lanes": {"tenure_run_due"},
    "open_waiting": {"tenure_run_waiting"},
    "open_running": {"tenure_run_running"},
    "last_failures": {"tenure_run_of_application"},
    "newest_final": {"tenure_run_of_job"},
    "tally_final": {"tenure_run_of_application"},
    "tally_open": {"tenure_run_open", "tenure_run_waiting", "tenure_run_running"},
    "runs_reaching": {"tenure_run_several"},
    "figures": {"tenure_run_of_job"},
    "past": {"tenure_run_of_job"},
    "past_others": {"tenure_run_of_job"},
    "past_reaching": {"tenure_run_several"},
    "runs_of_job": {"tenure_run_of_job"},
    "runs_open": {"tenure_run_open"},
    "runs_to_count": {"tenure_run_of_job"},
    "open_hours": {"tenure_job_hour_open"},
    "days_to_close": {"tenure_job_hour_of_application"},
    "old_days": {"tenure_job_day_of_application"},
    "job_marks": {"tenure_run_of_job", "tenure_run_open"},
    "dead_nodes": {"tenure_node_ended"},
    "open_alerts": {"tenure_alert_open"},
    "alert_history": {"tenure_alert_opened"},
    "unsent_messages": {"tenure_alert_message_unsent", "tenure_alert_message_alert"},
    "alert_messages": {"tenure_alert_message_alert"},
    "old_alerts": {"tenure_alert_closed"},
}
"""What each of the frequent questions must be answered by."""

SORTED_BY_INDEX = {
    "due_in_lane",
    "unplanned",
    "waiting",
    "runs_in_state",
    "runs_of_job",
    "figures",
    "missed_runs",
    "owed",
    "oldest",
    "last_runs",
    "last_failures",
    "newest_final",
    "alert_history",
    "unsent_messages",
    "old_alerts",
}
"""Lists that end at a limit, which is of no use if everything has to be sorted first."""

FILL = """
WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 5000)
INSERT INTO tenure_run (job, application, lane, key, kind, state, generation, scheduled_for, due_at, expires_at)
SELECT n % 3, 'app', n % 3, n, 'due', CASE WHEN n % 100 = 0 THEN 'pending' ELSE 'succeeded' END, 1, n, n, n + 60 FROM number
"""


@pytest.fixture(params=["empty", "analysed"])
def connection(request, sqlite_url):
    store_for(sqlite_url).prepare()
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        if request.param == "analysed":
            connection.execute(FILL)
            connection.execute("ANALYZE")
            connection.commit()
        yield connection


def plan(connection: sqlite3.Connection, text: str) -> list[str]:
    named = dict.fromkeys(re.findall(r":(\w+)", text))
    numbered = [int(number) for number in re.findall(r"\?(\d+)", text)]
    values = named or [None] * max(numbered, default=text.count("?"))
    return [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + text, values)]


def tables_scanned(lines: list[str]) -> list[str]:
    """Scans of anything but the values that were handed in, the live nodes, or what another line of the plan found."""
    found = {line.split()[1] for line in lines if line.startswith(("CO-ROUTINE", "MATERIALIZE"))}
    few = ("VIRTUAL TABLE", "tenure_node_alive")
    scans = [line for line in lines if line.startswith("SCAN") and not any(word in line for word in few)]
    return [line for line in scans if line != "SCAN CONSTANT ROW" and line.split()[1] not in found]


@pytest.mark.parametrize("name", sorted(set(sql()) - {"applications"}))
def test_nothing_reads_a_whole_table(connection, name):
    lines = plan(connection, sql()[name])
    assert tables_scanned(lines) == []
    if name in SORTED_BY_INDEX:
        assert "USE TEMP B-TREE FOR ORDER BY" not in lines


@pytest.mark.parametrize("name", sorted(INDEXES))
def test_the_frequent_questions_have_indexes_of_their_own(connection, name):
    used = {index for line in plan(connection, sql()[name]) for index in re.findall(r"INDEX (tenure_\w+) \(", line)}
    assert used == INDEXES[name]


def test_a_scan_is_noticed(connection):
    assert tables_scanned(plan(connection, "SELECT * FROM tenure_run r WHERE r.reason = :reason")) == ["SCAN r"]
