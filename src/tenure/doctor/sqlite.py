"""Examines SQLite: the file, the folder of lock files beside it, and the nodes that write their heartbeats there."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from tenure.core.cluster import Cadence, HostCard
from tenure.doctor.findings import Holder, Report, zone_rules
from tenure.errors import StoreError
from tenure.stores import Store, host_lock, statements
from tenure.stores.host_lock import Proof
from tenure.stores.row_checks import host_card
from tenure.stores.sqlite import file as sqlite_file
from tenure.stores.sqlite import filesystem
from tenure.stores.sqlite.store import OLDEST_SQLITE, SqliteStore
from tenure.util.clock import boottime, sleep, walltime
from tenure.util.durations import readable

LOCK_TIMEOUT = 0.5
"""Seconds to try for the write lock. A transaction that holds it longer delays nodes that want to be elected."""
SMALL = 64 * 2**20
"""Files up to this size are checked completely."""
QUERY_TIMEOUT = 5.0

_WAL_WRITE_BYTE = 120
_RESERVED_BYTE = 0x40000001


def examine(report: Report, store: Store, cadence: Cadence) -> None:
    """Run every check."""
    del cadence  # heartbeats go to a file of this host: there is no latency to compare a ttl with
    _Examination(report, cast("SqliteStore", store)).examine()


@dataclass(frozen=True, slots=True)
class _SeenNode:
    id: str
    label: str
    state: str
    ttl: float
    card: HostCard | None
    proof: Proof
    silent: float | None
    """Seconds since its last heartbeat; None if it has no file."""


class _Examination:
    def __init__(self, report: Report, store: SqliteStore) -> None:
        self._report, self._store, self._path = report, store, store.path
        self._statements = statements.load("doctor", "sqlite")
        self._directory = store.evidence_directory

    def examine(self) -> None:
        report, path = self._report, self._path
        report.server = f"SQLite {sqlite3.sqlite_version}"
        self._sqlite_version()
        if not path.parent.is_dir():
            report.problem(
                "connection", f"the folder {path.parent} does not exist", do="Create it, or write another path."
            )
            return
        self._file_system()
        if not path.exists():
            report.reachable = True
            if self._writable_directory():
                report.ok("writable", f"{_me()} may write in the folder {path.parent}")
            report.warning(
                "schema",
                f"the file {path} does not exist yet",
                do="Start a node or run `tenure migrate`: both create it. Or correct the path (a relative one "
                "depends on the working directory).",
            )
            return
        self._writable()
        try:
            self._contents()
        except sqlite3.DatabaseError as error:
            report.reachable = False
            name = getattr(error, "sqlite_errorname", "")
            do = "Write the path of a SQLite database." if name == "SQLITE_NOTADB" else "Check the file and its rights."
            report.problem("connection", f"{path} cannot be read: {error}", do=do)

    def _contents(self) -> None:
        with closing(self._open("ro")) as connection:
            tables = {name for (name,) in self._ask(connection, "tables")}
            self._report.reachable = True
            self._report.ok("connection", f"{self._path} is a SQLite database of {self._path.stat().st_size} bytes")
            self._journal_mode(connection, tables)
            self._integrity(connection)
            usable = self._schema(connection, tables)
            nodes = self._nodes(connection) if usable else []
            held = self._ask(connection, "held") if usable else []
            epoch = self._ask(connection, "epoch") if usable else []
            if usable:
                code, severity, what, do = zone_rules(
                    [(str(name), str(written), str(by)) for name, written, by in self._ask(connection, "zone_rules")]
                )
                self._report.add(code, severity, what, do=do)
        self._writer()
        self._evidence_directory(nodes)
        if usable:
            self._epoch(written=bool(epoch))
            self._silence(nodes)
            self._leftovers(nodes)
            self._holders(held, nodes)

    # The file

    def _sqlite_version(self) -> None:
        wanted = ".".join(map(str, OLDEST_SQLITE))
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            self._report.problem(
                "sqlite-version",
                f"SQLite {sqlite3.sqlite_version} is older than {wanted}",
                do="Use a Python that was built with a newer SQLite.",
            )
        else:
            self._report.ok("sqlite-version", f"SQLite {sqlite3.sqlite_version}")

    def _file_system(self) -> None:
        number = filesystem.type_number(self._path.parent)
        if found := filesystem.shared(self._path.parent):
            self._report.problem(
                "file-system",
                f"{self._path.parent} is on {found}, which other machines may write too",
                do="Move the file to a local disk, or use PostgreSQL.",
            )
        elif number is None:
            self._report.note(
                "file-system",
                "the kind of the file system is not known on this system",
                do="Make sure that it is a local disk.",
            )
        else:
            self._report.ok("file-system", f"a local file system (type {number:#x})")

    def _journal_mode(self, connection: sqlite3.Connection, tables: set[str]) -> None:
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        if mode == "wal":
            self._report.ok("journal-mode", "write-ahead logging is on")
        else:
            self._report.add(
                "journal-mode",
                "warning" if tables else "note",
                f"the journal mode is {mode!r}, not write-ahead logging",
                do="Nothing now: a node turns it on when it starts. If it was turned off, find the PRAGMA journal_mode "
                "that does so."
                if tables
                else "Nothing: the first node turns it on.",
            )

    def _integrity(self, connection: sqlite3.Connection) -> None:
        size = self._path.stat().st_size
        if size > SMALL:
            self._report.ok(
                "integrity", f"not checked: {size // 2**20} MB would take long (run PRAGMA quick_check yourself)"
            )
            return
        try:
            said = [text for (text,) in connection.execute("PRAGMA quick_check(5)")]
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorname", "") != "SQLITE_INTERRUPT":
                raise
            self._report.note(
                "integrity",
                f"the check was abandoned after {readable(QUERY_TIMEOUT)}",
                do="Run PRAGMA quick_check yourself.",
            )
            return
        except sqlite3.DatabaseError as error:
            said = [str(error)]
        if said == ["ok"]:
            self._report.ok("integrity", "PRAGMA quick_check found nothing")
        else:
            self._report.problem(
                "integrity",
                f"PRAGMA quick_check: {'; '.join(' '.join(text.split()) for text in said)}",
                do="Stop all nodes, restore a backup or `.recover` the file, and start them again: they raise the "
                "epoch.",
            )

    def _schema(self, connection: sqlite3.Connection, tables: set[str]) -> bool:
        """True if there are tables that this library can read."""
        newest = sqlite_file.known().newest
        if "tenure_schema_version" not in tables:
            self._report.warning(
                "schema",
                "this file has no tables of tenure's",
                do="Start a node or run `tenure migrate`: both create them.",
            )
            return False
        version, oldest = self._ask(connection, "version")[0]
        if oldest > newest:
            self._report.problem(
                "schema",
                f"tenure's tables have version {version} and need a library that knows version {oldest}; "
                f"this one knows {newest}",
                do="Upgrade tenure here.",
            )
            return False
        if version < newest:
            self._report.problem(
                "schema",
                f"tenure's tables have version {version}, this library needs {newest}",
                do="Run `tenure migrate`.",
            )
            return False
        self._report.ok("schema", f"tenure's tables have version {version}")
        return True

    def _writable_directory(self) -> bool:
        if _may(self._path.parent, os.W_OK | os.X_OK):
            return True
        self._report.problem(
            "writable",
            f"{_me()} may not write in the folder {self._path.parent}",
            do="Give that user write access to the folder: SQLite writes its log there, and tenure its lock files.",
        )
        return False

    def _writable(self) -> None:
        writable = self._writable_directory()
        if not _may(self._path, os.W_OK):
            self._report.problem(
                "writable", f"{_me()} may not write {self._path}", do="Give that user write access to the file."
            )
        elif writable:
            self._report.ok("writable", f"{_me()} may write the file and its folder")

    def _writer(self) -> None:
        """Take the write lock, and give it back at once."""
        with closing(self._open("rw")) as connection:
            deadline = boottime() + LOCK_TIMEOUT
            while True:
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    connection.execute("ROLLBACK")
                except sqlite3.OperationalError as error:
                    name = getattr(error, "sqlite_errorname", "")
                    if not name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                        if not name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN")):  # `writable` reports these
                            raise
                        return
                    if boottime() < deadline:
                        sleep(0.01)
                        continue
                    self._report.warning(
                        "writer",
                        f"a transaction has held the write lock for more than {readable(LOCK_TIMEOUT)}"
                        f"{_writers(self._path)}",
                        do="Find the transaction that stays open (a request, a shell, a migration) and end it.",
                    )
                else:
                    self._report.ok("writer", "the write lock is free")
                return

    # The folder beside the file, and the nodes

    def _evidence_directory(self, nodes: list[_SeenNode]) -> None:
        directory, alive = self._directory, [node for node in nodes if node.state == "alive"]
        if not os.path.lexists(directory):
            self._report.add(
                "evidence-directory",
                "problem" if alive else "ok",
                f"the folder {directory} is missing"
                + (f", and {len(alive)} nodes count as alive" if alive else ": the first node creates it"),
                do="Restart the nodes: each creates its file again. Then find out what removed the folder."
                if alive
                else "",
            )
            return
        status, database = directory.lstat(), self._path.stat()
        if why := host_lock.distrusted(directory, database):
            self._report.problem(
                "evidence-directory",
                f"the folder {directory} {why}: no node starts with it",
                do="Find out who created it, and remove it. Let no other user write to the folder of the database.",
            )
        elif not _may(directory, os.R_OK | os.W_OK | os.X_OK):
            self._report.problem(
                "evidence-directory",
                f"{_me()} cannot read and write the folder {directory} "
                f"(owner {status.st_uid}, mode {status.st_mode & 0o777:o})",
                do=f"Run all nodes as one user, or give the database and {directory} a common group, and chmod g+rw "
                "the database: the next start does the rest.",
            )
        else:
            self._report.ok("evidence-directory", f"{directory} can be read and written")

    def _nodes(self, connection: sqlite3.Connection) -> list[_SeenNode]:
        found = []
        for identity, label, state, ttl, _asked, host in self._ask(connection, "nodes"):
            card = host_card(host)
            proof = host_lock.probe(self._directory, identity, card) if card and state == "alive" else Proof.NOTHING
            last = host_lock.last_pulse_at(self._directory, identity)
            silent = None if last is None else max(walltime().timestamp() - last, 0.0)
            found.append(_SeenNode(identity, label, state, ttl, card, proof, silent))
        return found

    def _epoch(self, *, written: bool) -> None:
        if not written:
            self._report.note("epoch", "no epoch has been written yet", do="Nothing: the first node writes it.")
            return
        try:
            session = self._store.session("doctor", LOCK_TIMEOUT)
            with closing(session):
                epoch = session.epoch()
        except StoreError as error:
            self._report.note("visibility", f"not checked: the epoch ({error})", do="Run the doctor again.")
            return
        if epoch.settled:
            self._report.ok("epoch", f"epoch {epoch.number} was written for this file")
            return
        recorded, actual = epoch.recorded, epoch.actual
        self._report.problem(
            "epoch",
            f"epoch {epoch.number} is not settled: it was written for the file with inode "
            f"{recorded.relation or 'unknown'} on device {recorded.database}, but this is inode {actual.relation} on "
            f"device {actual.database} (a copy, or a restored backup)",
            do=f"A running node raises it by itself after {readable(epoch.max_ttl)}; check again then. If no node is "
            "running, start one.",
        )

    def _silence(self, nodes: list[_SeenNode]) -> None:
        alive = [node for node in nodes if node.state == "alive"]
        quiet = [node for node in alive if _state(node) != "alive"]
        for node in quiet:
            process = f", process {node.card.pid}" if node.card else ""
            self._report.warning(
                "silent-nodes",
                f"node {node.label!r} ({node.id}{process}) counts as alive but is {_state(node)}; "
                f"its ttl is {node.ttl:g} s",
                do="Check whether its process hangs. Any other node on this host declares it dead; start one if none "
                "is running.",
            )
        if not quiet:
            self._report.ok("silent-nodes", f"alive: {len(alive)}, silent: none")

    def _leftovers(self, nodes: list[_SeenNode]) -> None:
        alive = {node.id for node in nodes if node.state == "alive"}
        try:
            names = sorted(entry.name for entry in self._directory.iterdir())
        except OSError:
            return  # `evidence-directory` reports it
        left = [name for name in names if name.endswith((".lock", ".bell")) and name.rpartition(".")[0] not in alive]
        if left:
            self._report.note(
                "leftovers",
                f"{len(left)} files of nodes that are not alive in {self._directory}: {', '.join(left[:3])}"
                f"{', …' if len(left) > 3 else ''}",  # noqa: PLR2004 - enough for an example
                do="You may remove them when the processes they belonged to are gone.",
            )
        else:
            self._report.ok("leftovers", "no files of nodes that are gone")

    def _holders(self, held: list[tuple[Any, ...]], nodes: list[_SeenNode]) -> None:
        known = {node.id: node for node in nodes}
        for name, term, holder, label, since, state in held:
            node = known.get(holder)
            words = _state(node) if node else state
            self._report.holders.append(
                Holder(
                    name,
                    term,
                    "lease",
                    holder,
                    label,
                    None if since is None else datetime.fromtimestamp(since, UTC),
                    healthy=words == "alive",
                    state=words,
                    process=node.card.pid if node and node.card else None,
                )
            )

    # Queries

    def _open(self, mode: str) -> sqlite3.Connection:
        """Never creates a file, and interrupts queries that take too long."""
        connection = sqlite3.connect(f"{self._path.as_uri()}?mode={mode}", uri=True, timeout=0.05, isolation_level=None)
        deadline = boottime() + QUERY_TIMEOUT
        connection.set_progress_handler(lambda: int(boottime() > deadline), 10_000)
        return connection

    def _ask(self, connection: sqlite3.Connection, name: str) -> list[tuple[Any, ...]]:
        return connection.execute(self._statements[name]).fetchall()


def _state(node: _SeenNode) -> str:
    if node.state != "alive":
        return node.state
    if node.proof is Proof.DEAD:
        return "proven dead (its lock is free)"
    if node.silent is not None and node.silent > node.ttl:
        return f"silent for {readable(node.silent)}"
    if node.silent is None:
        return "without a lock file"
    return "alive"


def _may(path: Path, what: int) -> bool:
    return os.access(path, what, effective_ids=os.access in os.supports_effective_ids)


def _me() -> str:
    return f"user {os.geteuid()}" if hasattr(os, "geteuid") else "this user"


def _writers(path: Path) -> str:
    """The process that has the write lock, if the kernel says so.

    The lock is on one byte of the log's index, or of the database itself.
    """
    wanted = {}
    for name, byte in ((path.name + "-shm", _WAL_WRITE_BYTE), (path.name, _RESERVED_BYTE)):
        try:
            wanted[str(path.with_name(name).stat().st_ino)] = byte
        except OSError:
            continue
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return ""
    for line in lines:
        fields = line.split()
        # Waiting locks have one field more, an arrow.
        if len(fields) < 8 or fields[1] != "POSIX" or fields[3] != "WRITE":  # noqa: PLR2004
            continue
        inode = fields[5].rpartition(":")[2]
        end = float("inf") if fields[7] == "EOF" else int(fields[7])
        if inode in wanted and int(fields[6]) <= wanted[inode] <= end:
            return f" (process {fields[4]})"
    return ""
