"""The run, as the body of a job sees it: what it is for, whether it still counts, and how its effects happen once (G5).

def daily_aggregate(run: Run) -> None:
    with Session(engine) as session, session.begin():
        if run.once(session, "invoices"):
            insert_invoices(session, month=run.scheduled_for)
        run.complete(session)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from datetime import datetime, tzinfo
from typing import Any, overload

from tenure.core.arguments import decode_result
from tenure.core.messages import ClaimedRun
from tenure.core.records import Instant
from tenure.core.trigger_text import zone_of
from tenure.errors import AttemptCancelled, AttemptLost, ConfigurationError
from tenure.jobs.run_log import AttemptLog, ProgressNote, cut, step_of
from tenure.transactions import effects
from tenure.transactions.connections import AsyncConnection, SyncConnection
from tenure.transactions.effects import RunClaim
from tenure.util.clock import boottime
from tenure.util.durations import Duration, seconds
from tenure.util.fork import ForkOrder, in_child
from tenure.util.instants import moment
from tenure.views import ParentRun

_MUTEX = threading.Lock()


class RunControl:
    """The runtime's side of an attempt: what it tells the body, and what the body has done. Not public."""

    __slots__ = (
        *("_bell", "_note", "_schema", "_token", "_tz", "_until"),
        *("began_at", "cancelled_because", "claimed", "completed", "forgotten", "kept", "lost_because"),
    )

    def __init__(
        self,
        claimed: ClaimedRun,
        token: str,
        *,
        tz: tzinfo | str,
        schema: str,
        until: Callable[[], float],
        note: Callable[[AttemptLog], None] = lambda _: None,
    ) -> None:
        """`tz` is the zone of the due time, or the name of the default zone, with which it is found on request. `note`
        is called when the body has said something that is to be sent to the ledger."""
        self._note = note
        self.claimed, self._token, self._tz, self._schema, self._until = claimed, token, tz, schema, until
        self.cancelled_because = ""
        self.lost_because = ""
        self.completed = False
        """`complete` was accepted: from now on its transaction decides."""
        self.forgotten: list[str] = []
        """The calls of the body, such as 'run.complete', whose coroutines have not ended."""
        self.began_at: Instant | None = None
        """When the body was called, by the ledger's clock."""
        self._bell: threading.Event | None = None
        self.kept: AttemptLog | None = None
        """What the body logged, and how far it says it is."""

    @property
    def claim(self) -> RunClaim:
        """Proof for the database that this attempt is the one that counts."""
        claimed = self.claimed
        return RunClaim(claimed.id, self._token, claimed.key, self._schema, claimed.name, self.began_at)

    @property
    def until(self) -> float:
        """When the node's lease ends unless it is renewed, on `boottime`. From then on the attempt may not count."""
        return self._until()

    @property
    def tz(self) -> tzinfo:
        """The zone in which `scheduled_for` is shown."""
        if isinstance(self._tz, tzinfo):
            return self._tz
        return zone_of(self.claimed.trigger, self.claimed.scheduled_for, default=self._tz)

    @property
    def lost(self) -> bool:
        """This attempt no longer counts, or may not."""
        return bool(self.lost_because) or boottime() >= self._until()

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines that were kept of the log."""
        return () if self.kept is None else self.kept.lines

    def log(self, line: str) -> None:
        """Keep a line with the run."""
        self._keeps().add(line)

    def step(self, step: ProgressNote) -> None:
        """Keep how far the body is."""
        self._keeps().step(step)

    def returned(self, result: str) -> None:
        """The body whose transaction completed the run has returned this."""
        self._keeps().result(result)

    def _keeps(self) -> AttemptLog:
        if self.kept is None:
            with _MUTEX:
                if self.kept is None:
                    self.kept = AttemptLog(self.claimed.id, self.claimed.attempt, self._note)
        return self.kept

    def note_completed(self) -> None:
        """`complete` was accepted."""
        self.completed = True

    def awaited(self, call: str, outcome: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """The coroutine that a call of the body returns. The call counts as forgotten until that has ended."""
        self.forgotten.append(call)
        return self._awaited(call, outcome)

    async def _awaited(self, call: str, outcome: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await outcome
        finally:
            self.forgotten.remove(call)

    def not_awaited(self) -> ConfigurationError | None:
        """What is wrong with a body that returns now, or completes its run now; None if nothing is."""
        if not self.forgotten:
            return None
        call = self.forgotten[0]
        return ConfigurationError(
            f"{call}(…) was not awaited, so it did nothing. Write `await {call}(…)`: with this connection it is a "
            "coroutine."
        )

    def tell(self, why: str) -> None:
        """Ask the attempt to end."""
        self.cancelled_because = self.cancelled_because or why
        self._ring()

    def lose(self, why: str) -> None:
        """The attempt no longer counts."""
        self.lost_because = self.lost_because or why
        self._ring()

    def wait(self, limit: float) -> bool:
        """Sleep, but return False at once when this attempt should end."""
        with _MUTEX:
            if self._bell is None:
                self._bell = threading.Event()
                if self.cancelled_because or self.lost_because:
                    self._bell.set()
        end = boottime() + limit
        while not self.lost:
            left = min(end, self._until()) - boottime()  # if the lease is renewed meanwhile, wait again
            if self._bell.wait(max(left, 0.0)):
                return False
            if boottime() >= end:
                return not self.lost
        return False

    def _ring(self) -> None:
        with _MUTEX:
            if self._bell is not None:
                self._bell.set()


class Run:
    """One attempt of a run, for as long as its body runs."""

    __slots__ = ("_control",)

    def __init__(self, control: RunControl) -> None:
        self._control = control

    def __repr__(self) -> str:
        return f"<Run {self.job} {self.key}, attempt {self.attempt}>"

    @property
    def id(self) -> int:
        """The number of the run in the ledger."""
        return self._control.claimed.id

    @property
    def job(self) -> str:
        """The name of the job."""
        return self._control.claimed.name

    @property
    def key(self) -> str:
        """The same for all attempts, and never used twice in a job: pass it where a repetition can be recognised."""
        return self._control.claimed.key

    @property
    def kind(self) -> str:
        """'due', 'manual' (`run_now`) or 'backfill'."""
        return self._control.claimed.kind.value

    @property
    def scheduled_for(self) -> datetime:
        """The due time, in the zone of the job; for `run_now` the moment of the request."""
        return moment(self._control.claimed.scheduled_for, self._control.tz)

    @property
    def parent(self) -> ParentRun | None:
        """The run that this one follows (`@scheduler.after`); None if its job follows none, or it was requested."""
        followed = self._control.claimed.parent
        if followed is None or followed.state is None:
            return None
        result = None if followed.result is None else decode_result(followed.result)
        return ParentRun(followed.job, followed.key, followed.state.value, result)

    @property
    def attempt(self) -> int:
        """1 for the first."""
        return self._control.claimed.attempt

    @property
    def cancelled(self) -> bool:
        """This attempt was asked to end: it was cancelled or replaced, it is out of time, or its node stops."""
        return bool(self._control.cancelled_because)

    @property
    def lost(self) -> bool:
        """This attempt may no longer count, because its node lost its lease. Another may have begun elsewhere."""
        return self._control.lost

    @property
    def reason(self) -> str:
        """Why it should end."""
        return self._control.lost_because or self._control.cancelled_because

    def check(self) -> None:
        """Raise `AttemptLost` or `AttemptCancelled` if this attempt should end. Call it between steps of long work."""
        if self.lost:
            why = self._control.lost_because or "its node has had no answer from the database for too long"
            raise AttemptLost(f"{self!r} no longer counts: {why}. Stop; another attempt may have begun elsewhere.")
        if why := self._control.cancelled_because:
            raise AttemptCancelled(f"{self!r} was asked to end: {why}.")

    def wait(self, seconds_: Duration) -> bool:
        """Sleep, but return False at once when this attempt should end."""
        return self._control.wait(seconds(seconds_, "seconds"))

    def log(self, text: object) -> None:
        """Keep a line with the run; `tenure log` shows it while the body runs. A log of over 1,000 lines or 256 KB
        loses its middle."""
        self._control.log(cut(text))

    def progress(self, done: float, total: float | None = None, text: object = "") -> None:
        """Say how far the body is: `run.progress(180, 900, "invoices")`. `tenure runs` and `tenure show` show it.

        Call it as often as you like: only the last one is kept, and the database hears of it about once a second.
        """
        self._control.step(step_of(done, total, text))

    @overload
    def once(self, conn: AsyncConnection, key: str) -> Coroutine[Any, Any, bool]: ...
    @overload
    def once(self, conn: SyncConnection, key: str) -> bool: ...
    def once(self, conn: Any, key: object) -> Any:
        """True unless a transaction of this run has committed this key, in this attempt or an earlier one. Part of the
        caller's transaction."""
        if not isinstance(key, str) or not key:
            raise ConfigurationError(f"once: the key {key!r} must be text, such as 'invoices'.")
        outcome = effects.once(conn, self._control.claim, key)
        return self._control.awaited("run.once", outcome) if isinstance(outcome, Coroutine) else outcome

    @overload
    def complete(self, conn: AsyncConnection) -> Coroutine[Any, Any, None]: ...
    @overload
    def complete(self, conn: SyncConnection) -> None: ...
    def complete(self, conn: Any) -> Any:
        """Mark the run succeeded, as the last statement of the caller's transaction: effect and mark commit together.

        From then on that transaction alone decides. The database refuses a stale attempt, which then cannot commit.
        """
        if (wrong := self._control.not_awaited()) is not None:
            raise wrong
        outcome = effects.complete(conn, self._control.claim)
        if isinstance(outcome, Coroutine):
            return self._control.awaited("run.complete", self._when_completed(outcome))
        self._control.note_completed()
        return None

    async def _when_completed(self, outcome: Coroutine[Any, Any, None]) -> None:
        await outcome
        self._control.note_completed()


def control_of(run: Run) -> RunControl:
    """The runtime's side of a run, for tenure's own modules."""
    return run._control  # noqa: SLF001 - the one way in


CURRENT: ContextVar[Run | None] = ContextVar("tenure_run", default=None)


def current_run() -> Run:
    """The run whose body calls this: in a thread, a coroutine, or a process of tenure's."""
    run = CURRENT.get()
    if run is None:
        raise ConfigurationError("current_run(): this is not called from the body of a job.")
    return run


@in_child(ForkOrder.LOCKS)
def _after_fork_in_child() -> None:
    global _MUTEX  # noqa: PLW0603 - another thread of the parent may have held it
    _MUTEX = threading.Lock()
