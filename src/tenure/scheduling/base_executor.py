"""The attempts in this node's hand, and the rules by which they begin and end.

Carries G3: no body begins without the lease. Whether a body is called is decided once, under the mutex: the lease
holds, the attempt is still in hand, and no request to end it has come. Subclasses call the bodies: `Executor` on
threads, on an event loop and in processes, `tenure.testing` on the spot.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from tenure.core.arguments import encode_result
from tenure.core.database_clock import DatabaseClock
from tenure.core.messages import Ending
from tenure.core.planning import look_in, retry_in
from tenure.core.records import STOPPED, Instant, RunId, RunState
from tenure.errors import ConfigurationError, NotYet, UnreadableArguments
from tenure.scheduling import hangs
from tenure.scheduling.attempt import Attempt, AttemptPhase
from tenure.scheduling.context import NodeHandle
from tenure.scheduling.process_errors import ProcessFailed
from tenure.util.clock import boottime
from tenure.util.plurals import counted
from tenure.util.printable import printable
from tenure.util.randomness import fraction
from tenure.util.tracebacks import from_body_on

logger = logging.getLogger("tenure")

AHEAD, MAX_AHEAD = 0.02, 500
"""Claim ahead of free slots what will finish within `AHEAD` seconds at the recent pace, at most `MAX_AHEAD` runs."""
SHORTAGE = 1.0
"""After the system has refused a thread, claim nothing for this many seconds."""
MAX_ERROR = 8000
_WEIGHT, _INSTANT = 0.05, 0.000_01


class BaseExecutor(ABC):
    """Called by the loop (`ExecutorView`), by the completer (`acknowledged`), and by the threads of bodies."""

    def __init__(
        self,
        node: NodeHandle,
        clock: DatabaseClock,
        capacity: int,
        ended: Callable[[Attempt, Ending], None],
        freed: Callable[[], None],
        *,
        chance: Callable[[], float] = fraction,
    ) -> None:
        self.capacity = capacity
        self._node, self._clock, self._ended, self._freed, self._chance = node, clock, ended, freed, chance
        self._mutex = threading.Lock()
        self._in_hand: dict[RunId, Attempt] = {}
        self._busy = self._in_threads = 0
        self._hungry_below = 0
        self._hurried = False
        self.stopping = False
        """Its node stops: a coroutine that the event loop cancels is left to another node."""
        self._short_until = 0.0
        self._body_takes = math.inf
        self._results_refused: set[str] = set()
        """The jobs whose results could not be kept, and of which the log says so."""
        self._changed = threading.Condition(self._mutex)
        """A body has ended, or something left the hand, after …"""
        self._waited_for = False
        """… a stop began to wait for that."""

    @abstractmethod
    def take(self, attempts: Sequence[Attempt]) -> int:
        """Begin these as soon as there is a slot. Returns how many more there is room for."""

    @abstractmethod
    def cancel(self, attempt: Attempt) -> bool:
        """End the body if it can be ended from outside. A thread can only be asked."""

    # What is in hand

    def room(self) -> int:
        """How many runs to claim now: the free slots, and those that will be free in a moment."""
        with self._mutex:
            return self._room()

    def _room(self) -> int:
        if self._short_until and boottime() < self._short_until:
            return 0
        ahead = int(min(self.capacity * AHEAD / self._body_takes, MAX_AHEAD))
        enough = self.capacity + ahead // 2
        if self._busy >= enough:
            self._hungry_below = enough
            return 0
        return self.capacity + ahead - self._busy

    @property
    def in_hand(self) -> dict[RunId, Attempt]:
        """A copy: the attempts that this node has and has not given away."""
        with self._mutex:
            return dict(self._in_hand)

    @property
    def busy(self) -> int:
        """Attempts whose bodies have not ended."""
        return self._busy

    @property
    def running(self) -> tuple[Attempt, ...]:
        """Attempts in hand whose bodies were called and have not returned."""
        return tuple(attempt for attempt in self.in_hand.values() if attempt.phase is AttemptPhase.RUNNING)

    def overdue(self) -> tuple[Attempt, ...]:
        """Bodies that go on beyond their timeout."""
        now = boottime()
        return tuple(attempt for attempt in self.running if attempt.overdue(now))

    def ask_to_end(self, run: RunId, token: str, why: str) -> None:
        """Pass on a request to end this attempt."""
        with self._mutex:
            attempt = self._in_hand.get(run)
            if attempt is None or attempt.token != token or attempt.asked_to_end:
                return
            attempt.asked_to_end = why
        attempt.control.tell(why)
        self.cancel(attempt)

    def tell_all(self, why: str) -> None:
        """Ask all bodies to end, and cancel those that can be cancelled."""
        for attempt in self.in_hand.values():
            attempt.control.tell(why)
            self.cancel(attempt)

    def lose(self, attempts: Iterable[Attempt], why: str) -> None:
        """These do not count any more: tell their bodies, and forget them."""
        for attempt in attempts:
            if not self._forget(attempt):
                continue
            attempt.control.lose(why)
            self.cancel(attempt)
            logger.warning(
                "run %d of %r (%s, attempt %d) is lost to this node: %s",
                attempt.id,
                attempt.run.job,
                printable(attempt.run.key),
                attempt.run.attempt,
                why,
                extra=attempt.named("run_taken", self._node.label),
            )

    def acknowledged(self, attempt: Attempt) -> None:
        """The ledger has its ending."""
        self._forget(attempt)

    def _forget(self, attempt: Attempt) -> bool:
        with self._mutex:
            known = self._in_hand.get(attempt.id) is attempt
            if known:
                del self._in_hand[attempt.id]
                self._tell_who_waits()
            return known

    # Giving back what has not begun

    def give_back(self, older_than: float) -> None:
        """Give back what has not begun for this long, for a node that has a free slot."""
        limit = boottime() - older_than
        with self._mutex:
            back = [attempt for attempt in self._in_hand.values() if attempt.queued_at <= limit]
        self.put_back(back)

    def put_back(self, attempts: Iterable[Attempt]) -> int:
        """Give back those whose bodies were not called. Returns how many."""
        with self._mutex:
            back = [attempt for attempt in attempts if attempt.phase is AttemptPhase.QUEUED]
            for attempt in back:
                attempt.phase = AttemptPhase.ENDED
        for attempt in back:
            self.end(attempt, Ending(attempt.id, attempt.token, RunState.PENDING))
        return len(back)

    def withhold(self, held: Iterable[tuple[RunId, str]]) -> tuple[list[tuple[RunId, str, Instant]], bool]:
        """The jobs of these were paused or removed: give back what has not begun.

        Returns those whose bodies have been called, and whether others are about to be. Ask about these again soon.
        """
        back: list[Attempt] = []
        begun: list[tuple[RunId, str, Instant]] = []
        about_to = False
        with self._mutex:
            for run, token in held:
                attempt = self._in_hand.get(run)
                if attempt is None or attempt.token != token or attempt.phase is AttemptPhase.ENDED:
                    continue  # its ending is on its way to the ledger
                if attempt.phase is AttemptPhase.QUEUED:
                    attempt.phase = AttemptPhase.ENDED
                    back.append(attempt)
                elif attempt.called and attempt.started_at is not None:
                    begun.append((run, token, self._clock.now(attempt.started_at)))
                else:
                    about_to = True
        for attempt in back:
            self.end(attempt, Ending(attempt.id, attempt.token, RunState.PENDING))
        return begun, about_to

    def refuse(self, error: Exception, back: Iterable[Attempt]) -> None:
        """There is no thread, process or event loop for these: give them back, and claim nothing for a while."""
        self._short_until = boottime() + SHORTAGE
        logger.error(
            "this node cannot begin %s and gives back what it has claimed: %s",
            counted(self.put_back(back), "run"),
            error,
            extra={"action": "cannot_begin"},
        )

    # The life of an attempt

    def accept(self, attempts: Iterable[Attempt]) -> None:
        """Take these in hand."""
        with self._mutex:
            for attempt in attempts:
                self._in_hand[attempt.id] = attempt
                self._busy += 1
                self._in_threads += not attempt.function.is_coroutine

    def begin(self, attempt: Attempt, at: float) -> bool:
        """Decide, once, whether the body is called. If not, the attempt goes back."""
        with self._mutex:
            mine = self._in_hand.get(attempt.id) is attempt and self._trusted(attempt) and not attempt.asked_to_end
            begins = mine and attempt.phase is AttemptPhase.QUEUED
            if begins:
                attempt.phase, attempt.started_at = AttemptPhase.RUNNING, at
        if not begins:
            # Without trust the answer may come too late. The ledger compares the token, and reconciling does the rest.
            self.put_back([attempt])
            return False
        attempt.control.began_at = self._clock.now(at)
        return True

    def _trusted(self, attempt: Attempt) -> bool:
        return self._node.id == attempt.node and boottime() < self._node.lease_until

    def judge(self, attempt: Attempt, failure: BaseException | None) -> Ending:
        """What the body's return means. A request to end counts, unless its own transaction completed the run."""
        claimed, run = attempt.claimed, attempt.run
        began, ended = attempt.started_at or boottime(), boottime()
        state, error, again_in = RunState.SUCCEEDED, "", None
        raised: BaseException | None = None
        pause, wait_up_to = 0.0, None
        if failure is None:
            failure = attempt.control.not_awaited()
        if isinstance(failure, NotYet):
            failure, pause = _checked(failure, attempt, self._node.label)
        if failure is not None:
            state, (error, raised) = RunState.FAILED, _told(failure)
        if attempt.control.completed:
            if failure is None or isinstance(failure, NotYet):
                state, error, raised = RunState.FAILED, "the transaction of run.complete() was not committed", None
        elif attempt.asked_to_end:
            state, error, raised = RunState.CANCELLED, attempt.asked_to_end, None
        elif attempt.timed_out:
            (error, raised), state = hangs.told(claimed.rules.timeout or 0.0, attempt.hang), RunState.FAILED
            error, attempt.hang = _bounded(error.encode("utf-8", "backslashreplace").decode()), None
        elif isinstance(failure, NotYet):
            state, again_in, wait_up_to = RunState.PENDING, pause, claimed.rules.wait_up_to
        elif failure is not None and (run.cancelled or (self.stopping and isinstance(failure, asyncio.CancelledError))):
            # Also if the lease has lapsed and the body raised AttemptLost for that. `on_lost` decides about a retry.
            state, error, raised = RunState.PENDING, STOPPED, None
        if state is RunState.FAILED:
            attempt.failure = raised
            again_in = retry_in(claimed.rules, claimed.failures + 1, self._chance())
            state = RunState.FAILED if again_in is None else RunState.PENDING
        result = attempt.result if state is RunState.SUCCEEDED else None
        times = self._clock.now(began), self._clock.now(ended)
        return Ending(attempt.id, attempt.token, state, error, again_in, *times, wait_up_to, result)

    def keep_result(self, attempt: Attempt, value: object) -> None:
        """Keep what a body returned. The run succeeds whether or not that can be kept."""
        if value is None:
            return
        try:
            attempt.result = encode_result(value)
        except Exception as error:
            self.refuse_result(attempt, str(error))

    def refuse_result(self, attempt: Attempt, why: str) -> None:
        """Say once for each job that its results are not kept."""
        if attempt.run.job not in self._results_refused:
            self._results_refused.add(attempt.run.job)
            logger.warning(
                "what %r returns is not kept with its runs: it %s. Return less, or None. This is said once.",
                attempt.run.job,
                why,
                extra={"action": "result_not_kept"},
            )

    def end(self, attempt: Attempt, ending: Ending) -> None:
        """Free its slot and pass its ending on. It stays in hand until the ledger has acknowledged that."""
        with self._mutex:
            attempt.phase = AttemptPhase.ENDED
            self._busy -= 1
            self._in_threads -= not attempt.function.is_coroutine
            if attempt.started_at is not None:
                took = max(boottime() - attempt.started_at, _INSTANT)
                before = self._body_takes if math.isfinite(self._body_takes) else took
                self._body_takes = before + (took - before) * _WEIGHT
            hungry = self._busy < self._hungry_below
            if hungry:
                self._hungry_below = 0
            self._tell_who_waits()
            known = self._in_hand.get(attempt.id) is attempt
        if known:
            self._ended(attempt, ending)
        if hungry:
            self._freed()

    # Waiting for the end

    def drain(self, patience: float) -> bool:
        """Wait until nothing runs any more; False if that takes too long, or `hurry` was called."""
        self._wait(lambda: self._busy == 0 or self._hurried, patience)
        return self._busy == 0

    def hurry(self) -> None:
        """End `drain` now."""
        with self._changed:
            self._hurried = True
            self._changed.notify_all()

    def hear_last_words(self, patience: float) -> None:
        """Wait until nothing runs any more, hurry or not."""
        self._wait(lambda: self._busy == 0, patience)

    def told(self, patience: float) -> bool:
        """Wait until the ledger knows of everything that has ended; False if that takes too long."""
        return self._wait(lambda: all(a.phase is not AttemptPhase.ENDED for a in self._in_hand.values()), patience)

    def wait_until_idle(self) -> None:
        """Wait, however long it takes, until no body runs that still counts."""
        self._wait(lambda: all(a.phase is not AttemptPhase.RUNNING for a in self._in_hand.values()), None)

    def _wait(self, until: Callable[[], bool], patience: float | None) -> bool:
        with self._changed:
            self._waited_for = True
            return self._changed.wait_for(until, patience)

    def _tell_who_waits(self) -> None:
        if self._waited_for:
            self._changed.notify_all()


def _checked(failure: NotYet, attempt: Attempt, label: str) -> tuple[BaseException, float]:
    """What was raised, and in how many seconds to look again; or the error in it."""
    if attempt.control.completed:
        logger.error(
            "run %d of %r (%s, attempt %d) raised NotYet after run.complete(): it is not tried again for that. "
            "Only the transaction of run.complete() decides how the run ends. Raise NotYet before it.",
            attempt.id,
            attempt.run.job,
            printable(attempt.run.key),
            attempt.run.attempt,
            extra=attempt.named("not_yet_after_complete", label),
        )
        return failure, 0.0
    try:
        return failure, look_in(failure)
    except ConfigurationError as error:
        error.__cause__ = failure
        return error, 0.0


def _told(failure: BaseException) -> tuple[str, BaseException | None]:
    """The end of a traceback, where the message is, and the exception for the log.

    Formatting runs code of the application, which may raise; what cannot be printed is not given to the log.
    """
    shown: BaseException | None = failure
    if isinstance(failure, UnreadableArguments):
        return f"cannot be read: {failure}", failure
    if isinstance(failure, ProcessFailed):  # its traceback is that of the child, not where we waited for it
        text, shown = failure.text, failure.with_traceback(None)
    else:
        try:
            shown = failure.with_traceback(from_body_on(failure.__traceback__))
            plain = isinstance(failure, NotYet)
            text = str(failure) if plain else "".join(traceback.format_exception(failure)).rstrip()
        except BaseException as error:
            text = f"{type(failure).__name__} (its text cannot be shown: {type(error).__name__} while it was printed)"
            shown = None
    # Half a character can be neither stored nor written, and would cost a handler the whole record.
    kept = text.encode("utf-8", "backslashreplace").decode()
    return _bounded(kept), shown if kept == text else None


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_ERROR else "…" + text[-MAX_ERROR:]
