"""What every topic gets: the servers of this run, how much to measure, and the report."""

from __future__ import annotations

import itertools
import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from report import Report

from cluster import HERE, Cluster
from harness import scratch
from harness.pgbouncer import PgBouncer, find
from harness.postgres import Postgres

_numbers = itertools.count(1)


@dataclass
class Bench:
    """One run. `quick` takes tiny counts: it shows that everything works, its times mean nothing."""

    report: Report
    server: Postgres
    quick: bool = False
    long: bool = False
    stack: ExitStack = field(default_factory=ExitStack)

    @property
    def standbys(self) -> int:
        return self.count(4, 2)

    def count(self, usual: int, quick: int) -> int:
        return quick if self.quick else usual

    def database(self) -> str:
        """The URL of a fresh PostgreSQL database."""
        return self.server.create_database()

    def file(self) -> str:
        """The URL of a fresh SQLite file on disk."""
        return f"sqlite:///{scratch.new_folder('sqlite') / 'app.db'}"

    def urls(self) -> dict[str, str]:
        return {"PostgreSQL": self.database(), "SQLite": self.file()}

    def pooled(self, url: str) -> str | None:
        """The same database through pgbouncer in transaction mode, if there is one."""
        if find() is None:
            return None
        bouncer = self.stack.enter_context(PgBouncer(self.server))
        return bouncer.url(url.rpartition("/")[2])

    def candidates(self, name: str, url: str, *, size: int = 0, **options: object) -> Cluster:
        """A cluster of our own candidates: a leader and the standbys of this run, unless another size is asked for."""
        script: list[object] = [HERE / "candidate.py", url, f"bench-{next(_numbers)}", json.dumps(options)]
        return self.stack.enter_context(Cluster(name, script, size or 1 + self.standbys))

    def peers(self, name: str, script: str, *args: object) -> Cluster:
        """A cluster of another kind, from a file in peers/."""
        return self.stack.enter_context(Cluster(name, [HERE / "peers" / script, *args], 1 + self.standbys))

    def folder(self, prefix: str) -> Path:
        return scratch.new_folder(prefix)
