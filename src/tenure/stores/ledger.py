"""What the ledger of a store must do: one protocol, said in behaviour by the conformance suite in tests/stores/ledger.

A `Ledger` speaks over the connection of its `Session` and is used by one thread at a time. Every operation is one transaction, takes
at most the session's timeout, then raises `StoreUnavailable`; nothing is retried inside. `now` is always the ledger's own clock: the
server's on PostgreSQL, the host's on SQLite, the world's in memory. No operation waits for the row of a run.

What must hold, whoever calls what at the same time:

  one run        (job, key) is unique; a run has a token while it is RUNNING and none otherwise; an ending needs that token
  overlap        among runs of a job that began and are not final (RUNNING, and PENDING with attempt > 0) there are never more than
                 `max_running`, decided under the lock of the job's row, counted in a statement after the one that locked
  nobody's       a run is given to a node that is alive in the transaction that gives it, and taken back when that node is not
  proposals      a run of kind DUE whose `scheduled_for` is in the future and that never began may be deleted by a change of its job
  generations    whatever moves `next_due` backwards raises the generation; `plan` compares both
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

from tenure.core.cluster import NodeId
from tenure.core.messages import (
    Claimed,
    ClaimRequest,
    Ended,
    Ending,
    Forgotten,
    JobChange,
    JobStats,
    LogLine,
    MissedJob,
    Past,
    Planned,
    Pruned,
    Reconciled,
    RunQuery,
    RunRequest,
    Synced,
    Tally,
    Unplanned,
)
from tenure.core.records import ChangeRecord, Instant, JobId, JobRow, NodeFacts, RunId, RunRow

FIRST = JobId(0)
"""Before all jobs."""


class Ledger(ABC):
    """Jobs and runs over one connection."""

    unreadable: tuple[str, ...] = ()
    """What the last `unplanned` has left out because it cannot be read here, of what is overdue: each in a sentence."""

    @abstractmethod
    def now(self) -> Instant:
        """The ledger's clock."""

    # Nodes

    @abstractmethod
    def write_facts(self, facts: NodeFacts) -> None:
        """Write down what a node brings to an application, in place of what it wrote before, and wake the others. Nothing if the node is not alive."""

    @abstractmethod
    def remove_facts(self, node: NodeId, application: str) -> None:
        """The node takes no part in this application any more. The row of a node takes its facts along."""

    @abstractmethod
    def nodes(self, application: str) -> list[NodeFacts]:
        """What the live nodes of an application have, by label and id."""

    # Jobs

    @abstractmethod
    def functions(self, application: str) -> frozenset[str]:
        """The functions that the jobs of an application name, removed jobs aside."""

    @abstractmethod
    def change(self, change: JobChange) -> JobRow | None:
        """Add, update, pause, resume or remove a job, under the lock of its row, and note it in the history of changes.

        The generation goes up by one (1 for a new job; a removed job that is added again goes on counting). Runs of kind DUE that are
        PENDING or SKIPPED, never began and are scheduled after now are deleted, and a SKIPPED row for several ends now at the latest (there
        are such only where the ledger's clock was ahead for a while). Then, by what is done:

        ADDED    the job must not be there, be removed, or be DONE and not be defined in code; else None is returned and nothing
                 changes. `since` is now. The runs of a DONE job stay: what has run is not run again.
        UPDATED  the job must be there. Spec and override are replaced; state stays. If the trigger changed `since` is now. Due and unstarted,
                 retrying and waiting runs stay as they are, with the new generation. On a paused job `next_due` is kept for the resume.
        PAUSED   state PAUSED, `paused_until/by/why`; runs of kind DUE that are due (PENDING with attempt 0, or WAITING) become
                 SKIPPED('paused'); those of other kinds and those between attempts stay and are not claimed while paused.
        RESUMED  state ACTIVE, `since` now. What stayed gets `due_at` no earlier than it had. If it is not paused nothing changes.
        REMOVED  state REMOVED, `next_due` None; PENDING and WAITING runs become CANCELLED('removed'), those between attempts too;
                 RUNNING ones go on to their end, without another attempt. Those that their nodes have not begun do not (`must_answer`, and
        so under PAUSED).

        `runs` are inserted as `plan` does it, without due times of the past from before `kept_since`; under PAUSED and REMOVED before anything is skipped or cancelled, and `next_due` is set. Returns the job as it is now; None if there is no such job, or it
        is not of the generation asked for.
        """

    @abstractmethod
    def sync(self, application: str, release: int, changes: Sequence[JobChange]) -> list[Synced]:
        """At start: bring the jobs defined in code to the ledger, as `change` does it, each in its turn.

        A job whose row has a higher release is left alone, and so is one of which the code last said the same (`JobRow.code`; release
        and tzdata aside, which are raised, tzdata only without an override). So an `update()` holds until the code says something
        else. One that was removed by hand (REMOVED) and is defined in code is added again only if the code says something else; else
        `defined_at` is now, also of one that is DONE (written at most once a minute). Returns
        the given jobs by name, also those that stay removed; however many others there are is no matter.
        """

    @abstractmethod
    def jobs(self, application: str, name: str | None = None, *, removed: bool = False) -> list[JobRow]:
        """The jobs of an application by name, or one."""

    @abstractmethod
    def removed(self, application: str, names: Sequence[str] | None = None) -> list[JobRow]:
        """Those of these jobs (None: of all) that are REMOVED and were defined in code when that was done, by name."""

    @abstractmethod
    def applications(self) -> list[str]:
        """Whose jobs there are."""

    @abstractmethod
    def changes(self, application: str, name: str | None = None) -> list[ChangeRecord]:
        """The history of changes, oldest first."""

    @abstractmethod
    def triggers(self, jobs: Collection[JobId]) -> dict[JobId, str | None]:
        """The triggers of these jobs."""

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
        """ACTIVE jobs whose `next_due` is before this instant, earliest first, and PAUSED ones with `paused_until` in the past.

        Jobs of functions in `strangers` are left out. Jobs whose row was written with newer zone rules than `tzdata` (compared as text; ''
        means: do not compare) are left to others, unless they are due, or their pause was over, before `overdue`. Locks nothing.
        """

    @abstractmethod
    def planned_by_others(self, application: str, tzdata: str, limit: int) -> list[JobRow]:
        """ACTIVE jobs whose `next_reading` is of another release of the zone rules than this one."""

    @abstractmethod
    def planned_by_older(self, application: str, limit: int) -> list[JobRow]:
        """ACTIVE jobs whose `next_reading` is of an older release of the zone rules than they were written with, by name."""

    @abstractmethod
    def planned_beyond(self, application: str, after: tuple[Instant, JobId], limit: int) -> list[JobRow]:
        """ACTIVE jobs by (`next_due`, id), from after this pair on: what a ledger whose clock was ahead may have planned too far."""

    @abstractmethod
    def plan(self, batch: Sequence[Planned]) -> int:
        """Write the due times of these jobs and move their `next_due`; returns how many runs were inserted.

        A job whose (next_due, generation) differ, that is not ACTIVE, or whose row somebody else has locked is left out as a whole.
        A key that is there already is left as it is.
        """

    # Running

    @abstractmethod
    def claim(self, request: ClaimRequest) -> Claimed:
        """Take due runs, oldest `due_at` first, at most `limit`.

        What is due and what is expired is decided by `as_of` where it is given. First the own node must be alive (locked, where there is something to give, so that it stays so). Candidates are PENDING, `due_at` ≤ now, not expired
        (`expires_at` None or > now), of ACTIVE jobs whose queue is served and whose function this node has. Under the lock of each
        job (skipped where somebody has it) and counted afterwards:

        - a run between attempts (attempt > 0) keeps its place and is always claimed;
        - free places (`max_running` less what began and is not final) go to the oldest candidates; under `replace` the newest one of
          kind DUE comes before those that it replaces, which become SKIPPED('superseded');
        - the others, where no place is free: kind DUE under `skip` → SKIPPED('overlap'); `wait` → WAITING, and of all WAITING runs of
          kind DUE of the job only the newest stays, older ones → SKIPPED('superseded'); `replace` → as `wait`, and those that were RUNNING before
          are asked to end ('replaced'); `allow` → WAITING, all of them. Kinds MANUAL and BACKFILL always become WAITING, in any number,
          and ask nobody to end.

        Before that, WAITING runs of jobs that have free places become PENDING again (oldest first, as many as there are places; `expires_at`
        None: what waited is never missed), so that they are among the candidates.

        Who claims at the same moment as another may find the older of two late runs of a job in the other's hands, and then takes the newer.

        A claimed run is RUNNING, has the token and the node, `attempt` + 1, `claimed_at` = now. `next_at` is the least `due_at` > now
        of PENDING runs that this node may begin. `missed` is about all queues: whoever has a function settles what was missed of it.

        What this node may not begin costs nothing, however much of it is due; and a claim that finds nothing writes nothing.
        """

    @abstractmethod
    def missed(self, application: str, limit: int, functions: tuple[str, ...] | None = None) -> list[MissedJob]:
        """ACTIVE jobs of these functions (None: of all) with PENDING runs that have expired, with all of these (at most 1,000 a job). Locks nothing."""

    @abstractmethod
    def settle(
        self, job: JobId, generation: int, *, make_up: Sequence[RunId], skip: Sequence[RunId], reason: str
    ) -> bool:
        """Decide missed runs of one job, under its lock: those to make up are of kind BACKFILL from now on, due now, never to expire;
        the others become SKIPPED(reason). False, and nothing changes, if the job's generation differs, its row is locked by somebody,
        or one of the runs is not PENDING and expired any more."""

    @abstractmethod
    def finish(self, endings: Sequence[Ending]) -> list[Ended]:
        """End attempts, in a batch, each by its own token; the answers come in the order of the endings.

        Accepted: the run is RUNNING with this token. SUCCEEDED, FAILED and CANCELLED are final; PENDING with `again_in` counts a failure and is
        due that many seconds after `finished_at` (from now where that is not given), never to expire; PENDING without, and without `started_at`, goes back as if it had not been claimed (attempt - 1, `due_at`
        and `expires_at` kept, but `expires_at` no sooner than on-time from now), unless its job is PAUSED and it is a due time that never began (no
        attempt before): SKIPPED('paused'). PENDING without `again_in` but with `started_at` was interrupted by the stop of its node: the attempt is spent,
        `interruptions` + 1, never to expire, LOST under `on_lost` fail or if its job was removed. A job that was removed has no further attempt: FAILED instead of PENDING with `again_in`,
        CANCELLED('removed') without. A run that was asked to end has none either: CANCELLED with what it was asked. Not accepted: `state` says
        where the run is. Waits for no row: a run that another transaction has locked (such as the open one of its own body), or that would become
        PENDING while its job is locked, is `busy` and stays as it is. That is no refusal: the ending is to be sent again.
        """

    @abstractmethod
    def keep_log(self, lines: Sequence[LogLine]) -> None:
        """Keep lines with their runs, each once however often it is sent; not those of runs that are not there."""

    @abstractmethod
    def reconcile(self, node: NodeId, application: str, *, stopping: bool = False) -> Reconciled:
        """Take back the RUNNING runs of nodes that are not alive (skipping locked rows), and list those that this node has.
        Those of PAUSED and REMOVED jobs of which the ledger does not know that they began are to be answered for (`must_answer`).

        `stopping`: this node was asked to stop. What it has is marked (locked rows are left for the next reconciliation), so that it counts as
        interrupted, as by `finish`, and not as lost, if the node is gone before it has ended.

        A run taken back counts a loss; it is PENDING again, its `due_at` kept, never to expire, if `on_lost` is retry and losses < `max_lost`, its job is not
        removed and it was not asked to end; else LOST (asked to end: CANCELLED with what it was asked).
        """

    @abstractmethod
    def note_begun(self, begun: Sequence[tuple[RunId, str, Instant]]) -> None:
        """The answer to `must_answer`: the bodies of these RUNNING runs have been called, at these instants. By token; what is locked
        is left for the next reconciliation."""

    @abstractmethod
    def unbegun(self, job: JobId, generation: int) -> list[tuple[str, float]]:
        """Which live nodes have runs of this job from before this generation that they may still begin: label and ttl, by label.

        Empty from the moment on when nothing more of before begins, and also once the job is active again. Locks nothing.
        """

    @abstractmethod
    def put_back(self, held: Sequence[tuple[RunId, str]]) -> int:
        """Runs that the ledger gave to this node and that it does not have: back as by `finish` with PENDING, uncounted, by token. How many; busy ones
        (see there) stay as they are."""

    @abstractmethod
    def request_runs(self, requests: Sequence[RunRequest]) -> list[RunRow | None]:
        """Insert runs that somebody wants: PENDING, due now, never to expire. Where the key is there already: a MANUAL one is returned as it is,
        also if retention has removed the run and kept its key (then `digest` is not None), whatever its arguments were; a
        BACKFILL of a due time is re-opened if it is SKIPPED, CANCELLED or LOST and stands for one due time, else it is left and None is
        returned. Where the key is not there, a BACKFILL of a due time before the job's `kept_since` is refused with None unless it is
        asked for `even_forgotten`: it may have run. None also where there is no such job."""

    @abstractmethod
    def cancel(self, run: RunId, by: str, why: str) -> RunRow | None:
        """PENDING and WAITING: CANCELLED at once. RUNNING: asked to end. Final: left. Returns the run as it is now."""

    # Looking

    @abstractmethod
    def runs(self, query: RunQuery) -> list[RunRow]:
        """Runs."""

    @abstractmethod
    def log(self, run: RunId) -> list[str]:
        """What the attempts of a run logged, in the order of the attempts and of their lines."""

    @abstractmethod
    def stats(self, application: str, name: str, last: int = 1000) -> JobStats:
        """Figures of the last runs of a job that began."""

    @abstractmethod
    def figures(self, application: str, last: int) -> dict[str, JobStats]:
        """`stats` of all jobs by name, also of removed ones, of so many runs each."""

    @abstractmethod
    def tally(self, application: str, since: Instant, limit: int) -> list[Tally]:
        """How many runs are open and due by now, by state and node, and how many that were scheduled from `since` on are FAILED or LOST; of these `limit` at most are counted."""

    @abstractmethod
    def past(self, jobs: Sequence[JobId], since: Instant, before: Instant) -> dict[JobId, Past]:
        """All runs of these jobs in a span, for an audit."""

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
        """In so many jobs with numbers beyond this one remove at most `limit` final runs scheduled before this instant, never the newest `keep` of a job, never any at or after the job's oldest
        open run. Of a job that is REMOVED or DONE, and was written, removed and seen in code before this instant, no newest are kept, but what finished since; `kept_since` of the job moves to just after what was removed. Of runs that were
        asked for under a key of somebody's own the key is kept, with the outcome, until they are scheduled before `keys_before`. What others have locked is left; `more` says whether to ask for the same jobs again."""

    @abstractmethod
    def forget(self, application: str, *, before: Instant, defined: Collection[str], limit: int) -> Forgotten:
        """Delete at most `limit` jobs that are REMOVED or DONE, and ten times as many of their changes.

        Only those that were written and removed, and seen in code, before this instant, and of which `prune` has left neither
        a run nor a key. Of those that are in code and whose function is among
        `defined`, because nodes that are alive have it, `defined_at` is brought up to date instead. A job that is added later goes on
        from the highest generation of what was forgotten in its application, and `kept_since` is this instant: it may have the name of
        one that was forgotten, and due times of that one must not be taken for due times that have not run.
        """

    # Guards

    @abstractmethod
    def guard(self, name: str, key: str, within: float | None, by: str) -> bool:
        """True for the first caller with this (name, key), or, with `within`, if the last True is at least that many seconds ago.

        Without `within` it is remembered for ever; `Session.sweep` removes one whose span has been over for a day.
        """

    @abstractmethod
    def unguard(self, name: str, key: str, by: str) -> None:
        """Take a True back: what it guarded failed."""
