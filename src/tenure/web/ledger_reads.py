"""How pages read the ledger: a bounded number at a time, and the same question once a second for all browsers.

At most `AT_ONCE` pages are read at a time in one process, so that many open browsers leave the database to the workers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from datetime import tzinfo
from typing import NamedTuple, TypeVar

from tenure.core.cluster import NodeId
from tenure.core.keys import is_planners, planner_of
from tenure.core.messages import ActionQuery, RunQuery
from tenure.core.records import RunId, RunState
from tenure.core.trigger_text import zone_of
from tenure.errors import Busy, ConfigurationError
from tenure.jobs.operations import ChangeNote
from tenure.jobs.queries import RECENT, Lookup
from tenure.scheduler import Scheduler, service_of
from tenure.stores.base import Session
from tenure.util.clock import boottime
from tenure.web.load_counter import BackgroundLoad

AT_ONCE, PATIENCE = 2, 5.0
"""Pages that are read at a time, and how many seconds another one waits for its turn."""
FRESH = 1.0
"""Seconds for which an answer serves other browsers that ask the same."""
NEWEST = 60
"""The newest runs, among which every beginning and every ending shows."""
COUNTED = 10_000
"""Failures of a day are counted up to this number."""

TOPIC = r"|terms|actions|(run|backfill)-[0-9]{1,18}"
"""What a page may watch besides what all pages show."""
WATCHED, WATCHED_BACKFILLS = 50, 5
"""Runs whose logs and progress are looked at for the pages that show them, and backfills. Further ones follow a few
seconds later."""
_RUN, _BACKFILL = "run-", "backfill-"
_SHOWN = tuple(state for state in RunState if state is not RunState.PENDING)
"""Pending runs are counted, not listed: they would have to be looked for job by job."""

T = TypeVar("T")


class OwnTrust(NamedTuple):
    """How long the node of this process may act, if no further heartbeat is answered."""

    node: NodeId
    left: float
    whole: float


class LedgerReads:
    """Reads the ledger for the pages of one application. Every method blocks, so the pages call it on threads."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._service = service_of(scheduler)
        self._places = threading.BoundedSemaphore(AT_ONCE)
        self._auditing = threading.Lock()
        self._known: dict[Hashable, tuple[float, object]] = {}
        """Answers, and until when they serve."""
        self._forgotten_at = 0.0
        self._mutex = threading.Lock()
        self.load = BackgroundLoad(scheduler.application, self._service.ledger)
        """The load ahead, which is counted in the background."""

    @property
    def application(self) -> str:
        """Whose jobs these are."""
        return self.scheduler.application

    @property
    def lookup(self) -> Lookup:
        """The queries that the command line uses, too."""
        return self._service.lookup

    @property
    def tz(self) -> str:
        """The name of the zone of the application."""
        return self._service.definitions.tz

    @property
    def zone(self) -> tzinfo:
        """The zone of the application."""
        return zone_of(None, default=self.tz)

    def forget(self) -> None:
        """Something was changed from here: the next page is read anew."""
        with self._mutex:
            self._known.clear()
            self._forgotten_at = boottime()

    def stamps(self, topics: frozenset[str]) -> dict[str, Hashable]:
        """By topic a small answer that differs if what is shown about it has changed; '' is what all pages show.

        Cheap: it is asked all the time. A topic is what one page shows besides: see `TOPIC`.
        """
        with self._place(), self._service.session() as session:
            found = {"": self._stamp(session)}
            if "terms" in topics:
                found["terms"] = tuple(session.elections()), session.epoch()
            if "actions" in topics:
                newest = session.ledger.actions(ActionQuery(self.application, limit=1))
                found["actions"] = tuple(action.id for action in newest)
            for topic in sorted(one for one in topics if one.startswith(_BACKFILL))[:WATCHED_BACKFILLS]:
                rows = session.ledger.backfills(self.application, number=int(topic.removeprefix(_BACKFILL)))
                found[topic] = tuple((row.state, tuple(sorted(row.counts.items()))) for row in rows)
            runs = sorted(topic for topic in topics if topic.startswith(_RUN))[:WATCHED]
            if runs:
                numbers = [RunId(int(topic.removeprefix(_RUN))) for topic in runs]
                progress, ends = session.ledger.progress(numbers), session.ledger.log_ends(numbers)
                found |= {
                    topic: (progress.get(number), ends.get(number)) for topic, number in zip(runs, numbers, strict=True)
                }
            return found

    def _stamp(self, session: Session) -> Hashable:
        application, ledger = self.application, session.ledger
        now = ledger.now()
        newest = ledger.runs(RunQuery(application, states=_SHOWN, before=now, limit=NEWEST))
        return (
            session.leader(planner_of(application)),
            tuple((node.node, node.plans, node.capacity, len(node.functions)) for node in ledger.nodes(application)),
            tuple(ledger.tally(application, now - RECENT, COUNTED)),
            tuple((run.id, run.state, run.attempt, run.stopping, run.started_at) for run in newest),
            frozenset(alert.id for alert in ledger.open_alerts(application) if alert.open),
        )

    def trust(self) -> OwnTrust | None:
        """How long the node of this very process may still act; None if it takes no part."""
        health = self._service.health()
        if not health.started:
            return None
        return OwnTrust(health.node, max(health.trusted_for, 0.0), self._service.options.cadence.trust)

    def ask_to_resign(self, election: str, by: str, why: str) -> int | None:
        """Ask the leader of an election to resign. Returns its term; None if no node leads."""
        check_name(election)
        own = planner_of(self.application)
        if election == own:
            return self.scheduler.ask_planner_to_resign(by=by, why=why)
        if is_planners(election):
            raise ConfigurationError(f"{election!r:.80} belongs to another application. Ask on its own page.")
        action = self._service.operations.action("resign", ChangeNote(by, why))
        with self._service.session() as session:
            return session.ask(election, "", action)

    def read(self, question: Hashable, look: Callable[[Session], T], *, lasts: float = FRESH) -> T:
        """The answer to the same question a moment ago, or a new one. Who asks at the same time shares it. `lasts`:
        for how many seconds it serves others."""
        if (known := self._recent(question)) is not None:
            return known[1]  # type: ignore[return-value]  # it was put there under this question
        with self._place():
            if (known := self._recent(question)) is not None:  # another has read it meanwhile
                return known[1]  # type: ignore[return-value]  # as above
            asked = boottime()
            with self._service.session() as session:
                answer = look(session)
            self._keep(question, asked, answer, lasts)
            return answer

    def read_alone(self, question: Hashable, look: Callable[[Session], T]) -> T:
        """As `read`, for what may take long: one at a time in a process, beside the pages."""
        if (known := self._recent(question)) is not None:
            return known[1]  # type: ignore[return-value]  # as above
        if not self._auditing.acquire(timeout=PATIENCE):
            raise Busy("Another audit is being made. Try again in a moment, or run `tenure audit`.")
        try:
            asked = boottime()
            with self._service.session() as session:
                answer = look(session)
            self._keep(question, asked, answer)
            return answer
        finally:
            self._auditing.release()

    @contextmanager
    def _place(self) -> Iterator[None]:
        if not self._places.acquire(timeout=PATIENCE):
            raise Busy("Too many pages are being read at the same time. Try again in a moment.")
        try:
            yield
        finally:
            self._places.release()

    def _recent(self, question: Hashable) -> tuple[float, object] | None:
        with self._mutex:
            known = self._known.get(question)
        return known if known is not None and boottime() < known[0] else None

    def _keep(self, question: Hashable, asked: float, answer: object, lasts: float = FRESH) -> None:
        with self._mutex:
            self._known = {key: kept for key, kept in self._known.items() if asked < kept[0]}
            if asked > self._forgotten_at:
                self._known[question] = asked + lasts, answer


def check_name(name: str) -> None:
    """Refuse what no job can be called and no database can be asked for."""
    if "\0" in name:
        raise ConfigurationError("The name of a job cannot contain the character NUL.")
