"""The database, the folder of notes and the processes of the demo, all removed afterwards."""

from __future__ import annotations

import itertools
import json
import os
import secrets
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tenure.demo.part import scheduler_for
from tenure.scheduler import Scheduler
from tenure.stores import Store, store_for


@dataclass
class Actor:
    """One process of the demo: its state, its notes and its accidents."""

    label: str
    process: subprocess.Popen[bytes]
    path: Path
    state: str = "starting"
    term: int | None = None
    thaw_at: float | None = None
    was_frozen: bool = False
    killed_at: float | None = None
    read_to: int = 0

    @property
    def pid(self) -> int:
        return self.process.pid

    def news(self) -> Iterator[dict[str, Any]]:
        """Notes written since the last call."""
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(self.read_to)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self.read_to += len(line)
                yield json.loads(line)

    def notes(self) -> list[dict[str, Any]]:
        """All notes."""
        return list(Actor(self.label, self.process, self.path).news())


class Stage:
    """The database, the folder and the processes of the demo; removes them at the end."""

    def __init__(self, postgres: str | None) -> None:
        self._postgres = postgres
        self.schema = f"tenure_demo_{secrets.token_hex(4)}" if postgres else "tenure"
        self.actors: list[Actor] = []
        self._number = itertools.count(1)

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="tenure-demo-"))
        try:
            self.url = self._postgres or f"sqlite:///{self.folder / 'demo.db'}"
            self.store = store_for(self.url, schema=self.schema)
            self.store.prepare()
            self._execute("CREATE TABLE demo_invoice (run TEXT NOT NULL)")  # no key, so that duplicates can be seen
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_all()
        if self._postgres:
            self._execute(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE")  # our own name
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def scheduler(self) -> Scheduler:
        """A scheduler for queries; it runs nothing."""
        return scheduler_for(self.store, self.schema, capacity=0)

    def enter(self) -> Actor:
        """Start one more process. It ends when its standard input does, even if the demo is killed."""
        label = f"node-{next(self._number)}"
        path = self.folder / f"{label}.jsonl"
        process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "tenure.demo", label, str(path), self.schema],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TENURE_URL": self.url},
            process_group=0,
        )
        actor = Actor(label, process, path)
        self.actors.append(actor)
        return actor

    def end_all(self) -> None:
        """Kill and reap every process, frozen or not."""
        for actor in self.actors:
            actor.process.kill()
        for actor in self.actors:
            actor.process.wait()
            if actor.process.stdin:
                with suppress(BrokenPipeError):
                    actor.process.stdin.close()

    def invoices(self) -> list[str]:
        """Keys of the runs whose effect is in the database, once per effect."""
        return [str(row[0]) for row in self._execute("SELECT run FROM demo_invoice")]

    def _execute(self, sql: str) -> list[tuple[Any, ...]]:
        store: Store = self.store
        if not self._postgres:
            with closing(sqlite3.connect(self.folder / "demo.db", timeout=10.0)) as file:
                rows: list[tuple[Any, ...]] = file.execute(sql).fetchall()
                file.commit()
                return rows
        from tenure.stores.postgres.store import PostgresStore

        assert isinstance(store, PostgresStore)  # noqa: S101 - it has a PostgreSQL URL
        with store.connect("demo", 10.0) as connection:
            connection.execute(f"SET search_path TO {self.schema}")
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []
