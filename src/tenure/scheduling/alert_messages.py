"""Claims messages of alerts for the sinks of this node, and notes what became of them. tests/scheduling/test_alerts.py.

A claim lapses after a minute, and a message is final when its sink has accepted it. So if this node dies in between,
another one sends the message, under the same id.
"""

from __future__ import annotations

import math

from tenure.scheduling.agenda import Step
from tenure.scheduling.alert_sender import CLAIM_LASTS
from tenure.scheduling.context import LoopContext
from tenure.stores.ledger import Ledger
from tenure.util.clock import boottime
from tenure.util.randomness import between

TELL_EVERY = 15.0
"""Seconds, roughly, between two checks for messages that no node is sending."""
BATCH = 10
"""How many messages are claimed at once."""
TELL_TIME, TELL_WAITS = 0.004, 0.03
"""A claim of runs that is due within `TELL_TIME` goes first; `TELL_WAITS` is the longest wait for that."""


class AlertMessages:
    """Every node does this for its own sinks."""

    def __init__(self, context: LoopContext) -> None:
        self._context, self._waits_since = context, math.inf
        self.answers = 0
        """How often the database has answered: a node that hears nothing says so (`AlertSender.look`)."""
        if context.sender is None or not context.sender.names:
            context.agenda.at(Step.TELL, math.inf)
        else:
            self._rest()

    def _rest(self) -> None:
        """The first turn after this moment will do: the loop does not wake for it."""
        self._context.agenda.at(Step.TELL, boottime() + TELL_EVERY * between(0.8, 1.0), wake=False)

    def tell(self, ledger: Ledger) -> None:
        """Note what was sent, then claim what is to be sent."""
        context, sender, agenda, now = self._context, self._context.sender, self._context.agenda, boottime()
        if sender is None or not sender.names:
            agenda.at(Step.TELL, math.inf)
            return
        claims_at = agenda.due(Step.CLAIM)
        self._waits_since = min(self._waits_since, now)
        if not context.resting and claims_at < now + TELL_TIME and now < self._waits_since + TELL_WAITS:
            agenda.at(Step.TELL, max(claims_at, now))
            return
        self._waits_since = math.inf
        self._rest()
        while sender.outcomes:
            one = sender.outcomes[0]  # it stays until the ledger has it
            ledger.end_message(one.number, context.node.label, error=one.error, again_in=one.again_in)
            sender.outcomes.popleft()
        if context.resting or not (free := sender.free):
            self.answers += 1
            return
        claimed_at = boottime()
        messages = ledger.claim_messages(context.application, context.node.label, free, CLAIM_LASTS, BATCH)
        self.answers += 1
        sender.take(messages, claimed_at)
