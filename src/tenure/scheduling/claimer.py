"""Claims due runs and hands them to the executor. Carries G3: a claim counts only while this node's lease holds.

A claim whose answer comes after the lease has ended, or under another identity, is abandoned. The next reconciliation,
or the node that declared this one dead, gives its runs back.

Each answer says when the next run is due. The claimer puts that instant on the agenda, and the control loop
(`cluster/control_loop.py`) sleeps until then.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Sequence

from tenure.core.messages import ClaimedRun, ClaimRequest
from tenure.core.records import RunKind
from tenure.errors import StoreError
from tenure.scheduling.agenda import Step
from tenure.scheduling.attempt import Attempt, MakeRun
from tenure.scheduling.clock_watch import ClockWatch
from tenure.scheduling.context import LoopContext
from tenure.stores.ledger import Ledger
from tenure.util.async_bridge import without_loop
from tenure.util.batch_size import BatchSize
from tenure.util.clock import boottime

logger = logging.getLogger("tenure")

CLAIM_BATCH = 250
BURST = 0.05
"""Seconds for which claims may follow each other before the other steps have their turn."""
BUSY, PACE = 8, 0.003
"""After a claim of `BUSY` or more runs, wait at least `PACE` before the next: many small claims delay each other."""
IN_VAIN = 0.1
"""While other nodes have locked all that is due, wait `PACE` before the next claim, doubled each time, up to this."""
STALE = 0.1
"""Runs that were claimed before a slot was free go back if they have not begun after this many seconds, so that other
nodes can claim them."""
LOOP_GAP = 1.0
"""How many seconds to be without a running event loop before logging it: `run_until_complete` leaves short gaps."""


class Claimer:
    """The claims of one node."""

    def __init__(self, context: LoopContext, clock_watch: ClockWatch, make_run: MakeRun) -> None:
        self._context, self._clock_watch, self._make_run = context, clock_watch, make_run
        self._node, self._executor, self._clock = context.node, context.executor, context.clock
        self._size = BatchSize(CLAIM_BATCH)
        self._token, self._in_vain = "", 0.0
        self._no_loop_since, self._complained = math.inf, ""

    def claim(self, ledger: Ledger) -> None:
        """Claim what is due. While more is due, claim again before the bodies take the processor."""
        self._executor.give_back(STALE)
        room, ends_at = self._executor.room(), boottime() + BURST
        while (room := self._claim_some(ledger, room)) and boottime() < ends_at and not self._context.resting:
            pass

    def _claim_some(self, ledger: Ledger, room: int) -> int:
        """Returns how many more runs there is room for; 0 if this is not the time to claim again."""
        context, agenda, node, sent_at = self._context, self._context.agenda, self._context.identity, boottime()
        if room <= 0 or sent_at >= self._node.lease_until:
            agenda.at(Step.CLAIM, sent_at + context.every)
            return 0
        token, self._token = self._token or str(uuid.uuid4()), ""
        as_of = self._clock.now(sent_at) if self._clock.doubts else None
        limit = min(room, self._size.now)
        functions, queues = self._functions(), context.options.queues
        request = ClaimRequest(node, context.application, token, limit, functions, queues, as_of)
        try:
            answer = ledger.claim(request)
        except (StoreError, OSError):  # perhaps the answer is too large for the link
            self._size.failed(limit)
            raise
        received_at = boottime()
        self._size.worked(received_at - sent_at)
        context.signals.pressed = pressed = answer.more and bool(answer.runs)
        jumped = self._clock_watch.observe(answer.now, sent_at)
        if self._node.id != node or received_at >= self._node.lease_until:
            return 0  # abandoned
        if jumped:  # these were due by a clock that is not believed: claim again, by our own
            ledger.put_back([(run.id, token) for run in answer.runs])
            agenda.at(Step.CLAIM, received_at)
            return 0
        self._token = str(uuid.uuid4())  # for the next claim: reading random bytes then would let the bodies go first
        found = [(run, context.registry.get(run.function)) for run in self._with_spans(ledger, answer.runs)]
        room = self._executor.take(
            [
                Attempt(run, token, node, function=function, run=self._make_run(run, token, node), at=boottime())
                for run, function in found
                if function is not None
            ]
        )
        if unknown := [(run.id, token) for run, function in found if function is None]:
            ledger.put_back(unknown)
            agenda.soon(Step.LEARN)
        if answer.missed and not self._clock.doubts:  # while the clock is in doubt, nothing counts as missed
            agenda.at(Step.RESOLVE_MISSED, self._clock.suspect_until)
        vain = answer.more and not answer.runs  # other nodes have these runs, or their jobs, locked
        self._in_vain = min(max(self._in_vain * 2, PACE), IN_VAIN) if vain else 0.0
        next_claim = received_at + (self._in_vain if answer.more else context.every)
        if answer.next_at is not None and self._clock.known and not pressed:
            soon = self._clock.at(answer.next_at)
            if len(answer.runs) >= BUSY:
                soon = max(soon, sent_at + PACE)
            next_claim = min(soon, next_claim)
        agenda.at(Step.CLAIM, next_claim)
        return room if pressed else 0

    def _with_spans(self, ledger: Ledger, runs: Sequence[ClaimedRun]) -> Sequence[ClaimedRun]:
        """Where spans are made, runs that were requested know by which span. Due runs cost nothing."""
        requested = [run.id for run in runs if run.kind is not RunKind.DUE]
        if not requested or not self._context.registry.wants_traceparents:
            return runs
        spans = ledger.traceparents(requested)
        return [run._replace(traceparent=spans.get(run.id, "")) for run in runs]

    def _functions(self) -> tuple[str, ...]:
        """This node's functions, without its coroutines while no event loop runs them."""
        registry, problem, now = self._context.registry, self._executor.no_loop(), boottime()
        coroutines = registry.coroutines if problem else ()
        if not coroutines:
            self._complained, self._no_loop_since = "", math.inf
            return registry.names
        self._no_loop_since = min(self._no_loop_since, now)
        if problem != self._complained and now >= self._no_loop_since + LOOP_GAP:
            self._complained = problem
            logger.error("%s", without_loop(problem, coroutines), extra={"action": "no_loop"})
        return tuple(name for name in registry.names if name not in coroutines)
