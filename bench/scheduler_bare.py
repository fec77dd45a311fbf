"""The limit: psycopg alone, sending the statements that a node sends: `scheduler_bare.py URL COUNT`, as
scheduler_node.py.

One thread claims what is due when it is due, another one ends it; there are no bodies, and nothing is made of the
answers.
"""

import json
import sys
import threading
import time
import uuid
from queue import SimpleQueue
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row
from scheduler_load import APPLICATION

from tenure.stores.postgres.arrays import doubles, longs, register, texts
from tenure.stores.postgres.ledger import load

SQL = load("tenure", "DESC")
BATCH = 500
JOIN = "INSERT INTO tenure.node (id, ttl, label) VALUES (%s, 3600, 'bare')"


def connect(url: str) -> psycopg.Connection[Any]:
    connection = psycopg.connect(url, autocommit=True, prepare_threshold=0, row_factory=namedtuple_row)
    register(connection)
    return connection


class Bare:
    """Claims and endings over two connections."""

    def __init__(self, url: str) -> None:
        self._claims, self._ends = connect(url), connect(url)
        self._node = str(uuid.uuid4())
        self._claims.execute(JOIN, [self._node])
        self._look: dict[str, object] = dict.fromkeys(
            ("functions", "queues", "lanes", "others", "server", "seen", "due_from", "expires_from")
        )
        self._ended: SimpleQueue[tuple[list[int], str] | None] = SimpleQueue()
        self.starts: list[tuple[float, float]] = []
        self.stopping = threading.Event()
        self._ender = threading.Thread(target=self._end, daemon=True)
        self._ender.start()

    def work(self, count: int) -> tuple[float, float]:
        """Until so many were claimed, or until told; when the first claim was sent, and when the last ending was
        answered."""
        began, claimed = 0.0, 0
        while not self.stopping.is_set() and (not count or claimed < count):
            sent = time.time()
            next_at, more, ids, ready = self._claim()
            if ids:
                began = began or sent
                claimed += len(ids)
                at = time.time()
                self.starts += [(at, due) for due in ready]
            if not more:
                time.sleep(min(max((next_at or at_most()) - time.time(), 0.0), 0.5))
        self._ended.put(None)
        self._ender.join()
        return began, time.time()

    def _claim(self) -> tuple[float | None, bool, list[int], list[float]]:
        token = str(uuid.uuid4())
        values = {
            "node": self._node,
            "application": APPLICATION,
            "token": token,
            "limit": BATCH,
            "as_of": None,
            **self._look,
        }
        row = self._claims.execute(SQL["claim"], values, binary=True).fetchone()
        assert row
        self._look |= {name: getattr(row, name) for name in ("server", "seen", "due_from", "expires_from")}
        if row.lanes is not None:
            self._look |= {"lanes": longs(row.lanes), "others": longs(row.others)}
        if row.ids:
            self._ended.put((row.ids, token))
        return row.next_at, row.more, row.ids or [], row.ready or []

    def _end(self) -> None:
        while (claimed := self._ended.get()) is not None:
            ids, token = claimed
            size, now = len(ids), time.time()
            values = {
                "ids": longs(ids),
                "tokens": texts([token] * size),
                "states": texts(["succeeded"] * size),
                "again": doubles([None] * size),
                "started": doubles([now] * size),
                "finished": doubles([now] * size),
                "reasons": None,
                "waits": None,
                "results": None,
            }
            self._ends.execute(SQL["finish"], values, binary=True)


def at_most() -> float:
    return time.time() + 0.5


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def main() -> None:
    url, count = sys.argv[1], int(sys.argv[2])
    bare = Bare(url)
    say(ready=True)
    if count:
        busy = time.process_time()
        began, ended = bare.work(count)
        say(began=began, ended=ended, runs=len(bare.starts), busy={"psycopg": time.process_time() - busy})
        sys.stdin.read()
        return
    worker = threading.Thread(target=bare.work, args=[0])
    worker.start()
    sys.stdin.read()
    bare.stopping.set()
    worker.join()
    say(starts=bare.starts)


if __name__ == "__main__":
    main()
