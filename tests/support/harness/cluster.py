"""Candidates of one election as real processes, and the verdict over what all of them believed."""

import json
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from harness import belief, scratch
from harness.processes import SUPPORT, Worker

CANDIDATE = SUPPORT / "workers" / "candidate.py"


class Candidate(Worker):
    """A worker that runs `candidate.py`."""

    def __init__(self, label: str, options: Mapping[str, Any], env: Mapping[str, str]) -> None:
        super().__init__(CANDIDATE, json.dumps(options), env=env)
        self.label = label
        self._parsed: list[dict[str, Any]] = []

    @property
    def events(self) -> list[dict[str, Any]]:
        """All that it has said so far."""
        for line in self.lines[len(self._parsed) :]:
            self._parsed.append(json.loads(line))
        return self._parsed

    def until(self, *, within: float = 15.0, **fields: object) -> dict[str, Any]:
        """Wait until it has said this, in whichever order with other things."""
        deadline = time.monotonic() + within
        while True:
            for event in self.events:
                if fields.items() <= event.items():
                    return event
            if time.monotonic() > deadline or not self.alive:
                raise AssertionError(self.story(f"did not say {fields} within {within} s"))
            time.sleep(0.002)

    @property
    def leads(self) -> int:
        """The term that it said it leads in and did not say is over; 0 if there is none."""
        term = 0
        for event in self.events:
            match event:
                case {"event": "leads", "term": began}:
                    term = max(term, began)
                case {"event": "over" | "lost", "term": ended} if ended == term:
                    term = 0
        return term

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None


class Cluster:
    """Several candidates. Options of the election are keywords: `Cluster(tmp_path, url, ttl=2,
    host_evidence=False)`."""

    def __init__(
        self, folder: Path, url: str, *, name: str = "x", effects: bool = True, ttl: float = 2.0, **election: object
    ) -> None:
        self.url, self.name, self.effects = url, name, effects
        self.election = {"ttl": ttl, **election}
        if ttl < 10:  # as few beats as the arithmetic allows would do, but a busy machine must be given its time
            self.election = {"heartbeat_every": ttl * 0.1, "attempt_timeout": ttl * 0.3, **self.election}
        self.log = folder / "beliefs"
        self.log.mkdir()
        self.runtime = folder / "runtime"
        self.workers: list[Candidate] = []
        if effects:
            self._make_table()

    def add(
        self, url: str | None = None, *, env: Mapping[str, str] | None = None, wait: bool = True, **more: object
    ) -> Candidate:
        """Start a candidate; with `wait`, return when it takes part."""
        label = "abcdefghijklmnopqrstuvwxyz"[len(self.workers)]
        options = {
            "url": url or self.url,
            "effects_url": self.url,
            "name": self.name,
            "label": label,
            "log": str(self.log),
            "election": self.election,
            "effects": self.effects,
            **more,
        }
        worker = Candidate(label, options, {"TENURE_RUNTIME_DIR": str(self.runtime), **(env or {})})
        self.workers.append(worker.start())
        if wait:
            worker.wait_event(event="started", within=20)
        return worker

    def start(self, count: int = 3, **more: Any) -> "Cluster":
        """Start so many candidates at once."""
        added = [self.add(wait=False, **more) for _ in range(count)]
        for worker in added:
            worker.wait_event(event="started", within=20)
        return self

    def leader(self, *, after: int = 0, within: float = 25.0) -> tuple[Candidate, int]:
        """Wait until some living candidate leads in a term after that one: who, and in which."""
        deadline = time.monotonic() + within
        while True:
            for worker in self.workers:
                if worker.alive and worker.leads > after:
                    return worker, worker.leads
            if time.monotonic() > deadline:
                raise AssertionError(f"nobody leads after term {after} within {within} s\n{self.stories()}")
            time.sleep(0.005)

    def freeze(self, worker: Candidate) -> None:
        """Freeze a candidate outside its write transactions: a process frozen inside one holds up all writers of a
        SQLite file until it goes on."""
        for _ in range(50):
            worker.freeze()
            if not self.url.startswith("sqlite") or self._others_can_write():
                return
            worker.thaw()
        raise AssertionError(worker.story("was inside a write transaction whenever it was frozen"))

    def _others_can_write(self) -> bool:
        with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=0.3, isolation_level=None)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
                other.execute("ROLLBACK")
            except sqlite3.OperationalError:
                return False
            return True

    def eventually(self, true: Callable[[], object], within: float = 20.0) -> None:
        """Wait for what no event announces, and tell what everybody said if it does not come."""
        try:
            scratch.eventually(true, within=within)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.stories()}") from None

    def others(self, than: Candidate) -> list[Candidate]:
        return [worker for worker in self.workers if worker is not than and worker.alive]

    def verify(self, *, terms: int = 1) -> belief.Report:
        """End all and judge: one believer at a time, terms that grow, effects in the order of their terms."""
        for worker in self.workers:
            worker.kill()
        report = belief.check(self.log)
        try:
            report.verify(terms=terms)
            if self.effects:
                self.verify_effects()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.stories()}") from None
        return report

    def verify_effects(self) -> int:
        """What the database itself has to say. A row's number is drawn before its fence, and a term is granted after
        all fences of the one before have been committed: in the order of numbers, terms never go back."""
        rows = self.query("SELECT id, term, node FROM effects ORDER BY id")
        newest = 0
        for number, term, node in rows:
            assert term >= newest, f"effect {number} of {node} for term {term} was committed after one of term {newest}"
            newest = max(newest, term)
        return len(rows)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """On the database, past all proxies and poolers that candidates use."""
        if self.url.startswith("sqlite"):
            lite = sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=5, isolation_level=None)
            try:
                return lite.execute(sql).fetchall()
            finally:
                lite.close()
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def stories(self) -> str:
        children = [f"child {path.stem}\n{path.read_text()}" for path in sorted(self.log.glob("*.stderr"))]
        return "\n".join([*(worker.story() for worker in self.workers), *children, *self._history()])

    def _history(self) -> list[str]:
        """The terms as the database has them, if it answers."""
        table = "tenure_term" if self.url.startswith("sqlite") else "tenure.term"
        try:
            return [
                str(row) for row in self.query(f"SELECT number, label, began_by, ended_by FROM {table} ORDER BY number")
            ]
        except (psycopg.Error, sqlite3.Error) as error:
            return [f"(no history: {error})"]

    def _make_table(self) -> None:
        number = "INTEGER PRIMARY KEY AUTOINCREMENT" if self.url.startswith("sqlite") else "bigserial PRIMARY KEY"
        self.query(f"CREATE TABLE effects (id {number}, term bigint NOT NULL, node text NOT NULL)")
