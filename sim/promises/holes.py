"""Every hole that the two attacks on the design found to break a promise, and where it is held shut: by a mutant here,
or by a test elsewhere."""

from __future__ import annotations

from typing import NamedTuple


class Hole(NamedTuple):
    """A row of an attack: 2.4 is the fourth of the second."""

    number: str
    what: str
    elsewhere: str = ""
    """What is not modelled here, and the test that has it."""


HOLES: tuple[Hole, ...] = (
    Hole("1.1", "two attempts of a run execute", "bodies that overstay their timeout: tests/scheduling/test_engine.py"),
    Hole("1.2", "a count of running runs without a lock is write skew", "in SQL: tests/stores/ledger/test_races.py"),
    Hole("1.3", "a stored time, or an outage, makes live nodes dead"),
    Hole("1.4", "a later ending overwrites an earlier one"),
    Hole("1.5", "a refused completion that is committed all the same", "in SQL: tests/transactions/test_effects_races.py"),
    Hole("1.6", "a claim or an ending with an unknown outcome"),
    Hole("1.8", "a fence that fences nothing", "savepoints, autocommit: tests/transactions/test_fence_postgres.py, tests/transactions/test_fence_sqlite.py"),
    Hole("1.9", "the timeline is read where it is old", "no control file here: tests/cluster/test_belief_failover.py, with a promoted standby"),
    Hole("1.10", "grants and rows that were lost in a failover"),
    Hole("1.11", "an expiry that is read and not watched"),
    Hole("1.12", "a session that ended, and no wait"),
    Hole("1.13", "clock rates of 25 % each way"),
    Hole("1.14", "runs planned before an outage bypass `missed`"),
    Hole("1.15", "jobs edited between planning and due"),
    Hole("1.16", "a database clock that was far ahead for a while", "tests/scheduling/test_scheduler_clocks.py, tests/scheduling/test_loop.py, tests/core/test_database_clock.py"),
    Hole("1.17", "a crash between claim and start", "a delay, and times are not judged here: tests/scheduling/test_scheduler_faults.py"),
    Hole("1.18", "a planner that is frozen while it holds rows", "no lock outlives its statement, here as in SQL: tests/scheduling/test_scheduler_servers.py"),
    Hole("1.19", "proof of death while children work; a child that unlocks", "process pools: tests/scheduling/test_scheduler_processes.py"),
    Hole("1.20", "a watch from the sending; a declaration that compares nothing"),
    Hole("1.25", "two versions of tzdata or of the code plan in turn", "one version here: tests/stores/ledger/test_sync.py, tests/scheduling/test_scheduler_faults.py"),
    Hole("1.28", "SQLite: clocks, namespaces, long transactions", "not simulated: tests/cluster/test_belief_clocks.py, tests/stores/test_conformance.py"),
    Hole("2.1", "a beat takes away what is still on its way"),
    Hole("2.2", "a heartbeat or a reconciliation older than what it speaks of"),
    Hole("2.3", "claims of the dead, and runs left with them", "in SQL: tests/stores/ledger/test_races.py"),
    Hole("2.4", "sessions that the row does not name, late beats"),
    Hole("2.5", "an epoch that is lost too, or raised too early", "restored and copied databases: tests/stores/test_conformance.py"),
    Hole("2.6", "a put-back that takes the next claim"),
    Hole("2.7", "answers to an old identity, or after a lapse"),
    Hole("2.8", "SQLite: a pulse written after a freeze", "not simulated: tests/cluster/test_belief_placed.py"),
    Hole("2.9", "`missed` cancels what waits, retries or is backfilled", "rules of the ledger, the same in all stores: tests/stores/ledger/test_missed.py, tests/stores/ledger/test_overlap.py"),
    Hole("2.10", "generations that strand runs, or come back", "rules of the ledger: tests/stores/ledger/test_change.py"),
)  # fmt: skip
