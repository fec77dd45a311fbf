"""Gives out runs by the ledger's own means, without a scheduler running."""

# ruff: noqa: ANN001, ANN002, ANN201, ANN204 - untyped, as the tests that use it

import json
import uuid
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import work
from harness.processes import Worker
from harness.scratch import eventually
from tenure.core.cluster import NodeCard
from tenure.core.messages import ClaimRequest, JobChange, RunQuery, RunRequest
from tenure.core.records import Change, JobSpec, Rules
from tenure.stores import store_for
from tenure.transactions.effects import RunClaim

ATTEMPT = Path(__file__).parent / "workers" / "attempt.py"
RULES = Rules(overlap="allow", max_running=None, max_lost=1000)


class Desk:
    """One job of an application of its own; `claim` is a run of it that somebody has in hand."""

    def __init__(self, url, ttl=10.0, timeout=2.0):
        self.url, self.ttl, self.timeout = url, ttl, timeout
        self.application = f"app {uuid.uuid4()}"
        self.store = store_for(url)
        self.schema = getattr(self.store, "schema", "")

    def __enter__(self):
        self.store.prepare()
        self.session = self.store.session("desk", self.timeout)
        self.ledger = self.session.ledger
        self.node = self.hire()
        spec = JobSpec(self.application, "billing", "bill", None, RULES)
        self.job = self.ledger.change(JobChange(self.application, "billing", Change.ADDED, spec))
        self.claim = self.give()
        return self

    def __exit__(self, *_):
        self.session.close()

    def hire(self):
        card = NodeCard(str(uuid.uuid4()), "somebody", self.ttl)
        self.session.join(card)
        return card.id

    def give(self):
        """Another run, in hand."""
        assert self.ledger.request_runs([RunRequest(self.application, "billing", str(uuid.uuid4()), None)])[0]
        return self.take()

    def take(self):
        claim = self.try_take()
        assert claim, "there is nothing to claim"
        return claim

    def try_take(self):
        token = str(uuid.uuid4())
        claimed = self.ledger.claim(ClaimRequest(self.node, self.application, token, 1))
        assert claimed.alive
        if not claimed.runs:
            return None
        (run,) = claimed.runs
        return RunClaim(run.id, token, run.key, self.schema, run.name, started_at=claimed.now)

    def lose(self):
        """The node is declared dead, and another attempt begins elsewhere; returns the old claim."""
        old = self.claim
        self.bury()
        eventually(self.call_the_roll, what="the run taken back")
        self.claim = self.take()
        assert self.claim.run == old.run
        return old

    def bury(self):
        dead, self.node = self.node, self.hire()
        assert self.session.declare(dead, None, "said the test")

    def call_the_roll(self):
        return self.ledger.reconcile(self.node, self.application).lost

    def run(self, claim=None):
        (run,) = self.ledger.runs(RunQuery(self.application, id=(claim or self.claim).run))
        return run

    @property
    def state(self):
        return self.run().state.value

    def works(self):
        return work.done(self.url)

    def effects(self):
        """How many keys of this run were committed."""
        if self.url.startswith("sqlite"):
            count = "SELECT count(*) FROM tenure_effect WHERE run = {}"
        else:
            count = "SELECT count(*) FROM tenure.effect WHERE run = {}"
        with closing(work.connected(self.url)) as connection:
            return connection.execute(count.format(self.claim.run)).fetchone()[0]

    def killed(self, at):
        """The attempt in a process of its own, killed when it has come so far."""
        with Worker(ATTEMPT, self.url, json.dumps(asdict(self.claim))) as worker:
            for step in ("begins", "worked", "completed", "committed"):
                worker.wait_event(at=step)
                if step == at:
                    return
                worker.say()
