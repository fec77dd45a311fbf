"""Grants terms by the store's own means, without elections running."""

# ruff: noqa: ANN001, ANN002, ANN201, ANN204 - untyped, as the tests that use it

import uuid
from types import SimpleNamespace

import work
from tenure.core.cluster import Acquire, AcquireOutcome, Beat, NodeCard
from tenure.stores import store_for


class Court:
    """One election; `term` is the one that somebody holds."""

    def __init__(self, url, ttl=10.0, name="billing", timeout=2.0):
        self.url, self.ttl, self.name = url, ttl, name
        self.store = store_for(url)
        self.store.prepare()
        self.session = self.store.session("court", timeout)
        self.beats = 0
        self.term = None

    def __enter__(self):
        self.grant()
        return self

    def __exit__(self, *_):
        self.session.close()

    def candidate(self):
        card = NodeCard(str(uuid.uuid4()), "somebody", self.ttl)
        self.session.join(card)
        return card.id

    def try_grant(self):
        answer = self.session.acquire(Acquire(self.candidate(), self.name))
        if answer.outcome is AcquireOutcome.GRANTED:
            self.term = SimpleNamespace(election=self.name, number=answer.term, node=answer.holder, schema="tenure")
        return answer.outcome

    def grant(self):
        assert self.try_grant() is AcquireOutcome.GRANTED
        return self.term

    def depose(self):
        """The holder is declared dead and another is granted the next term; returns the old one."""
        old = self.term
        assert self.session.declare(old.node, None, "said the test")
        self.grant()
        return old

    def succeed(self):
        """The holder releases and another is granted the next term; returns the old one."""
        old = self.term
        assert self.session.release(old.node, self.name, old.number, "said the test")
        self.grant()
        return old

    def works(self):
        return work.done(self.url)

    def beat(self):
        self.beats += 1
        return self.session.beat(Beat(self.term.node, self.beats, 0.0, float("inf"), None, (self.name,)))
