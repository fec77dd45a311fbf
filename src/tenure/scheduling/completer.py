"""A thread that tells the ledger how attempts ended, in batches, and what they log while they run.

Carries G4: no ending is dropped. It has a connection of its own while there is something to send.

- An ending whose outcome is unknown is sent again. The ledger compares the token, and answers with what it has.
- A batch is bounded in count and bytes, and halved after each failure: no ending holds up others for ever.
- A busy ending (another transaction has its run locked) is sent again by itself, a little later.
- An ending that the database refuses because of its text is sent again without it.
- What bodies log, and how far they are, comes last, about every second, in small pieces. It never goes before an
  ending. What an ended attempt logged is dropped if the database stays away.
"""

from __future__ import annotations

import heapq
import itertools
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from tenure.core.database_clock import DatabaseClock
from tenure.core.messages import Ending
from tenure.core.records import RunId, RunKind, RunState
from tenure.errors import DataRefused, StoreError
from tenure.jobs.run_log import Piece, size_of
from tenure.scheduling.attempt import Attempt
from tenure.scheduling.base_executor import BaseExecutor
from tenure.scheduling.context import EndingQueue, LoopSignals
from tenure.scheduling.reporting import Reporter
from tenure.stores import Session, Store
from tenure.util.backoff import Backoff
from tenure.util.batch_size import BatchSize
from tenure.util.clock import boottime, sleep
from tenure.util.failure_log import FailureLog
from tenure.util.plurals import counted
from tenure.util.vital_thread import VitalThread

logger = logging.getLogger("tenure")

BATCH, TEXT = 1000, 256 * 1024
"""How many endings are sent at once, at most, and with how many bytes of text."""
PIECE, PIECE_TAKES = (4 * 1024, 64 * 1024), 0.02
"""Bytes of log lines per statement, within these bounds; halved if it takes longer, because an ending may wait."""
LOG_TRIES = 20
"""After this many failures in a row, the log lines that wait are dropped."""
BUSY = (0.005, 0.1)
"""Seconds before a busy ending is sent again: at first, doubled each time, and at most."""
REFUSED = 5.0
"""The longest pause before an ending is sent again that the database refuses even without its text."""
PACE = 0.01
"""Endings are sent together this often. One that comes alone is sent at once."""
PRESSED, STEP = 0.03, 0.002
"""While more is due than was claimed, claims go first: endings wait up to `PRESSED`, looking again every `STEP`."""
HASTE = 0.1
"""The longest pause after a failure when the node is about to leave."""
IDLE = 30.0
"""After this many seconds without an ending the connection is closed."""
NO_TEXT = "the database refused the text of its error; the log of its node has it"


class Completer(VitalThread):
    """Runs until it is told to stop. Passes the ledger's answers on to the executor, the loop and the reporter."""

    def __init__(
        self,
        store: Store,
        queue: EndingQueue,
        executor: BaseExecutor,
        signals: LoopSignals,
        reporter: Reporter,
        *,
        clock: DatabaseClock,
        label: str,
        timeout: float,
    ) -> None:
        super().__init__(f"tenure completer {label}")
        self._store, self._label, self._timeout, self._quiet = store, label, timeout, FailureLog(logger, store.shown)
        self._executor, self._signals, self._reporter, self._clock = executor, signals, reporter, clock
        self._queue, self._endings, self._wake = queue, queue.waiting, queue.wake
        self._sent: list[tuple[Attempt, Ending]] = []
        self._later: list[tuple[float, int, Attempt, Ending]] = []
        """Endings to be sent again, a heap by when."""
        self._pauses: dict[RunId, float] = {}
        """How long each of those waited the last time."""
        self._count = itertools.count()
        self._size = BatchSize(BATCH)
        self._backoff = Backoff()
        self._logs = queue.logs
        self._sent_piece: Piece | None = None
        self._piece = BatchSize(PIECE[1], PIECE[0])
        self._logs_backoff = Backoff()
        self._logs_from = 0.0
        self._logs_failed = 0
        self._said_dropped = False
        self._stopping = self._last_words = False
        self._session: Session | None = None
        self._told_at = 0.0

    @property
    def problem(self) -> str:
        """What fails at the moment; '' if nothing does."""
        return self._quiet.problem

    def stop(self, patience: float | None) -> bool:
        """End when everything is sent. Wait for that, but no longer than this. True if no ending was left."""
        self._stopping = True
        self._wake.set()
        self.join(patience)
        return not self._endings and not self._sent and not self._later

    def work(self) -> None:
        while True:
            self._wait()
            self._wake.clear()
            while self._later and self._later[0][0] <= boottime():
                self._endings.append(heapq.heappop(self._later)[2:])
            if self._logs_due():
                self._logs.collect()
            early = self._early() if self._endings else 0.0
            if self._endings and early <= 0:
                self._try(self._tell, self._telling_failed, self._telling_refused)
            elif self._logs and boottime() >= self._logs_from:
                self._try(self._send_log, self._log_failed, self._log_refused)
            elif self._endings:
                sleep(early)
            elif self._stopping and not self._later and not self._logs:
                self._drop()
                return

    def _wait(self) -> None:
        """Wait until there is something to do."""
        if self._endings:
            return
        moments = [self._later[0][0]] if self._later else []
        if self._logs:
            moments.append(self._logs_from)
        elif self._logs.due is not None:
            moments.append(self._logs.due)
        if moments:
            self._wake.wait(max(min(moments) - boottime(), 0.0))
        elif not self._stopping and not self._wake.wait(IDLE):
            self._drop()
            self._wake.wait()

    def _early(self) -> float:
        """Seconds to wait for more endings, to be sent together with these."""
        if self._stopping or len(self._endings) >= self._size.now:
            return 0.0
        if self._signals.pressed:
            return min(self._queue.waits_since + PRESSED - boottime(), STEP)
        return self._told_at + PACE - boottime()

    def _try(
        self, step: Callable[[Session], None], failed: Callable[[], None], refused: Callable[[Exception], None]
    ) -> None:
        try:
            if self._session is None:
                self._session = self._store.session(f"{self._label}:completer", self._timeout)
            step(self._session)
            self._quiet.worked("completer")
        except Exception as error:
            if self._session is not None and isinstance(error, (DataRefused, UnicodeError)):
                refused(error)  # because of what was sent: the connection is fine
                return
            self._drop()
            self._quiet.failed("completer", error)
            failed()

    # Endings

    def _tell(self, session: Session) -> None:
        self._told_at = boottime()
        self._sent = self._batch()
        answers = session.ledger.finish([ending for _, ending in self._sent])
        sent, self._sent = self._sent, []
        self._backoff.worked()
        self._size.worked(boottime() - self._told_at)
        for (attempt, ending), answer in zip(sent, answers, strict=True):
            if answer.busy:
                self._put_off(attempt, ending, BUSY[1])
                continue
            if self._pauses:
                self._pauses.pop(ending.id, None)
            if attempt.control.completed and answer.state is RunState.SUCCEEDED and attempt.result is not None:
                attempt.control.returned(attempt.result)
            if attempt.control.kept is not None and not self._logs.end(attempt.control.kept):
                self._say_dropped(1)
            try:
                self._executor.acknowledged(attempt)
                if answer.wakes or attempt.control.completed:  # the transaction of `run.complete()` wakes no node
                    self._signals.poke()
                if attempt.claimed.kind is RunKind.BACKFILL and answer.state.final:
                    self._signals.backfill()
                if attempt.claimed.owes and answer.state.final:
                    self._signals.owe()
                self._reporter.ended(attempt, ending, answer)
            except Exception:
                logger.exception("reporting how a run ended failed", extra={"action": "completer_failed"})

    def _batch(self) -> list[tuple[Attempt, Ending]]:
        batch: list[tuple[Attempt, Ending]] = []
        text = 0
        for one in itertools.islice(self._endings, self._size.now):
            text += size_of(one[1].error) if one[1].error else 0
            if batch and text > TEXT:
                break
            batch.append(one)
        for _ in batch:
            self._endings.popleft()
        return batch

    def _telling_failed(self) -> None:
        self._unsend()
        pause = self._backoff.pause(self._timeout)
        sleep(min(pause, HASTE) if self._stopping else pause)

    def _telling_refused(self, error: Exception) -> None:
        """The database refuses one of these for its content: send half as many, at once, until one is left."""
        if len(self._sent) > 1:
            self._unsend()
            return
        [(attempt, ending)] = self._sent
        self._sent = []
        if ending.error in {"", NO_TEXT}:
            self._quiet.failed("completer", error)
            self._put_off(attempt, ending, REFUSED)
            return
        logger.error(
            "run %d of %r: the database refuses the text of its ending (%s) and keeps the ending without it: %r",
            attempt.id,
            attempt.run.job,
            error,
            ending.error,
            extra={"action": "text_refused"},
        )
        self._endings.appendleft((attempt, replace(ending, error=NO_TEXT)))

    def _unsend(self) -> None:
        """Send these again, fewer at a time."""
        sent, self._sent = self._sent, []
        if sent:
            self._size.failed(len(sent))
            self._endings.extendleft(reversed(sent))

    def _put_off(self, attempt: Attempt, ending: Ending, longest: float) -> None:
        """Send it again by itself, a little later."""
        pause = self._pauses[ending.id] = min(self._pauses.get(ending.id, BUSY[0] / 2) * 2, longest)
        heapq.heappush(self._later, (boottime() + pause, next(self._count), attempt, ending))

    # Logs

    def _logs_due(self) -> bool:
        """Whether to collect what running bodies logged: about every second, and once more before the end."""
        due = self._logs.due
        if due is None or (due > boottime() and (self._last_words or not self._stopping)):
            return False
        self._last_words = self._stopping
        return True

    def _send_log(self, session: Session) -> None:
        piece, began = self._logs.piece(self._piece.now, self._clock.now), boottime()
        self._sent_piece = piece
        session.ledger.keep_log(piece.lines, piece.trims)
        session.ledger.keep_progress(piece.progress)
        session.ledger.keep_results(piece.results)
        took = boottime() - began
        self._logs.sent(piece)
        self._logs_backoff.worked()
        self._logs_failed, self._said_dropped = 0, False
        if took > PIECE_TAKES:
            self._piece.failed(self._piece.now)
        else:
            self._piece.worked(took)

    def _log_failed(self) -> None:
        self._piece.failed(self._piece.now)
        self._logs_from = boottime() + self._logs_backoff.pause(self._timeout)
        self._logs_failed += 1
        if self._stopping or self._logs_failed >= LOG_TRIES:
            self._logs_failed = 0
            if dropped := self._logs.drop():
                self._say_dropped(dropped)

    def _log_refused(self, error: Exception) -> None:
        del error
        piece, self._sent_piece = self._sent_piece, None
        if piece is not None:
            self._logs.sent(piece)
            self._say_dropped(max(len({line.run for line in piece.lines}), 1))

    def _say_dropped(self, runs: int) -> None:
        if not self._said_dropped:
            self._said_dropped = True
            logger.warning(
                "the database did not take log lines of %s: they are dropped, and more may be. No ending is affected.",
                counted(runs, "run"),
                extra={"action": "logs_dropped"},
            )

    def _drop(self) -> None:
        if self._session is not None:
            with suppress(StoreError, OSError):
                self._session.close()
        self._session = None
