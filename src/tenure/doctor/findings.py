"""Findings of the doctor: each has a stable code, a severity, what was found, why it matters and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

Severity = Literal["ok", "note", "warning", "problem"]

CODES: dict[str, str] = {
    # Both stores
    "configuration": "The configuration cannot work, so nothing was tried.",
    "connection": "Without the store no term is granted or renewed: leaders step down when their trust runs out.",
    "deadline": "What was not checked may be wrong as well.",
    "schema": "A node refuses to start on tables that are missing, too old for it, or too new.",
    "epoch": "The database is not the one that the epoch was written for (failover, restored backup, copied file). "
    "Terms may have been lost, so none is granted until every older lease has run out and the epoch is raised.",
    "silent-nodes": "A silent node keeps what it holds until another node has watched it for its ttl, or has proof of "
    "its death. If no other node runs, none watches.",
    "zone-rules": "Jobs that were defined with newer zone rules than any live node has are planned with the newest "
    "available ones: where the two differ, they run at another time. They are planned again when a node with newer "
    "rules starts.",
    # PostgreSQL
    "pooler": "Behind a pooler tenure does without LISTEN and session evidence: it notices a crash on another host "
    "after a ttl instead of seconds, and a hand-over at its next look instead of at once. All promises hold.",
    "session-lock": "A session lock is evidence only if the session keeps it. Here, bare advisory locks lead to two "
    "leaders or none, and mode='advisory' cannot work.",
    "read-only": "Heartbeats and grants are writes. A leader loses its trust, and no node can be elected.",
    "server-version": "tenure supports PostgreSQL 14 and newer.",
    "encoding": "Names, errors and log lines may be in any script. A node refuses to start on a database that cannot "
    "store them.",
    "durability": "A fence holds as long as a granted term survives a crash. Without these settings a power failure "
    "may bring back an older term, or leave a broken table.",
    "synchronous-commit": "tenure turns it on for its own transactions. Those of the application, even fenced ones, "
    "may be reported as committed and be gone after a crash.",
    "privileges": "A node whose role lacks these rights cannot join, send heartbeats or be elected.",
    "unlogged": "A crash empties unlogged tables: terms start again from low numbers, and old fences pass.",
    "timeline": "tenure recognises a promoted replica, which may have missed the last grants, by its timeline. A "
    "server that does not say which one it writes is recognised by its identity alone. That is enough on Amazon "
    "Aurora, whose nodes share one volume.",
    "latency": "A heartbeat that takes longer than attempt_timeout earns no trust; two in a row cost the term.",
    "prepared-transactions": "A prepared transaction keeps its locks without a session, even across restarts, and no "
    "timeout ends it.",
    "two-phase": "If a fenced transaction is prepared and committed later, the next term has to wait until then: "
    "two-phase commit is not supported with a fence.",
    "blockers": "While a transaction keeps a row of tenure's locked, its election cannot change hands and its node "
    "cannot be declared dead; a table lock stops all heartbeats.",
    "snapshots": "While an old snapshot is held, vacuum removes nothing that has died since. Claims do not get slower, "
    "but tables and indexes grow, planning and listing runs slow down, and the disk fills.",
    "zombie-sessions": "A session lock without a live node behind it is left over from a frozen process, or from a "
    "connection that the network dropped. It takes up a connection, and in mode='advisory' it keeps the others out.",
    "slots": "A node that finds no free connection cannot send heartbeats: it loses its trust although nothing else is "
    "wrong.",
    "clock": "Only the times shown to readers differ. tenure decides nothing from them.",
    "visibility": "What cannot be seen may be wrong as well.",
    # SQLite
    "file-system": "Locks mean nothing on a file system that other machines may write: two nodes may lead, and the "
    "file may break.",
    "sqlite-version": "tenure uses statements that older versions do not know.",
    "writable": "Grants are writes, and write-ahead logging needs files beside the database.",
    "journal-mode": "Without write-ahead logging readers wait for writers: a long transaction of the application stops "
    "the heartbeats.",
    "evidence-directory": "All nodes write their heartbeats into files in this folder. A node that cannot write there "
    "cannot take part, and one whose file cannot be read must be watched through the database.",
    "writer": "SQLite has one writer at a time. Heartbeats go on, but no node can join, be elected or resign until it "
    "ends.",
    "leftovers": "Files of nodes that are gone. They do no harm and take up little space.",
    "integrity": "A broken file may forget terms or repeat them.",
}
"""Every code, and why it matters."""


def zone_rules(jobs: Sequence[tuple[str, str, str]]) -> tuple[str, Severity, str, str]:
    """The finding about jobs (name, defined with, planned with) that are planned with older zone rules."""
    if not jobs:
        return "zone-rules", "ok", "no job is planned with older zone rules than it was defined with", ""
    names = ", ".join(repr(name) for name, _, _ in jobs[:5])
    names += " and others" if len(jobs) > 5 else ""  # noqa: PLR2004 - the query reads one more than is shown
    written, planned = max(job[1] for job in jobs), jobs[0][2]
    what = (
        f"planned with the zone rules of tzdata {planned}, although defined with {written}, which no live node has: "
        f"{names}"
    )
    return "zone-rules", "warning", what, f"Upgrade the tzdata package of the nodes to {written} or newer."


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    code: str
    severity: Severity
    what: str
    """What was found, with names and numbers."""
    why: str
    """Why it matters."""
    do: str
    """What to do; empty where there is nothing to do."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who leads an election, as far as can be known from here."""

    election: str
    term: int
    mode: str
    node: str
    label: str
    since: datetime | None
    healthy: bool
    state: str
    """Human-readable: alive, silent for 30 s, proven dead …"""
    process: int | None = None
    """The process on its host."""
    session: int | None = None
    """The server process of the session that holds its lock (PostgreSQL)."""
    client: str | None = None


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock on one of tenure's tables or sessions: held, or waited for."""

    target: str
    mode: str
    granted: bool
    pid: int | None
    """None for a prepared transaction, which `application` then names."""
    user: str | None
    application: str | None
    client: str | None
    state: str | None
    since: datetime | None
    waits_for: tuple[int, ...] = ()


@dataclass(slots=True)
class Report:
    """An examination, complete or as far as it got."""

    store: str = ""
    server: str = ""
    reachable: bool = False
    findings: list[Finding] = field(default_factory=list)
    holders: list[Holder] = field(default_factory=list)
    locks: list[Lock] = field(default_factory=list)

    def add(self, code: str, severity: Severity, what: str, *, do: str = "") -> None:
        """Enter a finding; the reason comes from the code."""
        self.findings.append(Finding(code, severity, what, CODES[code], do))

    def ok(self, code: str, what: str) -> None:
        self.add(code, "ok", what)

    def note(self, code: str, what: str, *, do: str = "") -> None:
        self.add(code, "note", what, do=do)

    def warning(self, code: str, what: str, *, do: str = "") -> None:
        self.add(code, "warning", what, do=do)

    def problem(self, code: str, what: str, *, do: str = "") -> None:
        self.add(code, "problem", what, do=do)

    def copy(self) -> Report:
        """A copy that the examination does not change any more."""
        return replace(self, findings=list(self.findings), holders=list(self.holders), locks=list(self.locks))

    @property
    def exit_code(self) -> int:
        """3 if the store could not be reached, 1 if there is something to do, else 0."""
        if not self.reachable:
            return 3
        return int(any(finding.severity in {"warning", "problem"} for finding in self.findings))
