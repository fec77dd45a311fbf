"""What must hold, looked at whenever something happens, and once more when everything has been calm for a while.

G1  nothing fenced with a lower term commits after a higher one was granted; the numbers of an election only ever grow
G2  no two processes believe at the same moment that they lead the same unfenced election
G3  one run for (job, key); of its attempts never two that can complete; never two bodies of it on nodes that are trusted;
    its attempts are numbered without a hole, and at most the last of them is open;
    never more than `max_running` of a job at once, nor more runs of a pool than its size
    every attempt is a success, a failure, a loss, an interruption or a look, and counted once
    a run that has succeeded is not called again; a retried run keeps its key; a slot has at most one run that has not begun
G4  at the end every due time is final or explained (the audit is clean), and nothing is left with a node that is not alive
    every run of a job that others follow has a run of each of them, of the same key and due time, or a row that says why not
    nothing that was claimed before a pause begins after the pause has returned without naming a node
G5  what was committed together with the completion of a run took effect once
G6  at the end everybody is trusted, every election has a leader, and nothing that is due waits
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sim.database.server import Server
from sim.runtime import copies
from sim.runtime.kernel import K, Killed, Process
from tenure.core.audit import JobAudit, audit
from tenure.core.audit_following import ParentPast, audit_follower, followed_jobs, merged
from tenure.core.cluster import NodeId
from tenure.core.messages import ClaimedRun, Planned, RunQuery, Synced
from tenure.core.records import UNSET_SIZE, AttemptOutcome, JobId, JobRow, JobState, RunId, RunKind, RunState
from tenure.core.run_rules import AFTER, followed, places

APPLICATION = "sim"
ELECTION = "exporter"
TWO = 2
PATIENCE = 8.0
"""For how long after the calm something due may still be on its way."""
TICK = 1e-5
LONG_WAIT = 20.0
PUT_OFF = 75.0
"""No planner looks so far ahead."""
Work = tuple[int, str]
"""A run: its job and its key."""


@dataclass(slots=True, eq=False)
class Body:
    """One body that executes."""

    process: Process
    run: Any
    work: Work

    @property
    def trusted(self) -> bool:
        """Its node is alive, as far as it knows itself, and its lease holds."""
        return self.process.alive and bool(seen_by(self.process, lambda: K.boottime() < self.run._control.until))


def seen_by(process: Process, question: Any) -> Any:
    """What a process would answer at this very moment, frozen or not."""
    before, K.process = K.process, process
    observing, K.observing = K.observing, True
    try:
        return question()
    finally:
        K.process, K.observing = before, observing


class Checker:
    """Knows what was granted, claimed and begun; `violations` says what was broken."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.violations: list[str] = []
        self.processes: list[Process] = []
        self.terms: Counter[str] = Counter()
        self.highest: dict[str, int] = {}
        self.standing: dict[str, int] = {}
        """As `highest`, without grants that were lost in a failover: what was committed under these is lost with them."""
        self.attempts = 0
        self.succeeded: Counter[Work] = Counter()
        self.effects: Counter[Work] = Counter()
        self.losses: Counter[Work] = Counter()
        self._tokens: dict[Work, str] = {}
        self._bodies: dict[Work, list[Body]] = {}
        self._exempt: set[Work] = set()
        self._doubles: set[Work] = set()
        self._ended: set[tuple[str, int]] = set()
        self._paused: dict[int, int] = {}
        """The generations with which pauses have returned."""
        self._looking: dict[Work, float] = {}
        """When the first body of a run began that raised NotYet."""
        self._called: dict[Work, int] = {}
        """The number of the last attempt whose body was called."""
        self._reopened: dict[Work, int] = {}
        """The same when the run was last reopened."""

    def broken(self, promise: str, text: str) -> None:
        """A promise was broken."""
        self.violations.append(f"{promise} at {K.now:.3f}: {text}")

    # Elections

    def stepped(self) -> None:
        """Something about the standing of the present process has changed: whoever leads leads alone, and whoever runs a body does."""
        mine = K.process
        for work in self._doubles:
            trusted = [body.process for body in self._bodies[work] if body.trusted]
            if len(trusted) > 1:
                self.broken("G3", f"run {work[1]} executes on {trusted[0]} and on {trusted[1]}, both trusted again")
        election = mine.things.get("election") if mine is not None else None
        if mine is None or not mine.alive or election is None or not seen_by(mine, lambda: election.is_leader):
            return
        if (mine.name, election.candidacy._term.number) in self._ended:
            self.broken("G2", f"{mine} believes again in term {election.candidacy._term.number}, which was over")
        for other in self.processes:
            theirs = other.things.get("election")
            if other is mine or not other.alive or theirs is None:
                continue
            if seen_by(other, lambda: theirs.is_leader):  # noqa: B023 - asked at once
                terms = f"{mine} in term {election.term.number if election.term else 0}, {other} in {theirs.candidacy._term.number}"
                self.broken("G2", f"two believers: {terms}")

    def granted(self, name: str, term: int, node: NodeId, *, fenced: bool) -> None:
        """The server granted a term."""
        del node, fenced
        self.terms[name] += 1
        if term <= self.highest.get(name, 0):
            self.broken("G1", f"term {term} of {name!r} granted after {self.highest[name]}")
        self.highest[name] = max(term, self.highest.get(name, 0))
        self.standing[name] = max(term, self.standing.get(name, 0))

    def declared(self, node: NodeId) -> None:
        """A node was declared dead: it must not trust itself any more."""
        for process in self.processes:
            seat = process.things.get("node")
            if seat is None or not process.alive:
                continue
            if seen_by(process, lambda: seat.id == node and K.boottime() < seat.lease_until):  # noqa: B023 - asked at once
                self.broken("G3", f"{process} was declared dead while it was trusted")

    def withdrawn(self, name: str, term: int, reason: str) -> None:
        """A process gave up a term because the database no longer gives it: then it must not. A later grant that was lost in a failover counts: it was told of it before."""
        process = K.process
        e = self.server.rows.elections.get(name)
        if process is not None and name == ELECTION:
            self._ended.add((process.name, term))
        if reason.startswith("the database no longer") and e is not None and process is not None:
            node = process.things["node"].id if "node" in process.things else ""
            if (e.term, e.holder, e.held) == (term, node, True) and self.highest.get(name, 0) <= term:
                self.broken("G6", f"{process} gave up term {term} of {name!r}, which it has")

    def fenced(self, name: str, term: int) -> None:
        """A fenced transaction committed."""
        if term < self.standing.get(name, 0):
            self.broken(
                "G1", f"a transaction fenced with term {term} committed after {self.standing[name]} was granted"
            )

    # Runs

    def claimed(self, runs: Iterable[ClaimedRun], token: str, node: NodeId, *, doubted: bool = False) -> None:
        """The server gave runs to a node."""
        rows = self.server.rows
        for run in runs:
            work = (run.job, run.key)
            found, now = rows.tables.runs[run.id], rows.now()
            if not doubted and found.due_at > now:
                self.broken("G4", f"run {run.key} of {run.name} was claimed {found.due_at - now:.3f} s early")
            if not doubted and found.expires_at is not None and found.expires_at <= now:
                self.broken("G4", f"run {run.key} of {run.name} was missed, and claimed all the same")
            if not rows.alive(node):
                self.broken("G4", f"run {run.key} of {run.name} was given to {node}, which is not alive")
            if rows.tables.jobs[run.job].state is not JobState.ACTIVE:
                self.broken("G4", f"run {run.key} of {run.name} was claimed while its job was not active")
            if work in self._tokens:
                self.broken("G3", f"run {run.key} of {run.name} was claimed while another attempt could complete")
            self._count_attempts(found)
            self._tokens[work] = token
            limit = run.rules.max_running
            if limit is not None and rows.tables.began(run.job) > limit:
                self.broken("G3", f"{rows.tables.began(run.job)} runs of {run.name} began, {limit} may")
            if run.rules.pool is not None:
                pool = rows.tables.pool(APPLICATION, found.pool)
                if pool.running > (pool.size or UNSET_SIZE):
                    self.broken("G3", f"{pool.running} runs of the pool {pool.name} run, {pool.size or UNSET_SIZE} may")

    def _count_attempts(self, run: Any) -> None:
        """Every attempt of a run is in the ledger, and at most the last is open."""
        attempts, most = run.all_attempts(), run.attempt
        numbers = [(attempt.number - attempt.count + 1, attempt.number) for attempt in attempts]
        if [first for first, _ in numbers] + [most + 1] != [1] + [last + 1 for _, last in numbers]:
            self.broken("G3", f"run {run.key} has had {most} attempts, and the ledger has {numbers}")
        if any(attempt.outcome is AttemptOutcome.RUNNING for attempt in attempts[:-1]):
            self.broken("G3", f"run {run.key} has an attempt that is open though another one followed")

    def ended(self, run: int, token: str, state: RunState) -> None:
        """The ledger accepted an ending."""
        if (found := self.server.rows.tables.runs.get(run)) is None:
            self.broken("G3", f"an attempt of run {run}, which was removed, was ended as {state.value}")
            return
        work = (found.job, found.key)
        if self._tokens.pop(work, None) != token:
            self.broken("G3", f"run {found.key}: an attempt that does not count any more was ended as {state.value}")
        if state is RunState.PENDING:
            self._tried_again(found, work)
        if state is RunState.SUCCEEDED:
            self.succeeded[work] += 1
            if self.succeeded[work] > 1 and work not in self._exempt:
                self.broken("G3", f"run {found.key} of job {found.job} succeeded {self.succeeded[work]} times")

    def retried(self, before: Mapping[RunId, str]) -> None:
        """A person has retried these runs. `before`: the keys that they had."""
        for run, key in before.items():
            found = self.server.rows.tables.runs.get(run)
            if found is None or found.key != key:
                self.broken("G3", f"run {key} has another key after a retry: {found and found.key}")
        self.slotted()

    def slotted(self) -> None:
        """Runs were requested, or are as if they had not been claimed: no slot has two."""
        for job, runs in self.server.rows.tables.open.items():
            slots = Counter(run.slot for run in runs.values() if run.slot is not None and run.attempt == 0)
            for slot, count in slots.items():
                if count > 1:
                    self.broken("G3", f"{count} runs of job {job} in {slot} have not begun")

    # Followers

    def followed_up(self, runs: Iterable[Any]) -> None:
        """The marks of these final runs were taken away."""
        for run in runs:
            self._followed(run)

    def forgets(self, runs: Iterable[Any]) -> None:
        """Retention is about to remove these runs."""
        for run in runs:
            if run.owes:
                self.broken("G4", f"run {run.key} of job {run.job} is forgotten, and its followers are owed theirs")
            else:
                self._followed(run)

    def _followed(self, run: Any) -> None:
        """Nothing is owed for a final run: each follower has what it must have."""
        tables = self.server.rows.tables
        parent = tables.jobs[run.job].spec.name
        for row in tables.followers(APPLICATION, parent):
            name, mine = row.spec.name, tables.keys[row.id].get(run.key)
            begins = followed(row.spec.rules.on, run.state, run.attempt)
            if mine is None:
                if run.kind is RunKind.MANUAL:
                    forgotten = (row.id, run.key) in tables.kept_keys
                else:
                    forgotten = run.last < row.kept_since
                if not forgotten:
                    self.broken("G4", f"run {run.key} of {parent} has ended, and {name} has neither a run nor a reason")
            elif run.kind is RunKind.MANUAL and mine.scheduled_for != run.scheduled_for:
                continue  # somebody has requested both under this key
            elif (mine.scheduled_for, mine.count) != (run.scheduled_for, run.count):
                self.broken("G4", f"run {run.key} of {name} has another due time than that of {parent}")
            elif begins and mine.state is RunState.SKIPPED and mine.reason.startswith(AFTER):
                self.broken(
                    "G4", f"run {run.key} of {name} is skipped ({mine.reason}), and that of {parent} {run.state}"
                )
            elif not begins and mine.state is RunState.PENDING and not (mine.attempt or mine.by or run.reopened):
                self.broken("G4", f"run {run.key} of {name} is to begin, and that of {parent} {run.state}")

    def _tried_again(self, run: Any, work: Work) -> None:
        """Every attempt behind a run is counted once; and nobody looks any longer than `wait_up_to`."""
        counted = run.failures + run.losses + run.interruptions + run.looks
        if run.attempt - run.reopened != counted:
            self.broken(
                "G3", f"run {run.key} has {run.attempt - run.reopened} attempts behind it, and counts {counted}"
            )
        if run.looks and run.last_look == run.attempt:
            since = self._looking.setdefault(work, run.looking_since)
            until = since + self.server.rows.tables.jobs[run.job].spec.rules.wait_up_to
            if run.due_at > until + TICK:
                self.broken("G4", f"run {run.key} looks again {run.due_at - until:.3f} s after its wait is over")

    def lost(self, run: Any, row: JobRow) -> None:
        """The ledger counted a loss."""
        self.losses[run.job, run.key] += 1
        most = 1 if row.spec.rules.on_lost == "fail" else row.spec.rules.max_lost
        if self.losses[run.job, run.key] >= most and not run.state.final:
            self.broken(
                "G4",
                f"run {run.key} of {row.spec.name} was lost {self.losses[run.job, run.key]} times and is tried again",
            )

    def interrupted(self, run: Any, row: JobRow) -> None:
        """The ledger took a run back from a node that was asked to stop, and is gone."""
        if run.losses > self.losses[run.job, run.key]:
            self.broken("G4", f"run {run.key} of {row.spec.name}: the stop of its node was counted as a loss")

    def left(self, node: NodeId) -> None:
        """A node has left: nothing of what it had in the ledger is still at work."""
        for run in self.server.rows.tables.runs.values():
            if run.node == node and run.state is RunState.RUNNING and (run.job, run.key) not in self._exempt:
                for body in self._bodies.get((run.job, run.key), ()):
                    if body.process.alive and body.run._control.claim.token == run.token:
                        self.broken("G3", f"{body.process} left the others while the body of run {run.key} was at work")

    def planned(self, batch: Iterable[Planned], before: Mapping[JobId, JobRow]) -> None:
        """A planner's batch was written: only where nobody was there since it read."""
        for planned in batch:
            old, new = before[planned.id], self.server.rows.tables.jobs[planned.id]
            if old.next_due != new.next_due and (old.next_due, old.generation) != (
                planned.next_due,
                planned.generation,
            ):
                self.broken("G4", f"an old plan of {old.spec.name} moved its next due time")

    def taken_back(self, run: int, token: str) -> None:
        """The ledger took a run back from its node."""
        found = self.server.rows.tables.runs[run]
        for body in self._bodies.get((found.job, found.key), ()):
            if body.run._control.claim.token == token and body.trusted and (found.job, found.key) not in self._exempt:
                self.broken("G3", f"run {found.key} was taken from {body.process}, where its body runs and counts")
        if self._tokens.get((found.job, found.key)) == token:
            del self._tokens[found.job, found.key]

    def effect(self, work: Work) -> None:
        """A transaction with the completion of a run committed."""
        self.effects[work] += 1
        if self.effects[work] > 1 and work not in self._exempt:
            self.broken("G5", f"run {work[1]} took effect {self.effects[work]} times")

    def paused(self, job: JobRow) -> None:
        """A pause has returned, and no node was named: nothing begins that was claimed before it. Unless the job was changed meanwhile."""
        if self.server.rows.tables.jobs[job.id].generation == job.generation:
            self._paused[job.id] = job.generation

    def synced(self, jobs: Iterable[Synced]) -> None:
        """A node has started. The code is the same in all histories, so that it changes nothing that is there: updates by hand hold."""
        for one in jobs:
            if one.was is not None and not one.row.spec.same_as(one.was.spec):
                self.broken("update", f"a start has put {one.row.spec.name} back, which was changed by hand")

    def promoted(self, old: Any, new: Any) -> None:
        """A replica took over: what was lost with it is exempt, because nobody can know of it."""
        self._paused.clear()
        self.standing = {name: election.term for name, election in new.elections.items()}
        tables, replica = old.tables, new.tables
        for run in tables.runs.values():
            twin = replica.keys.get(run.job, {}).get(run.key)
            if twin is None or (twin.state, twin.token, twin.attempt) != (run.state, run.token, run.attempt):
                self._exempt.add((run.job, run.key))
        self._doubles -= self._exempt
        self._tokens = {(r.job, r.key): r.token for r in replica.runs.values() if r.state is RunState.RUNNING}
        self.losses = Counter({(r.job, r.key): r.losses for r in replica.runs.values()})
        self._looking = {(r.job, r.key): r.looking_since for r in replica.runs.values() if r.looks}

    # Bodies

    def begun(self, run: Any) -> Body:
        """A body begins in the present process."""
        process = K.process
        assert process is not None
        if not process.alive:
            raise Killed
        body = Body(process, run, (run._control.claimed.job, run.key))
        self.attempts += 1
        bodies = self._bodies.setdefault(body.work, [])
        if not body.trusted:
            self.broken("G3", f"run {run.key} of {run.job} begins on {process}, which has no lease")
        if body.trusted and run._control.claimed.generation < self._paused.get(run._control.claimed.job, 0):
            self.broken("pause", f"run {run.key} of {run.job} begins on {process} after its job was paused")
        if body.work not in self._exempt:
            self._numbered(run, body.work)
            if self.succeeded[body.work]:
                self.broken("G3", f"run {run.key} of {run.job} is called again, though it has succeeded")
        self._called[body.work] = run.attempt
        if body.work not in self._exempt and body.trusted:
            for other in bodies:
                if other.trusted:
                    self.broken(
                        "G3", f"run {run.key} of {run.job} executes on {process} and on {other.process}, both trusted"
                    )
        bodies.append(body)
        if len(bodies) > 1 and body.work not in self._exempt:
            self._doubles.add(body.work)
        return body

    def reopened(self, work: Work) -> None:
        """A retry or a backfill opened a run again: its attempts are numbered on, its losses count from zero."""
        self._reopened[work] = self._called.get(work, 0)
        self._looking.pop(work, None)
        self.losses.pop(work, None)

    def _numbered(self, run: Any, work: Work) -> None:
        """Every call of a body has a number of its own; one that must not be repeated is not."""
        before, rules = self._called.get(work, 0), run._control.claimed.rules
        if run.attempt <= before:
            self.broken("G3", f"run {run.key} of {run.job} is called as attempt {run.attempt}, after attempt {before}")
        if before > self._reopened.get(work, 0) and rules.on_lost == "fail" and not rules.retries:
            self.broken("G3", f"run {run.key} of {run.job} is called again, though it has on_lost='fail'")

    def lose(self, attempt: Any, why: str) -> None:
        """A process forgot an attempt because the ledger took it back: then it must have."""
        run = self.server.rows.tables.runs.get(attempt.id)
        if run is None or not why.startswith("the ledger") or (run.job, run.key) in self._exempt:
            return
        if (run.state, run.token) == (RunState.RUNNING, attempt.token):
            self.broken("G6", f"{K.process} forgot run {run.key}, which it has")

    def acknowledged(self, attempt: Any) -> None:
        """A process takes an ending for told: then the ledger must have it, or another's."""
        run = self.server.rows.tables.runs.get(attempt.id)
        if run is None or (run.job, run.key) in self._exempt:
            return
        if (run.state, run.token) == (RunState.RUNNING, attempt.token):
            self.broken("G6", f"{K.process} takes its ending of run {run.key} for told, and the ledger has none")

    def inherited(self, child: Process, nodes: Iterable[Any], terms: Iterable[Any], runs: Iterable[Any]) -> None:
        """A forked child has nothing of what its parent has."""
        for term in terms:
            if seen_by(child, lambda: term.trusted):  # noqa: B023 - asked at once
                self.broken("G2", f"{child}, a forked child, believes in term {term.number} of its parent")
        for node in nodes:
            if seen_by(child, lambda: node.id or K.boottime() < node.lease_until):  # noqa: B023 - asked at once
                self.broken("G3", f"{child}, a forked child, has the lease of its parent")
        for run in runs:
            if seen_by(child, lambda: not run.lost):  # noqa: B023 - asked at once
                self.broken("G3", f"{child}, a forked child, takes run {run.key} of its parent for its own")
        if seen_by(child, lambda: child.things["engine"].started):
            self.broken("G3", f"{child}, a forked child, takes the scheduler of its parent for its own")

    def over(self, body: Body) -> None:
        """A body has returned."""
        self._bodies[body.work].remove(body)
        if len(self._bodies[body.work]) < TWO:
            self._doubles.discard(body.work)

    # The end

    def finally_(self) -> None:
        """After the calm."""
        for error in K.failures:
            self.broken("G6", f"a thread of production ended with {error!r}")
        live = [process for process in self.processes if process.alive]
        for process in live:
            seat = process.things.get("node")
            if seat is None or seen_by(process, lambda: seat.lease_until <= K.boottime()):  # noqa: B023 - asked at once
                self.broken("G6", f"{process} has no lease after the calm")
            elif not self.server.rows.alive(seat.id):
                self.broken("G6", f"{process} takes itself for {seat.id}, which is not alive")
        for which in ("election", "planner"):
            leaders = [p for p in live if (e := p.things.get(which)) is not None and seen_by(p, lambda: e.is_leader)]
            if live and len(leaders) != 1:
                self.broken("G6" if not leaders else "G2", f"{len(leaders)} lead {which} after the calm")
        self._books(live)

    def _just_ended(self, job: int) -> bool:
        """A place is free, but only since a moment: whoever waits for it is claimed with the next turn."""
        since = self.server.rows.now() - PATIENCE
        return any(run.job == job and (run.finished_at or 0.0) > since for run in self.server.rows.tables.runs.values())

    def _put_off(self, run: Any, job: JobRow) -> bool:
        """It follows another run, and is due in the far future. (What people retry while the clock is ahead is, too.)"""
        follows = job.spec.rules.after is not None and run.kind is RunKind.DUE and run.attempt == 0
        return follows and run.due_at > self.server.rows.now() + PUT_OFF

    def _books(self, live: list[Process]) -> None:
        rows = self.server.rows
        now = rows.now()
        in_hand: set[tuple[int, str]] = set()
        for process in live:
            if (executor := process.things.get("executor")) is not None:
                in_hand |= {
                    (run, attempt.token)
                    for one in (executor, *process.things.get("former", ()))
                    for run, attempt in one._in_hand.items()
                    if attempt.phase.value != "ended"
                }
        for run in rows.tables.runs.values():
            self._count_attempts(run)
        for job in rows.ledger.jobs(APPLICATION, removed=True):
            for run in rows.tables.opened(job.id):
                due = run.due_at < now - PATIENCE and job.state is JobState.ACTIVE
                full = run.attempt == 0 and places(job.spec.rules, rows.tables.began(job.id)) == 0
                if self.server.locks.get(("run", run.id)):
                    continue  # in an open transaction of its own body, which alone decides
                if run.state is RunState.RUNNING and not rows.alive(run.node):
                    self.broken("G4", f"run {run.key} of {job.spec.name} is left with a node that is not alive")
                elif (
                    run.state is RunState.RUNNING
                    and (run.id, run.token) not in in_hand
                    and run.claimed_at < now - PATIENCE
                ):
                    self.broken("G6", f"run {run.key} of {job.spec.name} is with a node that does not have it")
                elif run.state is RunState.PENDING and due and not full:
                    self.broken("G6", f"run {run.key} of {job.spec.name} waits since {now - run.due_at:.0f} s")
                elif self._put_off(run, job) and abs(rows.clock.ahead) < PUT_OFF:
                    self.broken("G6", f"run {run.key} of {job.spec.name} is put off for {run.due_at - now:.0f} s")
                elif run.state is RunState.WAITING and run.pool and run.due_at < now - LONG_WAIT:
                    pool = rows.tables.pool(APPLICATION, run.pool)
                    if pool.running < (pool.size or UNSET_SIZE) and job.state is JobState.ACTIVE and live:
                        self.broken("G6", f"run {run.key} of {job.spec.name} waits for its pool, which has a place")
                elif (
                    run.state is RunState.WAITING
                    and not run.pool
                    and not rows.tables.began(job.id)
                    and due
                    and not self._just_ended(job.id)
                ):
                    self.broken("G6", f"run {run.key} of {job.spec.name} waits for nothing")
            if job.state is JobState.ACTIVE and job.next_due is not None and job.next_due <= now and live:
                self.broken("G6", f"{job.spec.name} is not planned beyond {now - job.next_due:.0f} s ago")
            if job.next_due is not None and job.next_due > now + PUT_OFF:
                self.broken("G6", f"{job.spec.name} is silent for {job.next_due - now:.0f} s to come")
            for run in rows.tables.keys[job.id].values():
                if run.state.final and not run.owes:
                    self._followed(run)
                elif run.state.final and (run.finished_at or run.scheduled_for) < now - PATIENCE:
                    self.broken(
                        "G4", f"run {run.key} of {job.spec.name} has ended, and still owes its followers theirs"
                    )
            books = audited(rows.ledger, job, now)
            if not books.clean:
                self.broken("G4", " / ".join(books.lines()[:3]))


def audited(ledger: Any, job: JobRow, now: float) -> JobAudit:
    """What the audit says of a job, also of one that follows another."""
    changes = ledger.changes(APPLICATION, job.spec.name)
    names = followed_jobs(job, changes)
    since = min(change.at for change in changes) if job.since and not names else 0.0
    span: dict[str, Any] = {"since": since, "until": now, "now": now}
    if not names:
        return audit(job, changes, ledger.runs(RunQuery(APPLICATION, job.spec.name, limit=100_000)), **span)
    parents = {}
    for row in (row for name in names for row in ledger.jobs(APPLICATION, name, removed=True)):
        owed = [one for one in ledger.owed(APPLICATION, 100_000) if one.job == row.spec.name]
        parents[row.spec.name] = ParentPast(row, ledger.past([row.id], 0.0, math.inf)[row.id], owed)
    following, left = audit_follower(job, changes, ledger.past([job.id], 0.0, math.inf)[job.id], parents, **span)
    return merged(following, audit(job, changes, left.others, plain=left.plain, **span))


_WATCHED = (
    (copies.lease_state.LeaseState, "step"),
    (copies.election.Candidacy, "withdrawn"),
    (copies.executor.Executor, "_begin"),
    (copies.executor.Executor, "lose"),
    (copies.executor.Executor, "acknowledged"),
)


def watch(checker: Checker) -> Callable[[], None]:
    """Look over the shoulder of production: after every step of a lease, at every withdrawal, at every body. Returns how to stop it."""
    originals = {name: getattr(where, name) for where, name in _WATCHED}

    def step(self: Any, event: Any, *, only: Any = None) -> Any:
        after = originals["step"](self, event, only=only)
        if not K.observing:
            checker.stepped()
        return after

    def withdrawn(self: Any, term: int, reason: str) -> None:
        checker.withdrawn(self.name, term, reason)
        originals["withdrawn"](self, term, reason)

    def begin(self: Any, attempt: Any) -> Any:
        task = K.current
        assert task is not None
        task.steady = True  # the decision and the call of the body are one
        try:
            return originals["_begin"](self, attempt)
        finally:
            task.steady = False

    def lose(self: Any, attempts: Any, why: str) -> None:
        for attempt in attempts:
            checker.lose(attempt, why)
        originals["lose"](self, attempts, why)

    def acknowledged(self: Any, attempt: Any) -> None:
        checker.acknowledged(attempt)
        originals["acknowledged"](self, attempt)

    for (where, name), watched in zip(_WATCHED, (step, withdrawn, begin, lose, acknowledged), strict=True):
        setattr(where, name, watched)

    def unwatch() -> None:
        for where, name in _WATCHED:
            setattr(where, name, originals[name])

    return unwatch
