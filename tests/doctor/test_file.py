"""A SQLite file: every finding is provoked on a real one."""

import json
import os
import shutil
import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from doctor.examining import bad, finding, findings
from harness import scratch
from tenure import Election, doctor
from tenure.doctor import sqlite as sqlite_doctor
from tenure.stores import store_for
from tenure.stores.sqlite import filesystem


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Root may do everything; the tests of rights must not run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


class TestSqlite:
    @pytest.fixture
    def path(self, sqlite_url):
        store_for(sqlite_url).prepare()
        return Path(sqlite_url.removeprefix("sqlite:///"))

    @pytest.fixture
    def open_folder(self) -> Path:
        """A folder that an ordinary user can reach, owned by that user."""
        return scratch.new_folder("doctor")

    def write(self, path, text, *values):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(text, values)

    def add_node(self, path, label="web-1", *, state="alive"):
        """A node whose process is gone: its file is there, its lock is free."""
        from dataclasses import asdict

        from tenure.stores.host_lock import LockFile

        node = str(uuid.uuid4())
        lock = LockFile(path.with_name(path.name + "-tenure"), node)
        card = json.dumps(asdict(lock.card()))
        self.write(
            path,
            "INSERT INTO tenure_node (id, ttl, label, state, joined_at, host) VALUES (?, 10, ?, ?, 0, ?)",
            node,
            label,
            state,
            card,
        )
        return node, lock

    def test_a_healthy_file_has_no_finding(self, sqlite_url):
        with Election(sqlite_url, "billing", label="web-1") as election:
            term = election.wait_until_leading(10)
            report = doctor.diagnose(sqlite_url)
        assert bad(report) == []
        wanted = {
            "connection",
            "schema",
            "epoch",
            "silent-nodes",
            "file-system",
            "sqlite-version",
            "writable",
            "writer",
        }
        wanted |= {"journal-mode", "evidence-directory", "leftovers", "integrity", "zone-rules"}
        assert {found.code for found in report.findings} == wanted
        (holder,) = report.holders
        assert (holder.election, holder.term, holder.label) == ("billing", term.number, "web-1")
        assert (holder.healthy, holder.state, holder.process) == (True, "alive", os.getpid())

    def test_it_changes_nothing(self, path):
        before = {entry.name: entry.stat().st_mtime_ns for entry in path.parent.iterdir() if entry.is_file()}
        doctor.examine(f"sqlite:///{path}")
        assert {entry.name: entry.stat().st_mtime_ns for entry in path.parent.iterdir() if entry.is_file()} == before

    def test_a_file_that_is_not_there_is_not_made(self, tmp_path):
        report = doctor.diagnose(f"sqlite:///{tmp_path}/new.db")
        (found,) = bad(report)
        assert (found.code, found.severity, report.exit_code) == ("schema", "warning", 1)
        assert list(tmp_path.iterdir()) == []

    def test_a_folder_that_is_not_there(self, tmp_path):
        report = doctor.diagnose(f"sqlite:///{tmp_path}/nowhere/new.db")
        assert [(found.code, found.severity) for found in bad(report)] == [("connection", "problem")]
        assert report.exit_code == 3

    def test_something_else_than_a_database(self, tmp_path):
        (tmp_path / "notes.db").write_text("no database, " * 100)
        report = doctor.diagnose(f"sqlite:///{tmp_path}/notes.db")
        assert [(found.code, found.severity) for found in bad(report)] == [("connection", "problem")]
        assert report.exit_code == 3

    @pytest.mark.parametrize(("number", "severity"), [(0x6969, "problem"), (None, "note"), (0xEF53, "ok")])
    def test_the_file_system(self, path, monkeypatch, number, severity):
        monkeypatch.setattr(filesystem, "type_number", lambda _: number)
        found = finding(f"sqlite:///{path}", "file-system")
        assert found.severity == severity
        assert ("NFS" in found.what) == (severity == "problem")

    def test_an_old_sqlite(self, path, monkeypatch):
        monkeypatch.setattr(sqlite_doctor, "OLDEST_SQLITE", (99, 0, 0))
        assert finding(f"sqlite:///{path}", "sqlite-version").severity == "problem"

    def test_another_journal_mode(self, path):
        self.write(path, "PRAGMA journal_mode = DELETE")
        found = finding(f"sqlite:///{path}", "journal-mode")
        assert (found.severity, "'delete'" in found.what) == ("warning", True)
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",), "it is told, not changed"

    @pytest.mark.parametrize("what", ["file", "folder"])
    def test_what_may_not_be_written(self, open_folder, what):
        path = open_folder / "tenure.db"
        store_for(f"sqlite:///{path}").prepare()
        if os.geteuid() == 0:
            scratch.give(path)
        target = path if what == "file" else open_folder
        target.chmod(0o444 if what == "file" else 0o555)
        try:
            with ordinary_user():
                found = findings(f"sqlite:///{path}", "writable")
        finally:
            target.chmod(0o755)
        assert [(one.severity, str(target) in one.what) for one in found] == [("problem", True)]

    def test_a_missing_evidence_directory(self, path):
        directory = path.with_name(path.name + "-tenure")
        shutil.rmtree(directory)
        assert finding(f"sqlite:///{path}", "evidence-directory").severity == "ok", "no node needs it yet"
        directory.mkdir()
        _, lock = self.add_node(path)
        lock.remove()
        shutil.rmtree(directory)
        found = finding(f"sqlite:///{path}", "evidence-directory")
        assert (found.severity, "missing" in found.what) == ("problem", True)
        assert "without a lock file" in finding(f"sqlite:///{path}", "silent-nodes").what

    def test_an_evidence_directory_that_cannot_be_entered(self, open_folder):
        path = open_folder / "tenure.db"
        store_for(f"sqlite:///{path}").prepare()
        if os.geteuid() == 0:
            for entry in open_folder.iterdir():
                scratch.give(entry)
        directory = path.with_name(path.name + "-tenure")
        directory.chmod(0)
        try:
            with ordinary_user():
                found = finding(f"sqlite:///{path}", "evidence-directory")
        finally:
            directory.chmod(0o755)
        assert (found.severity, str(directory) in found.what) == ("problem", True)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
    def test_an_evidence_directory_of_somebody_else(self, path):
        os.chown(path.with_name(path.name + "-tenure"), 12345, -1)
        found = finding(f"sqlite:///{path}", "evidence-directory")
        assert (found.severity, "user 12345" in found.what) == ("problem", True)

    def test_tables_missing_outdated_and_too_new(self, path):
        url = f"sqlite:///{path}"
        self.write(path, "UPDATE tenure_schema_version SET version = 0")
        assert (finding(url, "schema").severity, "version 0" in finding(url, "schema").what) == ("problem", True)
        self.write(path, "UPDATE tenure_schema_version SET version = 900, oldest = 900")
        assert (finding(url, "schema").severity, "Upgrade" in finding(url, "schema").do) == ("problem", True)
        self.write(path, "DROP TABLE tenure_schema_version")
        assert (finding(url, "schema").severity, "no tables" in finding(url, "schema").what) == ("warning", True)

    def test_a_transaction_that_keeps_writing_and_its_process(self, path, monkeypatch):
        monkeypatch.setattr(sqlite_doctor, "LOCK_TIMEOUT", 0.05)
        need_proc = Path("/proc/locks").exists()
        with closing(sqlite3.connect(path, isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            found = finding(f"sqlite:///{path}", "writer")
            writer.execute("ROLLBACK")
        assert found.severity == "warning"
        assert f"process {os.getpid()}" in found.what or not need_proc
        assert finding(f"sqlite:///{path}", "writer").severity == "ok"

    def test_a_copy_of_the_file_is_not_settled(self, path):
        copy = path.with_name("copy.db")
        shutil.copy(path, copy)
        found = finding(f"sqlite:///{copy}", "epoch")
        assert (found.severity, str(copy.stat().st_ino) in found.what) == ("problem", True)
        self.write(path, "DELETE FROM tenure_epoch")
        assert finding(f"sqlite:///{path}", "epoch").severity == "note"

    def test_a_node_whose_lock_is_free(self, path):
        node, lock = self.add_node(path)
        self.write(
            path, "INSERT INTO tenure_election (name, term, holder, state) VALUES ('billing', 7, ?, 'held')", node
        )
        assert doctor.diagnose(f"sqlite:///{path}").holders[0].state == "alive", "this process still has its lock"
        os.close(lock.fileno())
        report = doctor.diagnose(f"sqlite:///{path}")
        (found,) = [found for found in report.findings if found.code == "silent-nodes"]
        assert (found.severity, "proven dead" in found.what) == ("warning", True)
        assert (report.holders[0].healthy, report.holders[0].state) == (False, "proven dead (its lock is free)")

    def test_a_silent_node(self, path):
        _, lock = self.add_node(path)
        past = time.time() - 90
        os.utime(lock.path, (past, past))
        found = finding(f"sqlite:///{path}", "silent-nodes")
        lock.remove()
        assert (found.severity, "silent for 1 min" in found.what) == ("warning", True)

    def test_files_that_dead_nodes_left(self, path):
        node, lock = self.add_node(path, state="dead")
        found = finding(f"sqlite:///{path}", "leftovers")
        lock.remove()
        assert (found.severity, f"{node}.lock" in found.what) == ("note", True)

    def test_a_broken_file(self, path):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("CREATE TABLE big (x)")
            connection.executemany("INSERT INTO big VALUES (?)", [("y" * 500,) for _ in range(500)])
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with path.open("r+b") as file:
            file.seek(path.stat().st_size - 4096 * 8)
            file.write(b"\xff" * 4096 * 2)
        report = doctor.diagnose(f"sqlite:///{path}")
        (found,) = [found for found in report.findings if found.code == "integrity"]
        assert (found.severity, report.exit_code) == ("problem", 1)

    def test_a_large_file_is_not_read_from_end_to_end(self, path, monkeypatch):
        monkeypatch.setattr(sqlite_doctor, "SMALL", 10)
        assert "not checked" in finding(f"sqlite:///{path}", "integrity").what
        monkeypatch.undo()
        monkeypatch.setattr(sqlite_doctor, "QUERY_TIMEOUT", -1.0)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("CREATE TABLE big (x)")
            connection.executemany("INSERT INTO big VALUES (?)", [(n,) for n in range(20_000)])
        assert finding(f"sqlite:///{path}", "integrity").severity == "note"
