"""The conductor: claims, plans (`scheduling/planner.py`), calls the roll and settles what was missed. A duty of the campaign: one thread, one connection.

Because claims and roll calls go over one connection, one after the other, every claim is answered or abandoned when a roll call is
sent: a run that the ledger says this node has, and that it has not, is a claim whose answer was lost, and goes back.
"""

from __future__ import annotations

import logging
import math
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Protocol

from tenure.core.cluster import NodeId
from tenure.core.database_clock import DOUBT, JUMP, SUSPECT, DatabaseClock
from tenure.core.planning import MissedVerdict, settle
from tenure.core.records import ClaimedRun, ClaimRequest, Instant, JobId, LostRun, MissedJob, NodeFacts, RollCall, RunId
from tenure.errors import StoreError
from tenure.jobs.functions import Registry
from tenure.scheduling.attempt import Attempt, AttemptPhase
from tenure.scheduling.planner import Planner
from tenure.stores import Session
from tenure.stores.ledger import Ledger
from tenure.stores.notices import JobsChanged, Notice, PeersChanged
from tenure.util.async_bridge import without_loop
from tenure.util.batch_size import QUICK, BatchSize
from tenure.util.clock import boottime, walltime
from tenure.util.plurals import counted

logger = logging.getLogger("tenure")

CALM = 0.1
"""More may be planned at once if nothing is due for so long."""
CLAIM_BATCH = 250
BURST = 0.05
"""How long claims may follow each other before anything else has its turn."""
BUSY = 8
PACE = 0.003
"""Where a claim brings so many runs, the next one comes so much later at the earliest: many small claims are late together."""
IN_VAIN = 0.1
"""Where others have locked all that is due, the next claim comes after `PACE`, then after twice as long each time, up to this."""
LEARN_EVERY, LEARN_SOON = 10.0, 1.0
"""When to learn again; the latter while there is more to plan anew by other zone rules."""
PRUNE_EVERY, PRUNE_SOON = 60.0, 5.0
"""When retention goes through all jobs again: after it has found nothing, and after it has."""
FORGET_BATCH = 100
"""How many jobs are forgotten at once, with ten times as many of their changes."""
PRUNE_BATCH, PRUNE_JOBS = (50, 1000), 100
"""How many runs are removed at once, at least and at most, of how many jobs: as many as take `PRUNE_TIME`, because claims wait meanwhile."""
PRUNE_TIME = 0.008
PRUNE_WAITS = 0.03
"""For how long a slice may be put off because a claim is due before it would end."""
STUMBLE = 5.0
"""When to try again what failed for a reason of its own."""
LOOP_GAP = 1.0
"""Seconds for which an event loop may stand still before the log says so: it does between two calls of `run_until_complete`."""
SETTLE_BATCH = 50
ANSWER_AGAIN = 0.02
"""When to look again at bodies that are about to be called while somebody waits to hear that nothing more begins."""


class NodeView(Protocol):
    """What the conductor needs of its node."""

    @property
    def id(self) -> NodeId: ...
    @property
    def lease_until(self) -> float: ...
    def wake(self) -> None: ...


class Hands(Protocol):
    """What the conductor needs of the runner."""

    def room(self) -> int: ...
    @property
    def in_hand(self) -> dict[RunId, Attempt]: ...
    def take(self, attempts: Sequence[Attempt]) -> int: ...
    def ask_to_end(self, run: RunId, token: str, why: str) -> None: ...
    def lose(self, attempts: Sequence[Attempt], why: str) -> None: ...
    def withhold(self, held: Sequence[tuple[RunId, str]]) -> tuple[list[tuple[RunId, str, Instant]], bool]: ...
    def give_back(self, older_than: float) -> None: ...
    def end_abandoned(self) -> None: ...


class SchedulerLoop:
    """Called on the campaign's thread, but for `poke`, `freed` and `rest`."""

    def __init__(
        self,
        node: NodeView,
        hands: Hands,
        registry: Registry,
        clock: DatabaseClock,
        *,
        application: str,
        every: float,
        queues: tuple[str, ...] | None,
        keep: tuple[float, int, float],
        plans: Callable[[], bool],
        facts: Callable[[NodeId], NodeFacts],
        attempt: Callable[[ClaimedRun, str, NodeId], Attempt],
        lost: Callable[[LostRun], None],
        missed: Callable[[MissedJob, MissedVerdict], None],
        no_loop: Callable[[], str] = lambda: "",
    ) -> None:
        self._node, self._hands, self._registry, self._clock = node, hands, registry, clock
        self._application, self._every, self._queues, self._keep = application, every, queues, keep
        self._plans, self._attempt, self._tell_lost, self._tell_missed = plans, attempt, lost, missed
        self._no_loop, self._no_loop_since, self._complained = no_loop, math.inf, ""
        self._planning = Planner(application, clock, every=every, plans=plans, facts=facts)
        self._as: NodeId = ""
        self._claims_from = self._rolls_from = self._learns_from = 0.0
        self._prunes_from = boottime() + PRUNE_EVERY
        self._settles_from = math.inf
        self._judges_from = 0.0
        self._pruned, self._prune_batch, self._prunes_by = JobId(0), PRUNE_BATCH[0], 0.0
        self._found_old = self._prunes_on = False
        self._claim_size = BatchSize(CLAIM_BATCH)
        self._poked = self._freed = self._resting = False
        self._token, self._in_vain = "", 0.0
        self.pressed = False
        """More is due than the last claim brought."""
        self._turning = threading.Lock()
        self.said_stopping = threading.Event()
        """The ledger knows that this node was asked to stop."""

    # From other threads

    @property
    def notes(self) -> tuple[str, ...]:
        """What people should know of planning."""
        return self._planning.notes

    def poke(self) -> None:
        """Something was asked for or changed: look at once."""
        self._poked = True
        self._node.wake()

    def freed(self) -> None:
        """A slot is free, and there was none."""
        self._freed = True
        self._node.wake()

    def rest(self) -> None:
        """Plan and claim no more, also not in a turn that has begun; the roll is still called, for those that run."""
        self._resting = True
        with self._turning:
            self._rolls_from = 0.0  # at once, to say that this node was asked to stop
        self._node.wake()

    # From the campaign

    def heard(self, notice: Notice) -> None:
        """A node died or left, or jobs of an application changed."""
        if notice == PeersChanged():
            self._rolls_from = 0.0
        elif notice == JobsChanged(self._application):
            self._learns_from = self._planning.plans_from = self._claims_from = self._rolls_from = 0.0

    def next_at(self) -> float:
        """When something is due."""
        if self._poked or self._freed:
            return 0.0
        moments = [self._rolls_from]
        if not self._resting:
            moments += [self._learns_from, self._claims_from, self._settles_from, self._planning.plans_from]
            moments.append(self._planning.heals_from)
            if self._prunes_on:
                moments.append(self._prunes_from)
        return min(moments)

    def turn(self, session: Session) -> None:
        """Do what is due. The roll comes before the claim: what dead nodes had is claimed at once."""
        with self._turning:
            self._turn(session.ledger)

    def _turn(self, ledger: Ledger) -> None:
        if self._node.id != self._as:
            self._change_identity()
        if not self._as:
            self._claims_from = self._planning.plans_from = self._rolls_from = boottime() + 0.05
            return
        if self._poked:
            self._poked = False
            self._learns_from = self._planning.plans_from = self._claims_from = 0.0
        if self._freed:
            self._freed, self._claims_from = False, 0.0
        if self._resting:
            self._planning.forget(ledger)
        else:
            self._do(self._learn, ledger, "_learns_from")
        self._do(self._call_roll, ledger, "_rolls_from")
        if not self._resting:
            self._do(self._claim, ledger, "_claims_from")
            self._do(self._plan, ledger, "plans_from", self._planning)
            self._do(self._settle, ledger, "_settles_from")
            self._do(self._prune, ledger, "_prunes_from")
            self._do(self._planning.heal, ledger, "heals_from", self._planning)

    def _do(self, step: Callable[[Ledger], None], ledger: Ledger, due: str, of: Planner | None = None) -> None:
        """A step, if it is due. One that stumbles over what it read holds up neither the others nor the elections of this node."""
        whose = self if of is None else of
        if boottime() < getattr(whose, due):
            return
        try:
            step(ledger)
        except (StoreError, OSError):
            raise  # of the connection: the campaign takes another one
        except Exception:
            logger.exception("the scheduler stumbled; it goes on", extra={"action": "scheduler_step_failed"})
            setattr(whose, due, boottime() + STUMBLE)

    def _change_identity(self) -> None:
        """Whatever was in the hand of the old one is lost: it was declared dead."""
        self._as = self._node.id
        old = [attempt for attempt in self._hands.in_hand.values() if attempt.node != self._as]
        self._hands.lose(old, "its node was declared dead")
        self._claims_from = self._planning.plans_from = self._rolls_from = self._learns_from = 0.0

    def _learn(self, ledger: Ledger) -> None:
        """Which functions jobs name, who has them, and what time it is."""
        functions = ledger.functions(self._application)
        self._registry.wanted(functions)
        self._planning.learn(ledger, self._as, functions)
        sent_at = boottime()
        self._observe(ledger.now(), sent_at)
        self._learns_from = boottime() + (LEARN_SOON if self._planning.learns_on else LEARN_EVERY)

    def _observe(self, now: Instant, sent_at: float) -> bool:
        """Learn the ledger's time. True if it has jumped just now, and is not believed."""
        first, doubted = not self._clock.known, self._clock.doubts
        wall = walltime().timestamp() if first else None
        jump = self._clock.observe(now, sent_at, boottime(), wall)
        if jump:
            logger.error(
                "the clock of the database jumped by %+.0f s; tenure carries the old time on for a while. Look at that server.",
                jump,
                extra={"action": "clock_jumped"},
            )
        if wall is not None and self._clock.suspects(boottime()):
            logger.warning(
                "the clock of the database is %+.0f s from that of this host. Due times follow the database.",
                now - wall,
                extra={"action": "clocks_differ"},
            )
            # What the first seconds need is in the ledger since the sync.
            self._planning.plans_from = self._judges_from = boottime() + SUSPECT
        if doubted and not self._clock.doubts:
            self._planning.heal_soon()
        return bool(jump)

    # The roll call

    def _call_roll(self, ledger: Ledger) -> None:
        self._hands.end_abandoned()
        node, before, sent_at, stopping = self._as, self._hands.in_hand, boottime(), self._resting
        call = ledger.roll_call(node, self._application, stopping=stopping)
        if stopping:
            self.said_stopping.set()
        self._rolls_from = sent_at + self._every
        self._observe(call.now, sent_at)
        if self._node.id != node:
            return
        held = {mine.id: mine for mine in call.held}
        strays = [(mine.id, mine.token) for mine in call.held if not _has(before, mine.id, mine.token)]
        if strays:
            logger.info(
                "the answer to a claim of %s was lost; what it claimed goes back",
                counted(len(strays), "run"),
                extra={"action": "put_back"},
            )
            ledger.put_back(strays)
        gone = [
            attempt
            for attempt in before.values()
            if not (mine := held.get(attempt.id)) or mine.token != attempt.token
            if attempt.phase is not AttemptPhase.ENDED and not attempt.run.completed
        ]
        self._hands.lose(gone, "the ledger took it back")
        for mine in call.held:
            if mine.asked_to_end:
                self._hands.ask_to_end(mine.id, mine.token, mine.asked_to_end)
        self.answer(ledger, call)
        for lost in call.lost:
            self._tell_lost(lost)
        if strays or call.lost:
            self._claims_from = 0.0

    def answer(self, ledger: Ledger, call: RollCall) -> None:
        """Whoever paused or removed a job waits until no run that was claimed before can begin any more.

        A body is called only if its attempt is QUEUED under the runner's mutex. What is QUEUED now is ended under that mutex and goes
        back; what has been called is confirmed. So nothing of these jobs begins after the last answer.
        """
        asked = [(mine.id, mine.token) for mine in call.held if mine.must_answer]
        if not asked:
            return
        begun, about_to = self._hands.withhold(asked)
        if begun:
            ledger.note_begun(begun)
        if about_to:
            self._rolls_from = min(self._rolls_from, boottime() + ANSWER_AGAIN)

    # Claiming

    def _claim(self, ledger: Ledger) -> None:
        """What is due. While more is due, the next claim is on its way before the bodies of the last one take the processor."""
        self._hands.give_back(_STALE)
        room, ends_at = self._hands.room(), boottime() + BURST
        while (room := self._claim_some(ledger, room)) and boottime() < ends_at and not self._resting:
            pass

    def _claim_some(self, ledger: Ledger, room: int) -> int:
        """Returns for how many more there is room, if more is due."""
        node, sent_at = self._as, boottime()
        if room <= 0 or sent_at >= self._node.lease_until:
            self._claims_from = sent_at + self._every
            return 0
        token, self._token = self._token or str(uuid.uuid4()), ""
        as_of = self._clock.now(sent_at) if self._clock.doubts else None
        limit = min(room, self._claim_size.now)
        try:
            answer = ledger.claim(
                ClaimRequest(node, self._application, token, limit, self._here(), self._queues, as_of)
            )
        except (StoreError, OSError):  # perhaps the answer is too large for the link
            self._claim_size.failed(limit)
            raise
        received_at = boottime()
        self._claim_size.worked(received_at - sent_at)
        self.pressed = answer.more and bool(answer.runs)
        jumped = self._observe(answer.now, sent_at)
        if self._node.id != node or received_at >= self._node.lease_until:
            return 0  # abandoned: the roll call, or whoever declared this node dead, gives them back
        if jumped:  # decided by a clock that is not believed: again, by our own
            ledger.put_back([(run.id, token) for run in answer.runs])
            self._claims_from = received_at
            return 0
        self._token = str(uuid.uuid4())  # of the next claim; asking the kernel would let the bodies go first
        known = [run for run in answer.runs if self._registry.get(run.function) is not None]
        attempts = [self._attempt(run, token, node) for run in known]
        room = self._hands.take(attempts)
        if len(known) < len(answer.runs):
            ledger.put_back([(run.id, token) for run in answer.runs if run not in known])
            self._learns_from = 0.0
        if answer.missed and not self._clock.doubts:  # nothing is missed by a clock that is doubted
            self._settles_from = self._judges_from
        vain = answer.more and not answer.runs  # others have these runs, or their jobs, just now
        self._in_vain = min(max(self._in_vain * 2, PACE), IN_VAIN) if vain else 0.0
        self._claims_from = received_at + (self._in_vain if answer.more else self._every)
        if answer.next_at is not None and self._clock.known and not self.pressed:
            soon = self._clock.at(answer.next_at)
            if len(answer.runs) >= BUSY:
                soon = max(soon, sent_at + PACE)
            self._claims_from = min(soon, self._claims_from)
        return room if self.pressed else 0

    def _here(self) -> tuple[str, ...]:
        """The functions whose runs can begin here: those of this node, without its coroutines while no event loop runs them."""
        problem, now = self._no_loop(), boottime()
        coroutines = self._registry.coroutines if problem else ()
        if not coroutines:
            self._complained, self._no_loop_since = "", math.inf
            return self._registry.names
        self._no_loop_since = min(self._no_loop_since, now)
        if problem != self._complained and now >= self._no_loop_since + LOOP_GAP:
            self._complained = problem
            logger.error("%s", without_loop(problem, coroutines), extra={"action": "no_loop"})
        return tuple(name for name in self._registry.names if name not in coroutines)

    # Planning

    def _plan(self, ledger: Ledger) -> None:
        soonest = self._planning.plan(ledger, calm=self._claims_from > boottime() + CALM)
        if soonest is not None:
            self._claims_from = min(self._claims_from, self._clock.at(soonest))

    # What was missed, and what is old

    def _settle(self, ledger: Ledger) -> None:
        self._settles_from = math.inf
        now = self._clock.now(boottime())
        sure = self._plans() or boottime() >= self._clock.believed_since + DOUBT[1]
        since = 0.0 if sure else self._clock.now(self._clock.believed_since) - JUMP
        for job in ledger.missed(self._application, SETTLE_BATCH, self._registry.names):
            if job.runs[-1].scheduled_for + job.rules.on_time < since:
                continue  # missed before this node knew the time, about which others may be of another mind
            verdict = settle(job, now=now)
            if ledger.settle(job.id, job.generation, make_up=verdict.make_up, skip=verdict.skip, reason=verdict.reason):
                self._tell_missed(job, verdict)
                if verdict.make_up:
                    self._claims_from = 0.0

    def _prune(self, ledger: Ledger) -> None:
        """Remove old runs, slice by slice while any are left, and rest as long as the last slice took. Claims come first."""
        began_at = boottime()
        if not self._plans() or self._clock.doubts or began_at < self._clock.believed_since + PRUNE_EVERY:
            self._prunes_from, self._prunes_on = began_at + PRUNE_EVERY, False
            return
        if self._claims_from < began_at + PRUNE_TIME and began_at < self._prunes_by:
            self._prunes_from = max(self._claims_from, began_at)
            return
        try:
            self._prune_slice(ledger, began_at)
        except (StoreError, OSError):  # perhaps it is too much for one statement: less next time, and not at once
            self._prune_batch = max(self._prune_batch // 2, 1)
            self._prunes_from, self._prunes_on = boottime() + PRUNE_SOON, True
            raise

    def _prune_slice(self, ledger: Ledger, began_at: float) -> None:
        (age, count, keys_age), batch = self._keep, self._prune_batch
        wall = self._clock.now(began_at)
        pruned = ledger.prune(
            self._application,
            before=wall - age,
            keep=count,
            limit=batch,
            beyond=self._pruned,
            jobs=PRUNE_JOBS,
            keys_before=wall - keys_age,
        )
        now = boottime()
        took = now - began_at
        self._found_old |= pruned.more or pruned.removed > 0
        self._prunes_from, self._prunes_by = now + took, now + took + PRUNE_WAITS
        if pruned.more:
            fits = int(batch * PRUNE_TIME / max(took, 0.000_1))
            least = batch * 2 if took < QUICK else batch  # below the least only after failures
            self._prune_batch = min(max(fits, min(least, PRUNE_BATCH[0])), PRUNE_BATCH[1])
        self._prunes_on = True
        if pruned.more and pruned.removed:
            return  # of the same jobs; if others have all of them locked, later
        self._pruned = pruned.up_to or JobId(0)
        if not self._pruned:
            live = {function for node in ledger.nodes(self._application) for function in node.functions}
            forgotten = ledger.forget(self._application, before=wall - age, defined=live, limit=FORGET_BATCH)
            now, took = boottime(), boottime() - now
            if forgotten.more:
                self._prunes_from = now + took
                return
            self._found_old |= forgotten.jobs > 0
            self._prunes_from = now + (PRUNE_SOON if self._found_old else PRUNE_EVERY)
            self._found_old = self._prunes_on = False


_STALE = 0.1
"""What was claimed ahead of a free slot and has not begun for so long goes back to the others."""


def _has(in_hand: dict[RunId, Attempt], run: RunId, token: str) -> bool:
    attempt = in_hand.get(run)
    return attempt is not None and attempt.token == token
