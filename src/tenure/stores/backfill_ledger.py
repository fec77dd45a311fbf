"""The part of a ledger that keeps backfills.

tests/stores/ledger/test_backfills.py states it in behaviour.

  fixed        The due times of a backfill are fixed when it is created. Each is LEFT until its run is requested, oldest
               first, and is settled when that run is over, or was OVERTAKEN.
  at once      Of a RUNNING backfill, at most `at_once` runs that it has requested are not over; under `at_once` None
               there is no limit. No due time is requested of a PAUSED or CANCELLED one.
  any node     Each step is one transaction under the lock of the backfill's row, and starts from what is stored. Any
               node may do any of them, at any time.
  never again  A due time whose run has succeeded is not run again, nor one that was taken by other means.
  kept         Retention removes no run at or after a due time of a backfill that is not settled. So the ledger does not
               forget what a backfill still has to run.

Claims, endings and the planning of ordinary runs read and write nothing here. Lock order: job, backfill, runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from tenure.core.backfills import Advanced, BackfillRow, NewBackfill, Steer
from tenure.core.messages import Action
from tenure.core.records import Instant, RunRow


class BackfillLedger(ABC):
    """Backfills over one connection. The same rules hold as for `Ledger`."""

    @abstractmethod
    def create_backfill(self, wanted: NewBackfill) -> tuple[int | None, list[RunRow]]:
        """Create a backfill and request its first runs: its number and these runs, oldest first.

        Takes those of the due times that `core.backfills.takes` says, decided under the lock of the job. Without any,
        and for a job that does not exist or is REMOVED, nothing is created: None.

        A requested run is of kind BACKFILL, PENDING and due now, without expiry, `by` the one who created the backfill
        ('backfill 7' if that is not known). A run that exists is reopened, as by `retry`. The action's detail begins
        with the number.
        """

    @abstractmethod
    def advance_backfills(self, application: str, limit: int, *, as_of: Instant | None = None) -> Advanced:
        """Settle due times whose runs are over, and request the next runs; at most `limit` of each backfill. No run is
        due later than `as_of`, if that is given and its own due time is past by then.

        A backfill without unsettled due times is finished: DONE, unless it is CANCELLED. Waits for no lock: what
        another transaction has locked stays as it is. Where there is nothing to do, nothing is written.
        """

    @abstractmethod
    def steer_backfill(
        self, application: str, number: int, steer: Steer, *, by: str, why: str, action: Action | None = None
    ) -> bool:
        """Pause, resume or cancel a backfill. False, and nothing changes, if it is in no state for it.

          PAUSE   A RUNNING one with due times that are LEFT. Its requested runs go on.
          RESUME  A PAUSED one. Its next runs are requested at once.
          CANCEL  A RUNNING or PAUSED one. Its PENDING and WAITING runs become CANCELLED, also between two attempts.
                  RUNNING ones go on to their end. What is LEFT stays so.

        The removal of a job cancels its backfills in the same way. While a job is PAUSED, its backfills go on, but none
        of their runs is claimed.
        """

    @abstractmethod
    def backfills(
        self, application: str, *, number: int | None = None, job: str | None = None, limit: int = 100
    ) -> list[BackfillRow]:
        """The backfills of an application, newest first; or the one with this number, or those of a job."""

    @abstractmethod
    def forget_backfills(self, application: str, before: Instant, limit: int) -> int:
        """Delete at most `limit` backfills that were finished before this instant. Returns how many."""
