"""An election as a program sees it: wait for a term, act while it is trusted, give it up.

with Election("postgresql:///app", "exporter") as election:
    for term in election.terms():
        while term.trusted:
            export_batch(token=term.number)
            term.wait(seconds=5)
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from types import TracebackType
from typing import Literal, Self, TypeVar

from tenure.cluster.base_node import BaseNode
from tenure.cluster.node import Node, shared
from tenure.core.cluster import MARGIN, Cadence, Leader, NodeId, TermRecord
from tenure.core.messages import Action
from tenure.errors import ConfigurationError
from tenure.events import Elected, ElectionEvent, Lost
from tenure.stores import Session, store_for
from tenure.term import Term, TermState, state_of
from tenure.util.clock import boottime
from tenure.util.durations import Duration, seconds
from tenure.util.fork_checks import refuse_before_fork
from tenure.util.names import election_name
from tenure.util.system import need_posix

logger = logging.getLogger("tenure")

STAND_BACK = 1.0
"""A node that gave up a term lets the others go first for this many seconds, and for at least one heartbeat: behind a
pooler, the others learn of it only with their next beat.
"""

Listener = TypeVar("Listener", bound=Callable[..., object])


class Election:
    """A named contest. Opens nothing until `with`, `start()` or the first use."""

    def __init__(
        self,
        url: object = None,
        name: str = "",
        *,
        label: str | None = None,
        ttl: Duration = 10.0,
        heartbeat_every: Duration | None = None,
        attempt_timeout: Duration | None = None,
        validate_every: Duration | None = None,
        validate_timeout: Duration | None = None,
        session_grace: Duration | None = None,
        keepalive_every: Duration | None = None,
        fenced: bool = False,
        candidate: bool = True,
        mode: Literal["lease", "advisory"] = "lease",
        host_evidence: bool = True,
        session_evidence: bool = True,
        schema: str = "tenure",
        migrate: bool = True,
    ) -> None:
        self.name = election_name(name)
        self.fenced = fenced
        cadence = Cadence.of(
            ttl,
            heartbeat_every=heartbeat_every,
            attempt_timeout=attempt_timeout,
            validate_every=validate_every,
            validate_timeout=validate_timeout,
            session_grace=session_grace,
            keepalive_every=keepalive_every,
        )
        store = store_for(url, schema=schema, migrate=migrate)
        self._seat: BaseNode
        if mode == "lease":
            self._seat = shared(store, cadence, label, host_evidence=host_evidence, session_evidence=session_evidence)
        elif mode == "advisory":
            from tenure.cluster.advisory import AdvisoryNode

            self._seat = AdvisoryNode(store, cadence, self.name, label=label)
        else:
            raise ConfigurationError(
                f"mode: {mode!r} is not a way to run an election. Write mode='lease' (the default) or mode='advisory'."
            )
        self.candidacy = Candidacy(self.name, self._seat, fenced=fenced, stands=candidate, schema=schema)

    def __repr__(self) -> str:
        return f"<Election {self.name!r} on {self._seat.store.shown}, {'leading' if self.is_leader else 'not leading'}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # Whether this node leads

    @property
    def is_leader(self) -> bool:
        """True if this node leads at this moment: computed at each call, never a stored boolean."""
        return self.candidacy.term is not None

    @property
    def term(self) -> Term | None:
        """The term in which this node leads, if it does."""
        return self.candidacy.term

    @property
    def label(self) -> str:
        """This node's human-readable name."""
        return self._seat.label

    @property
    def node(self) -> Node:
        """The node of this election, for other parts that share its lease. Not in advisory mode."""
        if not isinstance(self._seat, Node):
            raise ConfigurationError("node: an election in advisory mode has none that others could share.")
        return self._seat

    @property
    def lock_fileno(self) -> int | None:
        """Pass it to child processes that do this node's work, so that no node takes over while they live."""
        return self._seat.lock_fileno

    # Taking part

    def start(self) -> None:
        """Join the others. Raises what is wrong with the store; from then on failures heal by themselves."""
        self.candidacy.join()

    def stop(self, drain: Duration = 30.0) -> None:
        """Resign, wait for the work to stop, and leave.

        If the work does not stop in time, this node keeps its term until it does. Waits for a `start()` that is under
        way on another thread, and undoes it.
        """
        self.candidacy.stop(seconds(drain, "drain"))

    def terms(self) -> Iterator[Term]:
        """Wait for terms, one turn of the loop for each. Leaving the body, however, resigns that term."""
        self.start()
        while (term := self.candidacy.next_term()) is not None:
            try:
                yield term
            finally:
                self.candidacy.leave_body(term)

    def wait_until_leading(self, timeout: Duration | None = None) -> Term | None:
        """The term once this node leads; None after the timeout. 0 means one try."""
        limit = None if timeout is None else seconds(timeout, "timeout")
        self.start()
        if limit == 0:
            self.candidacy.wait(self._seat.cadence.ttl, one_try=True)  # for the try itself
        else:
            self.candidacy.wait(limit, one_try=False)
        return self.term

    def resign(self) -> None:
        """Give up the present term, if there is one. The work is told to stop; when it has, the others are notified."""
        self.candidacy.give_up("resigned")

    def withdraw(self) -> None:
        """Never lead from now on: resign, and stay in the cluster without standing for this election."""
        self.candidacy.stands = False
        self.candidacy.give_up("withdrawn")

    def stand(self) -> None:
        """Stand for this election again."""
        self.candidacy.stands = True
        self._seat.look(self.name)

    def on(self, *kinds: type[ElectionEvent]) -> Callable[[Listener], Listener]:
        """Call a function for `Elected` or `Lost`, on a thread of its own.

        A term is released after its listeners have returned.
        """
        if not kinds or not all(kind in {Elected, Lost} for kind in kinds):
            raise ConfigurationError(
                f"on(): {kinds!r} are not events of an election. Write election.on(Elected), .on(Lost) or both."
            )

        def register(listener: Listener) -> Listener:
            self.candidacy.listeners.append((kinds, listener))
            return listener

        return register

    # Queries, from any process, started or not

    def leader(self) -> Leader | None:
        """Who leads, in which term, since when, and whether it is healthy; None if no node does."""
        with self._asking() as session:
            return session.leader(self.name)

    def history(self, limit: int = 20) -> list[TermRecord]:
        """The newest terms first: who, from when to when, for which reasons, and after which gap."""
        with self._asking() as session:
            return session.terms(self.name, limit)

    def ask_to_resign(self, *, by: str = "", why: str = "") -> int | None:
        """Ask the leader to resign; returns its term, if there is one. The log of actions keeps `by` and `why`."""
        action = Action("resign", by, why, self.label) if by or why else None
        with self._asking() as session:
            return session.ask(self.name, action=action)

    def _asking(self) -> closing[Session]:
        if not self.candidacy.started:
            self._seat.store.prepare()
        return closing(self._seat.session())


class Candidacy:
    """The half of an election that its node, the async bridge and `tenure lead` use.

    Its node calls the methods of the first part under a mutex.
    """

    def __init__(self, name: str, seat: BaseNode, *, fenced: bool, stands: bool, schema: str) -> None:
        self.name, self.fenced, self.stands = name, fenced, stands
        self._seat, self._schema = seat, schema
        self.listeners: list[tuple[tuple[type[ElectionEvent], ...], Callable[[ElectionEvent], object]]] = []
        self._observers: list[Callable[[], None]] = []
        self._changed = threading.Condition()
        self._joining = threading.RLock()
        self._started = False
        self._stopping = False
        self._term: Term | None = None
        self._in_body = False
        self._loss_told = False
        self._exit_when_drained = False
        self._tries = 0
        self._not_before = 0.0
        self._stands_back = False

    @property
    def term(self) -> Term | None:
        """The term in which this node leads, if it does."""
        term = self._term
        return term if term is not None and term.trusted else None

    @property
    def is_leader(self) -> bool:
        """True if this node leads at this moment."""
        return self.term is not None

    @property
    def started(self) -> bool:
        """Started, and not left yet."""
        return self._started

    def ready_at(self) -> float | None:
        """From when on this node may try to win; None while it does not stand, or has a term that is not drained."""
        return None if not self.stands or self._stopping or self._term is not None else self._not_before

    def announced(self, term: int, trust_period: int, node: NodeId) -> None:
        """A term was won."""
        with self._changed:
            state = TermState(
                self.name,
                term,
                node=node,
                trust_period=trust_period,
                trust=lambda: self._seat.trust,
                schema=self._schema,
            )
            self._term = Term(state)
            self._loss_told = False
            self._changed.notify_all()
        logger.info(
            "election %r: leading in term %d",
            self.name,
            term,
            extra={"action": "elected", "election": self.name, "term": term},
        )
        self._seat.tell(lambda: self._tell(Elected(self.name, term, self._seat.label)))
        if not self.stands or self._stopping:  # it was won while this node withdrew
            self._seat.tell(lambda: self.give_up("withdrawn"))
        self._tell_observers()

    def withdrawn(self, term: int, reason: str) -> None:
        """The term is no longer believed in."""
        with self._changed:
            if self._term is None or self._term.number != term:
                return
            ending = self._term
            state_of(ending).end(reason)
            self._changed.notify_all()
        logger.info(
            "election %r: term %d is over: %s",
            self.name,
            term,
            reason,
            extra={"action": "lost", "election": self.name, "term": term},
        )
        if reason in {"resigned", "asked to resign"}:
            self._stands_back = True
        self._seat.tell(lambda: self._tell_loss(ending, reason))
        self._tell_observers()

    def refused(self) -> None:
        """An attempt to win was refused."""
        with self._changed:
            self._tries += 1
            self._changed.notify_all()

    def forked(self) -> None:
        """In a forked child, which leads nothing and takes part only after its own `start`."""
        self._changed = threading.Condition()
        self._joining = threading.RLock()
        if self._term is not None:
            state_of(self._term).forked()
        self._started, self._term, self._in_body = False, None, False
        self._observers.clear()

    # For the async bridge

    def join(self) -> bool:
        """Start; True if this call started it."""
        need_posix()
        refuse_before_fork(f"election {self.name!r}")
        with self._joining:
            with self._changed:
                self._exit_when_drained = self._stopping = False
                if self._started:
                    return False
                self._started = True
            try:
                self._seat.enter(self)
            except BaseException:
                self._started = False
                raise
            return True

    @property
    def taking_part(self) -> bool:
        """Started, and not about to stop."""
        return self._started and not self._stopping

    def observe(self, observer: Callable[[], None]) -> None:
        """Call this, without blocking, whenever something changes."""
        self._observers.append(observer)

    def enter_body(self) -> Term | None:
        """Take the present term for a body, if there is one and no other body has it."""
        with self._changed:
            if self._term is None or self._in_body or not self._term.trusted:
                return None
            self._in_body = True
            return self._term

    def leave_body(self, term: Term) -> None:
        """The work of a term has stopped. Calling it again does no harm."""
        with self._changed:
            if self._term is not term or not self._in_body:
                return
            self._in_body = False
            if term.trusted:
                self._stands_back = True
        self._seat.resign(self.name, term.number, "its body was left")
        self._settle(term)

    def stop(self, patience: float) -> None:
        """`Election.stop`."""
        with self._joining, self._changed:
            if not self._started:
                return
            self._stopping = True
            self._changed.notify_all()
        self._tell_observers()
        self.give_up("stopped")
        with self._changed:
            drained = self._changed.wait_for(lambda: self._term is None, patience)
            self._exit_when_drained = not drained
        if drained:
            self._exit()
        else:
            logger.error(
                "election %r: the work of its term did not stop in %g s; no other node leads until it does",
                self.name,
                patience,
                extra={"action": "not_drained"},
            )

    def wait(self, limit: float | None, *, one_try: bool) -> None:
        """Wait until this node leads; with `one_try`, until its next attempt was refused."""
        before = self._tries
        if one_try:
            self._seat.look(self.name)
        with self._changed:
            self._changed.wait_for(
                lambda: self.is_leader or self._stopping or (one_try and self._tries > before), limit
            )

    def next_term(self) -> Term | None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or (self.is_leader and not self._in_body))
            if self._stopping:
                return None
            if (term := self.enter_body()) is not None:
                return term

    def give_up(self, reason: str) -> None:
        term = self._term
        if term is not None:
            self._seat.resign(self.name, term.number, reason)

    def _tell_loss(self, term: Term, reason: str) -> None:
        try:
            self._tell(Lost(self.name, term.number, self._seat.label, reason))
        finally:
            with self._changed:
                self._loss_told = True
            self._settle(term)

    @property
    def _stand_back(self) -> float:
        return max(STAND_BACK, MARGIN * self._seat.cadence.heartbeat_every)

    def _settle(self, term: Term) -> None:
        """Once the body was left and the listeners have returned, the term is drained and can be released."""
        with self._changed:
            if self._term is not term or self._in_body or not self._loss_told:
                return
            if self._stands_back:  # from now on: stopping the work may have taken longer than that
                self._not_before, self._stands_back = boottime() + self._stand_back, False
            self._term = None
            leaving, self._exit_when_drained = self._exit_when_drained, False
            self._changed.notify_all()
        self._seat.drained(self.name, term.number)
        if leaving:
            threading.Thread(target=self._exit, name=f"tenure leaves {self._seat.label}", daemon=True).start()
        self._seat.look(self.name, self._not_before)
        self._tell_observers()

    def _exit(self) -> None:
        with self._joining:  # a start that comes first is not undone; a later one enters again
            if not self._started or not self._stopping:
                return
            self._seat.exit(self)
            self._started = False
        self._tell_observers()

    def _tell(self, event: ElectionEvent) -> None:
        for kinds, listener in self.listeners:
            if isinstance(event, kinds):
                try:
                    listener(event)
                except Exception:
                    logger.exception("election %r: a listener failed", self.name, extra={"action": "listener_failed"})

    def _tell_observers(self) -> None:
        for observer in list(self._observers):
            observer()
