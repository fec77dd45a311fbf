"""The protocol of a ledger: jobs and their runs (G3, G4, G5). The suite in tests/stores/ledger states it in behaviour.

A `Ledger` uses the connection of its `Session`, from one thread at a time. Every operation is one transaction. If it
takes longer than the session's timeout, it raises `StoreUnavailable`; a ledger never retries. `now` is always the
ledger's own
clock: the server's on PostgreSQL, the host's on SQLite, the world's in memory. No operation waits for the row of a run.

These rules hold whatever else happens at the same time:

  one run        (job, key) is unique. A run has a token while it is RUNNING and none otherwise. An ending needs that
                 token.
  overlap        A job never has more than `max_running` runs that began and are not final: RUNNING, between two
                 attempts, or WAITING for a place in its pool. This is decided under the lock of the job's row, in a
                 later statement than the one that took the lock. A run that was reopened (by a retry or a backfill) has
                 not begun again until it is claimed, whatever its `attempt`.
  pool           A pool never has more RUNNING runs than its size, except those that ran when it became smaller. This is
                 decided under the lock of the pool's row, in a later statement than the one that took the lock, and
                 after the lock of the job.
  ownership      A node must be alive in the transaction that gives it a run. When it is not alive, the run is taken
                 back.
  proposals      A change of a job may delete its runs of kind DUE whose `scheduled_for` is in the future and that never
                 began.
  generations    Everything that moves `next_due` backwards raises the generation. `plan` compares both.
  followers      A job that has `after` follows the job of that name, its parent. A run of the parent owes its followers
                 their runs as soon as it is final, however it ended; the ending writes nothing for that. `follow_up`
                 pays, in a transaction of its own. So no ending waits for a follower's row.
  actions        An operation that carries an `Action` and changes something records it, in its own transaction. An
                 operation that changes nothing, or carries none, records nothing.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence

from tenure.core.cluster import NodeId
from tenure.core.figures import Figures, FiguresRow
from tenure.core.messages import (
    Action,
    ActionQuery,
    Claimed,
    ClaimRequest,
    CountedHours,
    Ended,
    Ending,
    FollowedUp,
    Forgotten,
    JobChange,
    JobEnds,
    JobOutcome,
    JobPageQuery,
    JobQuery,
    JobStats,
    LaneJob,
    LogLine,
    LogTrim,
    MissedJob,
    OpenRuns,
    Overdue,
    OwedRun,
    Past,
    Planned,
    Progress,
    Pruned,
    Reconciled,
    Result,
    RunQuery,
    RunRequest,
    StoredArguments,
    StripRun,
    Synced,
    Tally,
    Unplanned,
)
from tenure.core.records import (
    ActionRecord,
    AttemptRow,
    ChangeRecord,
    Instant,
    JobId,
    JobRow,
    NodeFacts,
    PoolRow,
    RunId,
    RunRow,
)
from tenure.stores.alert_ledger import AlertLedger
from tenure.stores.backfill_ledger import BackfillLedger

FIRST = JobId(0)
"""Sorts before all jobs."""
SUCCESS_WITHIN = 5000
"""How many of a job's newest final runs are searched for the last one that succeeded: for metrics and for alerts, which
must say the same."""


class Ledger(AlertLedger, BackfillLedger):
    """Jobs and runs over one connection."""

    unreadable: tuple[str, ...] = ()
    """The overdue jobs that the last `unplanned` left out because this library cannot read them, a sentence each."""

    @abstractmethod
    def now(self) -> Instant:
        """The ledger's clock."""

    # Nodes

    @abstractmethod
    def write_facts(self, facts: NodeFacts) -> None:
        """Write what a node brings to an application, replacing what it wrote before, and wake the others. Does nothing
        if the node is not alive."""

    @abstractmethod
    def remove_facts(self, node: NodeId, application: str) -> None:
        """The node no longer takes part in this application. Deleting a node's row also removes its facts."""

    @abstractmethod
    def nodes(self, application: str) -> list[NodeFacts]:
        """The facts of the live nodes of an application, by label and id. Live are those that were not declared dead:
        where no other node is left to declare it, a node that was killed stays. `present` leaves such nodes out."""

    @abstractmethod
    def silent(self, nodes: Iterable[NodeId]) -> set[NodeId]:
        """Those of these nodes that gave no sign of life within their ttl, and were not declared dead so far."""

    def present(self, application: str) -> list[NodeFacts]:
        """Those of `nodes` that are not silent."""
        nodes = self.nodes(application)
        silent = self.silent([node.node for node in nodes])
        return [node for node in nodes if node.node not in silent]

    @abstractmethod
    def running(self, application: str) -> dict[NodeId, int]:
        """How many runs of an application each node has, counted from the RUNNING runs. Nodes without any are left
        out."""

    @abstractmethod
    def unserved(self, application: str, served: Collection[tuple[str, str | None]], limit: int) -> list[LaneJob]:
        """ACTIVE jobs of which no node can claim a run, at most `limit`, in any order. DONE jobs are left out.

        `served` are the functions that live nodes have, each with a queue that such a node serves; None: with any
        queue. The cost depends on the lanes that are not served and the jobs of their functions, not on other jobs.
        """

    @abstractmethod
    def stored_arguments(self, application: str, after: str, limit: int) -> list[StoredArguments]:
        """The arguments of jobs that are not REMOVED, at most `limit`, by name from after this one on. Leaves out jobs
        that have neither a trigger nor arguments: theirs are given when a run is requested."""

    @abstractmethod
    def requested_arguments(self, application: str, after: RunId, limit: int) -> list[StoredArguments]:
        """The arguments of PENDING and WAITING runs that were requested with arguments of their own, at most `limit`,
        by number from after this one on. The cost does not depend on other runs."""

    @abstractmethod
    def overdue(self, application: str, before: Instant, limit: int) -> list[Overdue]:
        """Due times of ACTIVE jobs whose grace was over before this instant although no attempt has begun, at most
        `limit` unplanned ones (earliest first) and at most `limit` with a run.

        An unplanned one counts if `next_due` + spread + jitter + on-time is before that instant. A run counts if it is
        PENDING with attempt 0, of kind DUE or BACKFILL, was not requested by a user (`by`), and `expires_at` (without
        one: `due_at` + on-time) is before that instant; without one it is looked for among the `limit` oldest PENDING
        runs of its lane, so that a question does not read a whole backlog. `core/overdue.py` says what
        explains the others.
        """

    # Jobs

    @abstractmethod
    def functions(self, application: str) -> frozenset[str]:
        """The functions that the jobs of an application name, except removed jobs."""

    @abstractmethod
    def change(self, change: JobChange) -> JobRow | None:
        """Add, update, pause, resume or remove a job, under the lock of its row, and record it in the history of
        changes.

        A job that begins to follow another gets runs for those of its runs that are neither RUNNING nor final at that
        moment, and for all later ones. For that, the parent is locked before now is read.

        The generation goes up by one (1 for a new job; a removed job that is added again goes on counting). Runs of
        kind DUE that are PENDING or SKIPPED, never began and are scheduled after now are deleted, unless the job
        follows another. A SKIPPED row for
        several due times ends now at the latest (such rows exist only if the ledger's clock was ahead for a while).
        Then:

          ADDED    The job must be absent, REMOVED, or DONE without a definition in code; otherwise nothing changes and
                   None is returned. `since` is now. The runs of a DONE job stay: what has run does not run again.
          UPDATED  The job must exist. Spec and override are replaced; the state stays. If the trigger changed, `since`
                   is now. Runs that are due and unstarted, retrying or waiting stay as they are, with the new
                   generation. Those that wait for a pool are PENDING again: the job may have another pool. A paused job
                   keeps `next_due` for the resume.
          PAUSED   The state is PAUSED, with `paused_until/by/why`. Runs of kind DUE that are due (PENDING with attempt
                   0, or WAITING) become SKIPPED('paused'). Those of other kinds and those between attempts stay; they
                   are not claimed while the job is paused.
          RESUMED  The state is ACTIVE, `since` is now. Runs that stayed get a `due_at` no earlier than before. Nothing
                   changes if the job is not paused.
          REMOVED  The state is REMOVED, `next_due` is None. PENDING and WAITING runs become CANCELLED('removed'),
                   including those between attempts. RUNNING runs go on to their end, without another attempt.

        Under PAUSED and REMOVED, a RUNNING run whose body has not been called yet does not begin (`must_answer`).

        `runs` are inserted as by `plan`, without past due times from before `kept_since`. Under PAUSED and REMOVED they
        are inserted before anything is skipped or cancelled, and `next_due` is set. Returns the job as it is now; None
        if it does not exist or has another generation than `change.generation`.
        """

    @abstractmethod
    def change_many(self, changes: Sequence[JobChange]) -> list[JobRow | None]:
        """`change` for many jobs of one application in one transaction, the existing ones in the order of their ids.
        The answers come in the order of the changes. A change that does not apply is None, and the others apply."""

    @abstractmethod
    def sync(self, application: str, release: int, changes: Sequence[JobChange]) -> list[Synced]:
        """At start: bring the jobs defined in code to the ledger, one after the other, as `change` does.

        A job whose row has a higher release is left alone. So is a job whose definition in code is still the same
        (`JobRow.code`; release and tzdata are not compared but raised, tzdata only without an override). An `update()`
        therefore holds until the code changes. A job that an operator REMOVED and that code still defines is added
        again only if its definition in code changed; otherwise `defined_at` is set to now, also for a DONE job (written
        at most once a minute). Returns the given jobs by name, including those that stay removed. The cost does not
        depend on how many other jobs there are.
        """

    @abstractmethod
    def jobs(self, application: str, name: str | None = None, *, removed: bool = False) -> list[JobRow]:
        """The jobs of an application by name, or one of them."""

    @abstractmethod
    def find_jobs(self, query: JobQuery) -> list[JobRow]:
        """The jobs that a query is about, by name. Never removed ones."""

    @abstractmethod
    def count_jobs(self, application: str) -> int:
        """How many jobs an application has that are not REMOVED."""

    @abstractmethod
    def job_page(self, page: JobPageQuery) -> tuple[list[JobRow], int]:
        """A page of a list of jobs, and how many jobs the whole list has. Reads the rows of all jobs of the
        application, but no run of any, and returns no more than the page."""

    @abstractmethod
    def strips(self, jobs: Sequence[JobId], before: Instant, limit: int) -> dict[JobId, list[StripRun]]:
        """The last runs of each of these jobs that were scheduled before an instant, newest first, at most `limit`
        of each. Jobs without any are left out."""

    @abstractmethod
    def removed(self, application: str, names: Sequence[str] | None = None) -> list[JobRow]:
        """Those of these jobs (None: of all jobs) that are REMOVED and were defined in code when they were removed, by
        name."""

    @abstractmethod
    def applications(self) -> list[str]:
        """The applications that have jobs."""

    @abstractmethod
    def changes(self, application: str, name: str | None = None) -> list[ChangeRecord]:
        """The history of changes, oldest first."""

    @abstractmethod
    def triggers(self, jobs: Collection[JobId]) -> dict[JobId, str | None]:
        """The triggers of these jobs; of one that follows another, that of the first in the chain."""

    # Planning

    @abstractmethod
    def unplanned(
        self,
        application: str,
        *,
        before: Instant,
        limit: int,
        strangers: tuple[str, ...] = (),
        tzdata: str = "",
        overdue: Instant = 0.0,
    ) -> list[Unplanned]:
        """ACTIVE jobs whose `next_due` is before this instant, earliest first, and PAUSED jobs with a past
        `paused_until`.

        Leaves out jobs of functions in `strangers`. Leaves jobs that were written with newer zone rules than `tzdata`
        (compared as text; '' compares nothing) to other nodes, unless they were due, or their pause ended, before
        `overdue`. Locks nothing.
        """

    @abstractmethod
    def planned_by_others(self, application: str, tzdata: str, limit: int) -> list[JobRow]:
        """ACTIVE jobs whose `next_reading` comes from another release of the zone rules than this one."""

    @abstractmethod
    def planned_by_older(self, application: str, limit: int) -> list[JobRow]:
        """ACTIVE jobs whose `next_reading` comes from older zone rules than the job was written with, by name."""

    @abstractmethod
    def planned_beyond(self, application: str, after: tuple[Instant, JobId], limit: int) -> list[JobRow]:
        """ACTIVE jobs by (`next_due`, id), after this pair: a ledger with a fast clock may have planned
        them too far."""

    @abstractmethod
    def plan(self, batch: Sequence[Planned]) -> int:
        """Write the due times of these jobs and move their `next_due`. Returns how many runs were inserted.

        Leaves out a job as a whole if its (next_due, generation) differ, if it is not ACTIVE, or if another transaction
        has locked its row. A key that exists already is left as it is.
        """

    # Running

    @abstractmethod
    def claim(self, request: ClaimRequest) -> Claimed:
        """Take due runs, oldest `due_at` first, at most `limit`.

        If `as_of` is given, it decides what is due and what has expired. The claiming node must be alive; if there is
        something to claim, its row is locked so that it stays alive. Candidates are PENDING, `due_at` ≤ now, not
        expired (`expires_at` None or > now), of ACTIVE jobs whose queue the node serves and whose function it has.
        Then, under the lock of each job (a locked job is skipped), and counted after locking:

        - A run between attempts keeps its place and is always claimed.
        - Free places (`max_running` minus the runs that began and are not final) go to the oldest candidates. Under
          `replace` the newest of kind DUE comes before those that it replaces, which become SKIPPED('superseded').
        - If no place is free, the other runs of kind DUE depend on `overlap`. `skip`: SKIPPED('overlap'). `wait`:
          WAITING, and only the newest WAITING run of kind DUE of the job stays, older ones become
          SKIPPED('superseded'). `replace`: as `wait`, and the runs that were RUNNING before are requested to end
          ('replaced'). `allow`: all become WAITING.
        - A run that has a place of its job, and whose job has a pool, also needs a place in the pool: `size` (1 if it
          was never set) minus the RUNNING runs of all its jobs. Free places go to the oldest. The others become
          WAITING with `pool`, whatever `overlap` says, also between attempts. They keep the place of their job, and do
          not expire. Under `replace`, a due time that never began leaves its place to a newer one:
          SKIPPED('superseded'). If another transaction has locked the pool, its runs are left as they are.
        - Runs of kinds MANUAL and BACKFILL always become WAITING, in any number, and end no other run.

        Before that, WAITING runs of jobs that have free places become PENDING again (oldest first, as many as there are
        places), so that they are among the candidates. So do those that wait for a pool with free places, the oldest of
        those that this node may begin. Their `expires_at` is None: a run that waited is never missed.

        If two nodes claim at the same moment, one may find that the other has the older of two late runs of a job, and
        then takes the newer one.

        A claimed run is RUNNING, has the token and the node, `attempt` + 1, `claimed_at` = now. If it had an attempt
        before, that one is kept (see `attempts`). `next_at` is the least
        `due_at` > now of the PENDING runs that this node may begin. `missed` covers all queues: any node that has a
        function settles the missed runs of its jobs.

        Due runs that this node may not begin cost nothing, however many there are. A claim that finds nothing writes
        nothing.
        """

    @abstractmethod
    def missed(self, application: str, limit: int, functions: tuple[str, ...] | None = None) -> list[MissedJob]:
        """ACTIVE jobs of these functions (None: of all) that have expired PENDING runs, with all of these runs (at most
        1,000 a job). Locks nothing."""

    @abstractmethod
    def settle(
        self, job: JobId, generation: int, *, make_up: Sequence[RunId], skip: Sequence[RunId], reason: str
    ) -> bool:
        """Decide missed runs of one job, under its lock.

        The runs in `make_up` become kind BACKFILL, due now, without expiry. The runs in `skip` become SKIPPED(reason).
        Returns False and changes nothing if the job's generation differs, if another transaction has locked its row, or
        if one of the runs is no longer PENDING and expired.
        """

    @abstractmethod
    def finish(self, endings: Sequence[Ending]) -> list[Ended]:
        """End attempts in a batch, each by its own token. The answers come in the order of the endings.

        An ending is accepted if the run is RUNNING with this token. Then, by its state:

        - SUCCEEDED, FAILED and CANCELLED are final. With SUCCEEDED, the result is kept with the run.
        - PENDING with `again_in` counts a failure. The run is due that many seconds after `finished_at` (after now, if
          that is not given) and does not expire.
        - PENDING with `again_in` and `wait_up_to` is a look: the body raised `NotYet`. It is neither a failure nor a
          loss: `looks` + 1, `last_look` is its number, and `looking_since` is when the first look began. The run is due
          `again_in` seconds after `finished_at`, but no later than `wait_up_to` after `looking_since`. A look that ends
          then or later is the last: FAILED(GAVE_UP and the reason). It does not expire, and keeps its place.
        - PENDING without `again_in` and without `started_at`: the run goes back as if it had not been claimed (one
          attempt less, same `due_at`, `expires_at` no sooner than on-time from now). But if its job is PAUSED and it is
          a due time that never began (no attempt before), it becomes SKIPPED('paused').
        - PENDING without `again_in` but with `started_at`: the stop of its node interrupted the run. The attempt is
          spent, `interruptions` + 1, and the run does not expire. It is LOST under `on_lost` fail or if its job was
          removed.
        - A removed job has no further attempt: FAILED instead of PENDING with `again_in`, CANCELLED('removed') without
          or after a look.
        - Between two attempts the row keeps the last one: its node, its times, how it ended and its error.
        - Neither has a run that was requested to end: CANCELLED with the reason of that request.

        If an ending is not accepted, `state` says where the run is. `finish` waits for no row. If another transaction
        has locked a run (such as the open one of its own body), or the run would become PENDING while its job is
        locked, the run stays as it is and the answer is `busy`. That is not a refusal: the caller sends the ending
        again.
        """

    @abstractmethod
    def keep_log(self, lines: Sequence[LogLine], trims: Sequence[LogTrim] = ()) -> None:
        """Drop what `trims` name, then keep log lines with their runs, each once however often it is sent. Leaves out
        lines of runs that do not exist. Locks no run."""

    @abstractmethod
    def keep_progress(self, progress: Sequence[Progress]) -> None:
        """Keep how far these runs are, instead of what was kept before, unless that is of a later attempt. Leaves out
        runs that do not exist. Locks no run."""

    @abstractmethod
    def keep_results(self, results: Sequence[Result]) -> None:
        """Keep what bodies returned whose own transactions completed their runs: if the run is SUCCEEDED with this
        attempt and has no result. Passes locked runs by."""

    @abstractmethod
    def reconcile(self, node: NodeId, application: str, *, stopping: bool = False) -> Reconciled:
        """Take back the RUNNING runs of nodes that are not alive (skipping locked rows), and list those of this node.

        `must_answer` lists this node's runs of PAUSED and REMOVED jobs whose start the ledger has not recorded.

        `stopping`: this node was requested to stop. Its runs are marked (locked rows are left for the next
        reconciliation). If the node is gone before a marked run has ended, the run counts as interrupted, as by
        `finish`, and not as lost.

        A run taken back counts a loss. It is PENDING again with the same `due_at` and without expiry if `on_lost` is
        retry, losses < `max_lost`, its job is not removed and it was not requested to end. Otherwise it is LOST
        (requested to end: CANCELLED with the reason of that request).

        `owed` is True if `follow_up` may have something to do.
        """

    @abstractmethod
    def follow_up(
        self, application: str, limit: int, *, beyond: JobId = FIRST, as_of: Instant | None = None
    ) -> FollowedUp:
        """Give followers the runs that final runs of their parents owe them: a page of at most `limit` runs, of parents
        beyond this one, by id, the oldest of each first. `up_to` is where the next page begins.

        Each follower that is not REMOVED gets a run with the key, kind, due time and `by` of the parent's run:

          PENDING  if the run ended as `on` says: `success` SUCCEEDED; `failure` FAILED or LOST; `end` in any way after
                   an attempt of it began. It is due now, and of kind DUE expires after on-time.
                   If `as_of` is given, it says when that is; but no run is due later than by the ledger's clock.
          SKIPPED  ('paused') if it did and is of kind DUE, but the follower is PAUSED.
          SKIPPED  otherwise; the reason names the parent and how its run ended. It stands for as many due times as
                   that.

        If the follower has a run of this key, that stays as it is. But one that is SKIPPED, never began, and was
        skipped because of the parent, or before the parent's run ended this time, is PENDING again (or has the new
        reason).
        No run is inserted whose key may have been forgotten: a kept key, or a due time before `kept_since` (unless a
        caller chose the key).

        Waits for nothing: a follower that another transaction has locked stays owed, and the others get their runs. So
        does a parent's run that another transaction has locked, and one whose follower's run it has locked or is about
        to write. What a run owes is never forgotten: retention leaves the run, and a run that is reopened owes again.
        """

    @abstractmethod
    def owed(self, application: str, limit: int) -> list[OwedRun]:
        """Runs that are over and whose followers are still owed, oldest `finished_at` first."""

    @abstractmethod
    def followers(self, application: str, parent: str | None = None) -> list[JobRow]:
        """The jobs that follow this one (None: any), by name. Never removed ones."""

    @abstractmethod
    def note_begun(self, begun: Sequence[tuple[RunId, str, Instant]]) -> None:
        """The answer to `must_answer`: this node called the bodies of these RUNNING runs, at these instants. By token.
        Locked runs are left for the next reconciliation."""

    @abstractmethod
    def unbegun(self, job: JobId, generation: int) -> list[tuple[str, float]]:
        """The live nodes that have runs of this job from before this generation and may still begin them: label and
        ttl, by label.

        Empty as soon as no earlier run can begin any more, and also once the job is active again. Locks nothing.
        """

    @abstractmethod
    def put_back(self, held: Sequence[tuple[RunId, str]]) -> int:
        """Put back runs that the ledger gave to this node but that it does not have: as by `finish` with PENDING,
        uncounted, by token. Returns how many. Busy runs (see `finish`) stay as they are."""

    @abstractmethod
    def request_runs(self, requests: Sequence[RunRequest]) -> list[RunRow | None]:
        """Insert requested runs: PENDING, due now (or at `scheduled_for`, if that is to come), without expiry. Returns
        None for a job that does not exist.

        If the key exists, a MANUAL run is returned as it is, whatever its arguments were, even if retention has removed
        the run and kept its key (then `digest` is not None). A BACKFILL of a due time is reopened, as by `retry`, if it
        is SKIPPED, CANCELLED or LOST and stands for one due time; otherwise it is left and None is returned. Arguments
        in the request replace those of the run.

        A run has its slot until it is claimed, cancelled or reopened; a claim that is put back leaves it without. If
        another run of the job has the slot of a MANUAL request, the request inserts nothing and returns that run,
        under `if_waiting`

          keep     as it is;
          replace  with the arguments, the time, `by` and `why` of the request;
          later    as `replace`, but with the later one of both times.

        A WAITING run whose time or arguments change is PENDING again. Requests for one slot wait for each other, and
        for a claim of the run that has it.

        If the key does not exist, a BACKFILL of a due time before the job's `kept_since` is refused with None unless
        the request has `even_forgotten`: that due time may have run.

        An `Action` is recorded once for each job in which something was inserted or re-opened; with the number of the
        run, unless it is a backfill.
        """

    @abstractmethod
    def traceparents(self, runs: Collection[RunId]) -> dict[RunId, str]:
        """The spans that requested these runs; runs without one are left out. A run of a backfill has that of the
        backfill, a run that was retried that of the retry."""

    @abstractmethod
    def retry(
        self, runs: Sequence[RunId], by: str, action: Action | None = None, traceparent: str = ""
    ) -> list[RunRow | None]:
        """Reopen runs that are FAILED, LOST, CANCELLED or SKIPPED: the same keys and due times again.

        A reopened run is PENDING, due now (or at its due time, if that is to come), without expiry, and waits its turn
        as if it were new: it has a place under `max_running` only once it is claimed. A run of kind DUE becomes
        BACKFILL. Failures, losses, interruptions and looks count from zero. `attempt` goes on, and until the next
        claim the row keeps what the last attempt left: node, times and reason. What never began has no reason any
        more.

        Returns None for a run that does not exist, is in another state, stands for several due times, or whose job is
        REMOVED. Under the lock of the job, which excludes its changes.
        """

    def cancel(self, run: RunId, by: str, why: str, action: Action | None = None) -> RunRow | None:
        """`cancel_many` of one run."""
        return self.cancel_many([run], by, why, action)[0]

    @abstractmethod
    def cancel_many(
        self, runs: Sequence[RunId], by: str, why: str, action: Action | None = None
    ) -> list[RunRow | None]:
        """Make PENDING and WAITING runs CANCELLED; request RUNNING ones to end. Under the locks of their jobs, in one
        transaction.

        Returns the runs as they are now, in the order of `runs`; None for one that does not exist. A RUNNING run that
        its own body has locked for long stays as it is. An `Action` is recorded once for each job of which a run was
        open: with the number of that run, or with how many there were.
        """

    # Pools

    @abstractmethod
    def set_pool(self, application: str, name: str, size: int, action: Action | None = None) -> None:
        """Set how many runs of the jobs of a pool may be RUNNING at once. Holds from the next claim on and ends no run.
        Wakes the nodes. Does nothing if the pool has this size already."""

    @abstractmethod
    def pools(self, application: str) -> list[PoolRow]:
        """The pools whose size was set, and those that jobs name, by name."""

    # Looking

    @abstractmethod
    def runs(self, query: RunQuery) -> list[RunRow]:
        """Runs."""

    @abstractmethod
    def coming(self, application: str, limit: int) -> list[RunRow]:
        """The PENDING runs that were requested for a time to come, the nearest first."""

    @abstractmethod
    def attempts(self, run: RunId) -> list[AttemptRow]:
        """All attempts of a run by number, from 1 to the run's `attempt`; at most the last is RUNNING.

        The last attempt is in the run's own row. It is kept apart by whatever would overwrite it: the claim that opens
        the next attempt, a cancellation or removal between two attempts, a backfill that re-opens the run. A run that
        goes back unbegun has not had that attempt. Retention removes the attempts with their run.
        """

    @abstractmethod
    def log(self, run: RunId) -> list[LogLine]:
        """The log lines of a run, in the order of its attempts and of their lines."""

    @abstractmethod
    def log_ends(self, runs: Collection[RunId]) -> dict[RunId, tuple[int, int]]:
        """The attempt and the number of the last log line of each of these runs, of those that have one."""

    @abstractmethod
    def result(self, run: RunId) -> str | None:
        """What the body of a run returned; None if it returned nothing."""

    @abstractmethod
    def progress(self, runs: Collection[RunId]) -> dict[RunId, Progress]:
        """How far these runs said they were, the last time. It stays when they end."""

    @abstractmethod
    def stats(self, application: str, name: str, last: int = 1000) -> JobStats:
        """Figures of the last runs of a job that began."""

    @abstractmethod
    def figures(self, application: str, last: int) -> dict[str, JobStats]:
        """`stats` of all jobs by name, including removed ones, over this many runs each."""

    @abstractmethod
    def outcomes(
        self, application: str, *, since: Instant, name: str | None = None, failing: int | None = None
    ) -> list[JobOutcome]:
        """How the newest run of each job ended, or of the job of this name, by name: of jobs that are not removed and
        have a run that ended.

        With `failing`, only of jobs that have failures among that many of the newest failed and that many of the newest
        lost runs of the application: the cost does not depend on the number of jobs. A job of which the newest run
        succeeded is then listed too, if it has failures since the given instant. `recent` counts these failures. At
        most 1,000 failures in a row are counted.
        """

    @abstractmethod
    def tally(self, application: str, since: Instant, limit: int) -> list[Tally]:
        """Count the runs that are open and due by now, by state and node, and those scheduled from `since` on that are
        FAILED or LOST. Of these it counts `limit` at most."""

    @abstractmethod
    def open_runs(self, application: str, limit: int) -> list[OpenRuns]:
        """Count the runs that are due and open, by state and queue; of each state at most `limit`, and of PENDING ones
        at most `limit` for each function and queue. PENDING runs of jobs that are not ACTIVE do not count."""

    @abstractmethod
    def last_ends(self, application: str, jobs: Sequence[JobId], *, failing: int = 10_000) -> list[JobEnds]:
        """How the newest runs of these jobs of one application ended, in any order.

        Successes, failures in a row and missed due times are looked for among the newest SUCCESS_WITHIN final runs of
        each job, and `failed_at` among the newest `failing` failed and as many lost runs of the application: no
        question reads the whole history.
        """

    @abstractmethod
    def durations(self, jobs: Sequence[JobId], last: int) -> dict[JobId, tuple[int, float | None]]:
        """Of the last runs of these jobs that began and are final, this many of each: how many have a duration, and its
        99th percentile."""

    @abstractmethod
    def past(self, jobs: Sequence[JobId], since: Instant, before: Instant) -> dict[JobId, Past]:
        """All runs of these jobs in a period, for an audit."""

    @abstractmethod
    def prune(
        self,
        application: str,
        *,
        before: Instant,
        keep: int,
        limit: int,
        beyond: JobId = FIRST,
        jobs: int = 500,
        keys_before: Instant = 0.0,
    ) -> Pruned:
        """Remove at most `limit` final runs scheduled before this instant, in the next `jobs` jobs with ids above
        `beyond`.

        Never removes the newest `keep` of a job, nor any run at or after the job's oldest open run. Of a job that
        follows another, it removes no run at or after the oldest run of the parent that owes it one, or will: otherwise
        `kept_since` would say that the owed run may have run. For a job that is REMOVED or DONE, and was written,
        removed and last seen in code before this instant, no newest runs are kept except those that finished since.
        The job's `kept_since` moves to just after the removed runs. If a run was requested under a key of the caller's
        own, its key and outcome are kept until the run is scheduled before `keys_before`. Rows that other transactions
        have locked are left. `more` says whether to prune the same jobs again.
        """

    # Figures

    @abstractmethod
    def count_hours(self, application: str, *, since: Instant | None, beyond: JobId, jobs: int) -> CountedHours:
        """Count the runs of the next `jobs` jobs with ids above `beyond` anew, by hour, and write what differs.

        It counts the hours from `since` on, and earlier ones in which runs were open at the last count, were inserted
        late, or were reopened. None: from where the last complete pass may have missed something, which is at least
        an hour before this one; then the answer says where that is. Runs due after now are not counted. What `prune`
        has removed stays in the figures: it is added to them in the transaction that removes it, once. Days that are
        one row by now do not change.

        Counting again changes nothing, and then nothing is written.
        """

    @abstractmethod
    def note_counted(self, application: str, up_to: Instant) -> None:
        """A pass over all jobs is complete: the next one begins here. Never moves back."""

    @abstractmethod
    def close_days(self, application: str, *, before: Instant, oldest: Instant, limit: int) -> int:
        """Make one row of the hours of each day of a job that ended before an instant and in which no run is open, and
        delete days from before `oldest`. About `limit` of each; returns how many rows it made and deleted."""

    @abstractmethod
    def hours(self, application: str, name: str, since: Instant, before: Instant) -> list[FiguresRow]:
        """The figures of a job by hour, of hours that begin in this period, oldest first. Hours without a run, and
        those of days that are one row, are left out."""

    @abstractmethod
    def days(self, application: str, name: str, since: Instant, before: Instant) -> list[FiguresRow]:
        """The figures of a job by day (UTC), of days that begin in this period, oldest first."""

    @abstractmethod
    def totals(self, application: str, since: Instant, names: Collection[str] | None = None) -> dict[str, Figures]:
        """The figures of these jobs (None: of all) over their hours from `since` on. Jobs without any are left out.
        Hours older than `HOURS_KEPT` are not among them."""

    @abstractmethod
    def counts_by_queue(self, application: str, since: Instant) -> dict[str, Figures]:
        """The counts of all jobs over their hours from `since` on, by the queues that the jobs have now. Removed jobs
        count too, until they are forgotten. How late runs began and how long they took is left out."""

    @abstractmethod
    def forget(self, application: str, *, before: Instant, defined: Collection[str], limit: int) -> Forgotten:
        """Delete at most `limit` jobs that are REMOVED or DONE, and ten times as many of their changes.

        Deletes only jobs that were written, removed and last seen in code before this instant, and of which `prune` has
        left neither a run nor a key. A job that is in code and whose function is in `defined`, because live nodes have
        it, gets a new `defined_at` instead. A job that is added later continues from the highest generation that was
        forgotten in its application, and its `kept_since` is this instant: it may have the name of a forgotten job, and
        the due times of that one must not be taken for due times that have not run.
        """

    # Actions

    @abstractmethod
    def actions(self, query: ActionQuery) -> list[ActionRecord]:
        """The log of actions, newest first."""

    @abstractmethod
    def forget_actions(self, application: str, *, before: Instant, keep: int, limit: int) -> int:
        """Delete at most `limit` actions of this application, and as many of elections that belong to none: those from
        before this instant, and those that are not among the newest `keep` of all applications. Returns how many."""

    # Guards

    @abstractmethod
    def guard(self, name: str, key: str, within: float | None, by: str) -> bool:
        """True for the first caller with this (name, key), or, with `within`, if the last True is at least that many
        seconds ago.

        Without `within` the ledger remembers it for ever; `Session.sweep` removes a guard whose period ended a day ago.
        """

    @abstractmethod
    def unguard(self, name: str, key: str, by: str) -> None:
        """Take a True back, because the guarded work failed."""
