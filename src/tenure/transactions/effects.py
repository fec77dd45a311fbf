"""One effect (G5): work that a run commits with its own completion, or under a key, takes effect once.

with conn.transaction():
    if run.once(conn, "invoices"):      # True once for this run, whichever attempt commits it
        conn.execute("INSERT …")
    run.complete(conn)                  # last: the work and the mark commit together, or neither

As with the fence, the database decides and refuses inside the server, and a caller who swallows the refusal cannot
commit: see `transactions/fence.py`. Both compare the token of the claim, so an attempt that was given up as lost is
refused.

- `complete` locks the run alone and sets it SUCCEEDED. A node that takes runs back meanwhile skips it; afterwards only
  this transaction decides.
- `once` does not block a node that takes the run back. The next attempt then waits at the key for this transaction, and
  learns from its end whether there is anything left to do. Effects outlive the attempts of a run and are removed with
  the run.
"""

from __future__ import annotations

import re
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from tenure.core.records import Instant
from tenure.errors import AttemptLost, ConfigurationError, TenureError, WrongDatabase
from tenure.transactions.connections import AsyncConnection, SyncConnection, target_of
from tenure.transactions.drivers import Decision, Line, Row, Step, Steps, on_postgres, on_sqlite
from tenure.util.clock import walltime

NO_RUN = -1
"""No run has this number."""


@dataclass(frozen=True, slots=True)
class RunClaim:
    """What an attempt must show to complete its run."""

    run: int
    token: str
    key: str
    """The key of the run, for messages."""
    schema: str
    job: str
    started_at: Instant | None = None
    """When the attempt began, for statistics; None: about when it was claimed."""


@overload
def complete(connection: AsyncConnection, claim: RunClaim) -> Coroutine[Any, Any, None]: ...
@overload
def complete(connection: SyncConnection, claim: RunClaim) -> None: ...
def complete(connection: Any, claim: RunClaim) -> Any:
    """Let the run succeed with the connection's open transaction. Raises `AttemptLost` if the attempt has
    lost the run."""
    decision = Complete(claim)
    return target_of(connection, decision.call).inside(decision.call, lambda line: _completed(line, decision))


@overload
def once(connection: AsyncConnection, claim: RunClaim, key: str) -> Coroutine[Any, Any, bool]: ...
@overload
def once(connection: SyncConnection, claim: RunClaim, key: str) -> bool: ...
def once(connection: Any, claim: RunClaim, key: str) -> Any:
    """True if no attempt of this run has committed this key: do the work in this transaction. May be its first
    statement."""
    if not key:
        raise ConfigurationError(f"run.once: {key!r} cannot be a key. Write a name for the effect, such as 'invoices'.")
    decision = Once(claim, key)
    return target_of(connection, decision.call).inside(decision.call, lambda line: _first(line, decision), opens=True)


def _completed(line: Line, decision: Complete) -> Steps[None]:
    yield from line.decide(decision)


def _first(line: Line, decision: Once) -> Steps[bool]:
    row = yield from line.decide(decision)
    return bool(row and row[0])


@dataclass(frozen=True, slots=True)
class ByClaim(Decision):
    """The database decides whether the run is still this attempt's."""

    claim: RunClaim

    code = "TN002"
    words = "tenure: lost run"

    @property
    def what(self) -> str:
        return f"job {self.claim.job!r}, run {self.claim.key!r}: {self.call}"

    @property
    def schema(self) -> str:
        return self.claim.schema

    def hopeless(self) -> Mapping[str, object]:
        return {"run": NO_RUN}

    def refusal(self, error: BaseException) -> TenureError:
        state = re.search(r"run \d+ is (\w+)", str(error))
        return self._lost(state[1] if state else "")

    def standing(self) -> Step:
        return on_sqlite()["run_standing"], self._held()

    def over(self, row: Row | None) -> TenureError | None:
        state, ours = row or ("unknown", 0)
        return None if ours else self._lost(state)

    def _held(self) -> dict[str, object]:
        return {"run": self.claim.run, "token": self.claim.token}

    def _lost(self, state: str) -> TenureError:
        what = f"job {self.claim.job!r}, run {self.claim.key!r}"
        if state == "unknown":
            return WrongDatabase(
                f"{what}: this database has no run {self.claim.run}. Nothing was committed. Pass a connection to the "
                "database that the scheduler uses (or was the run removed since?)."
            )
        now = "another attempt has it" if state == "running" else f"it is {state or 'over'}"
        return AttemptLost(
            f"{what}: this attempt no longer counts, {now}. The database refused the transaction and nothing of it "
            "was committed: stop this work."
        )


@dataclass(frozen=True, slots=True)
class Complete(ByClaim):
    """The run succeeds with the transaction."""

    call = "run.complete"
    function = "complete"

    def on_postgres(self) -> Step:
        values = {**self._held(), "started_at": self.claim.started_at}
        return on_postgres(self.schema)["complete"], values

    def on_sqlite(self) -> Sequence[Step]:
        began = self.claim.started_at
        values = {"started_at": None if began is None else _microseconds(began), "finished_at": _now()}
        return [(on_sqlite()["complete"], {**self._held(), **values})]


@dataclass(frozen=True, slots=True)
class Once(ByClaim):
    """The effect of this key belongs to this transaction, or another one has committed it."""

    key: str

    call = "run.once"
    function = "once"

    def on_postgres(self) -> Step:
        return on_postgres(self.schema)["once"], {**self._held(), "key": self.key}

    def on_sqlite(self) -> Sequence[Step]:
        sql = on_sqlite()
        effect = {"run": self.claim.run, "key": self.key, "made_at": _now()}
        return [(sql["hold"], self._held()), (sql["once"], effect)]


def _now() -> int:
    return _microseconds(walltime().timestamp())


def _microseconds(instant: Instant) -> int:
    return round(instant * 1_000_000)
