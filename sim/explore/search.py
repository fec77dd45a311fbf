"""The lease machine, exhaustively: every order of steps, with at most so many accidents, for as long as anything new
can happen.

Processes run `lease.step` and `watch.observe` of production against the rows of the simulated database. Time is coarse
and the same for all (trust is two ticks and the ttl is two and a half, or four and five). What nothing befalls happens
in one step (sent, executed, heard) and within its tick: every process beats once in each. An accident is a process that
freezes, with or without something just sent, and goes on at any later moment, or never, which is a crash; a leader that
resigns; and a slow message: it is executed at any later moment, or never, and its sender hears of it at any later
moment, or gives up. Who was declared dead and knows it is out: it would come back as one more node. Who may try to win
or declare may also leave it. There is no last tick: states are told apart by ages and ranks (`worlds.py`), so that
there is an end to them, and remembered by 64 bits of their hash. An interval between two answers of a watcher counts in
full here: the rule of a quarter spares live nodes, the promise does not rest on it.

Checked in every state: at most one believer; terms only grow; nobody is declared dead while it trusts itself; nobody
gives up what the database still gives it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sim.explore.worlds import (
    ME,
    NAME,
    Frozen,
    Heard,
    Message,
    Process,
    Scale,
    State,
    cadence,
    canonical,
    in_order,
    older,
    rows_of,
    written,
)
from sim.runtime import copies
from tenure.core.cluster import Acquire, Beat, BeatAnswer, ElectionRow, Peer

SLOW = -1.0
"""When a release was sent that may take any time."""
Steps = Iterator[tuple[str, State]]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of everything."""

    nodes: int
    accidents: int
    ttl: float = 2.5
    """In ticks."""
    states: int = 3_000_000


@dataclass(slots=True)
class Explored:
    """What was found."""

    states: int = 0
    steps: int = 0
    whole: bool = True
    """All states within the bounds were seen."""
    violation: str = ""
    trace: tuple[str, ...] = ()


class Explorer:
    """Breadth first, so that the first violation has a shortest history."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.found = Explored()
        self._broken = ""
        self._stepped: dict[Any, tuple[Frozen, list[Any]]] = {}

    def explore(self) -> Explored:
        """Everything within the bounds."""
        watch = vars(copies.watch)
        interval, watch["LARGEST_INTERVAL"] = watch["LARGEST_INTERVAL"], 1.0
        Scale.ttl = self.bounds.ttl
        try:
            return self._explore()
        finally:
            watch["LARGEST_INTERVAL"] = interval

    def _explore(self) -> Explored:
        found = self.found
        first = canonical(self._first())
        parents: dict[int, tuple[int, str]] = {hash(first): (0, "")}
        queue = deque([first])
        while queue:
            state = queue.popleft()
            for said, after in self.steps(state):
                found.steps += 1
                if not self._broken:
                    self._check(after)
                if self._broken:
                    found.violation, found.whole = self._broken, False
                    found.trace = (*_history(parents, hash(state)), said)
                    queue.clear()
                    break
                known = canonical(after)
                if (key := hash(known)) not in parents:
                    parents[key] = (hash(state), said)
                    queue.append(known)
            if len(parents) >= self.bounds.states:
                found.whole = False
                break
        found.states = len(parents)
        return found

    def _first(self) -> State:
        """Everybody has beaten once, and the first one leads."""
        nodes = range(self.bounds.nodes)
        state = State(
            tuple((n, 0) for n in nodes), (0, -1, False),
            tuple(Process(n, Frozen(copies.lease.Lease(ME, cadence())), ()) for n in nodes), (), self.bounds.accidents,
        )  # fmt: skip
        for at in nodes:
            *_, (_, state) = self._send(self._beaten(state, at), at, "beat")
        *_, (_, state) = self._send(self._lease(state, 0, copies.lease.AcquireSent(NAME)), 0, "acquire")
        return state

    def _check(self, state: State) -> None:
        alive = dict(state.rows)
        leases = [(process.node, process.lease.lease) for process in state.processes]
        believers = [node for node, lease in leases if copies.lease.believes(lease, NAME, 0.0) is not None]
        if len(believers) > 1:
            self._broken = f"two believers: {believers}"
        for node, lease in leases:
            if node not in alive and not lease.gone and lease.until > 0:
                self._broken = f"node {node} is dead and trusts itself for {lease.until:g} ticks"

    # What may happen next

    def steps(self, state: State) -> Steps:
        """Everything that may happen next."""
        if self._over(state):
            yield "tick", self._tick(state)
        for message in state.messages:
            yield from self._of_message(state, message)
        for at, process in enumerate(state.processes):
            if process.lease.lease.gone:
                continue
            if process.frozen:
                yield f"{process.node} goes on", _put(state, at, process._replace(frozen=False))
                continue
            if state.left:
                yield from self._accidents(state, at)
            if not process.beaten and not _under_way(state, process, "beat"):
                yield from self._send(self._beaten(state, at), at, "beat")
            if self._may_try(state, process):
                yield from self._send(self._lease(state, at, copies.lease.AcquireSent(NAME)), at, "acquire")
            for other, watch in process.watches:
                if watch.over:
                    yield from self._declare(state, at, other, watch.pulse[1])

    def _over(self, state: State) -> bool:
        """Everything has happened that had to in this tick."""
        return not any(map(_on_time, state.messages)) and all(
            process.frozen or process.beaten or _under_way(state, process, "beat") for process in state.processes
        )

    def _tick(self, state: State) -> State:
        state = older(state)
        for at, process in enumerate(state.processes):
            if not process.frozen:
                state = self._lease(state, at, copies.lease.Tick())
        return state

    def _may_try(self, state: State, process: Process) -> bool:
        lease = process.lease.lease
        vacant = not state.election[2] or state.election[1] not in dict(state.rows)
        return (vacant or any(m.kind == "release" for m in state.messages)) and (
            NAME not in lease.holdings
            and not lease.gone
            and lease.terms_until > 0
            and not _under_way(state, process, "acquire")
        )

    def _beaten(self, state: State, at: int) -> State:
        number = state.processes[at].lease.lease.sent + 1
        sent = self._lease(state, at, copies.lease.BeatSent(number, 0.0))
        return _put(sent, at, sent.processes[at]._replace(beaten=True))

    def _send(self, state: State, at: int, kind: str) -> Steps:
        """At once; or, by accident, slowly, and perhaps with a process that stops meanwhile."""
        process = state.processes[at]
        lease = process.lease.lease
        message = Message(kind, process.node, lease.sent if kind == "beat" else lease.attempts)
        said = f"{process.node} {'beats' if kind == 'beat' else 'tries'}"
        sent = _sent(state, message)
        if state.left:
            slow = sent._replace(left=state.left - 1)
            yield f"{said}, slowly", slow
            yield f"{said} and freezes", _put(slow, at, process._replace(frozen=True))
        executed = self._execute(sent, message)
        answered = next(m for m in executed.messages if m[:3] == message[:3] and m.answer is not None)
        yield said, self._hear(executed, answered)

    def _declare(self, state: State, at: int, other: int, seen: int) -> Steps:
        process = state.processes[at]
        told = process._replace(watches=tuple(pair for pair in process.watches if pair[0] != other))
        message = Message("declare", process.node, other, seen, heard=False)
        sent = _sent(_put(state, at, told), message)
        yield f"{process.node} declares {other}", self._execute(sent, message)
        if state.left:
            yield f"{process.node} declares {other}, slowly", sent._replace(left=state.left - 1)

    def _accidents(self, state: State, at: int) -> Steps:
        process = state.processes[at]
        less = state._replace(left=state.left - 1)
        yield f"{process.node} freezes", _put(less, at, process._replace(frozen=True))
        term = copies.lease.believes(process.lease.lease, NAME, 0.0)
        if term is not None:
            yield f"{process.node} resigns", self._lease(less, at, copies.lease.Resign(NAME, term, "resigned"))

    def _of_message(self, state: State, message: Message) -> Steps:
        at = _place(state, message.node)
        listens = at is not None and not state.processes[at].frozen and message.heard
        if message.answer is None:
            executed = self._execute(state, message)
            if message.kind == "release" and listens:
                executed = self._hear(executed, message._replace(answer=True))
            yield f"{message.kind} of {message.node} is executed", executed
            if _on_time(message) and state.left:
                slow = _sent(_taken(state, message), message._replace(sent_at=SLOW))
                yield f"{message.kind} of {message.node} is slow", slow._replace(left=state.left - 1)
        elif listens:
            yield f"{message.node} hears of its {message.kind}", self._hear(state, message)
        if listens and not _on_time(message):
            yield f"{message.node} gives up on its {message.kind}", self._give_up(state, message)

    # How it happens

    def _execute(self, state: State, message: Message) -> State:
        rows, n = rows_of(state), f"{message.node}"
        state = _taken(state, message)
        answer: Any = True
        if message.kind == "beat":
            beat = Beat(n, message.number, message.sent_at, 0.0, None, (NAME,))
            told = rows.beat(beat, rows.shown(beat))
            e = next((row for row in told.elections if row.name == NAME), None)
            shown = (e.term, e.held, e.holder == n) if e is not None else (0, False, False)
            answer = Heard(
                told.verdict, 0, tuple(sorted((int(p.id), p.pulse[1]) for p in told.peers if p.pulse)), shown
            )
        elif message.kind == "acquire":
            request, before = Acquire(n, NAME), rows.elections[NAME].term
            granted = rows.alive(n) and rows.vacancy(request, lambda *_: False) is not None
            answer = rows.grant(request).term if granted else 0
            if granted and answer <= before:
                self._broken = f"term {answer} was granted after {before}"
        elif message.kind == "release":
            rows.release(n, NAME, message.number)
        elif rows.declarable(f"{message.number}", int(message.sent_at), 1):
            rows.declare(f"{message.number}")
        after = written(state, rows)
        return _sent(after, message._replace(answer=answer)) if message.heard else after

    def _hear(self, state: State, message: Message) -> State:
        state = _taken(state, message)
        at = _place(state, message.node)
        if at is None:
            return state
        if message.kind == "acquire":
            return self._lease(state, at, copies.lease.AcquireAnswered(NAME, message.number, message.answer or None))
        if message.kind == "release":
            return self._lease(state, at, copies.lease.ReleaseAcked(NAME, message.number))
        heard: Heard = message.answer
        state = self._lease(state, at, ("beaten", message.number, heard))
        process = state.processes[at]
        if heard.verdict is not copies.lease.BeatVerdict.RENEWED:
            return state
        peers = [Peer(f"{node}", ("row", seq), Scale.ttl) for node, seq in heard.peers]
        seen = copies.watch.observe({f"{n}": watch for n, watch in process.watches}, peers, self.observed_at(message))
        watches = tuple(sorted(((int(n), watch) for n, watch in seen.items()), key=lambda pair: pair[0]))
        return _put(state, at, process._replace(watches=watches))

    def observed_at(self, message: Message) -> float:
        """The moment of the answer."""
        del message
        return 0.0

    def _give_up(self, state: State, message: Message) -> State:
        state = _taken(state, message)
        if message.answer is None:
            state = _sent(state, message._replace(heard=False))
        at = _place(state, message.node)
        if at is None or message.kind == "release":
            return state
        failed = (
            copies.lease.BeatFailed(message.number)
            if message.kind == "beat"
            else copies.lease.AcquireFailed(NAME, message.number)
        )
        return self._lease(state, at, failed)

    def _lease(self, state: State, at: int, event: Any) -> State:
        process = state.processes[at]
        key = (process.lease, event)
        if key not in self._stepped:
            self._stepped[key] = self._step(process.lease.lease, event)
        lease, actions = self._stepped[key]
        messages = set(state.messages)
        for action in actions:
            if isinstance(action, copies.lease.Withdraw):
                if action.reason.startswith("the database") and state.election == (action.term, process.node, True):
                    self._broken = f"node {process.node} gave up term {action.term}, which it has"
            elif isinstance(action, copies.lease.Release):
                messages.add(Message("release", process.node, action.term))
        state = _put(state, at, process._replace(lease=lease))
        return state._replace(messages=in_order(messages)) if len(messages) > len(state.messages) else state

    def _step(self, lease: Any, event: Any) -> tuple[Frozen, list[Any]]:
        """Work that is told to stop stops at once."""
        if isinstance(event, tuple):
            _, number, heard = event
            term, held, mine = heard.election
            row = ElectionRow(NAME, term, ME if mine else "another", held, asked=False)
            event = copies.lease.BeatAnswered(number, BeatAnswer(heard.verdict, heard.was, (), (row,)))
        lease, actions = copies.lease.step(lease, event, 0.0)
        for action in list(actions):
            if isinstance(action, copies.lease.Withdraw):
                lease, more = copies.lease.step(lease, copies.lease.Drained(NAME, action.term), 0.0)
                actions.extend(more)
        return Frozen(lease), actions


class FromSending(Explorer):
    """A watch that counts from when the beat was sent."""

    def observed_at(self, message: Message) -> float:
        return message.sent_at


def _under_way(state: State, process: Process, kind: str) -> bool:
    return any(m.kind == kind and m.node == process.node and m.heard for m in state.messages)


def _on_time(message: Message) -> bool:
    """It is to be executed before the tick is over: a release, unless an accident befell it."""
    return message.kind == "release" and message.answer is None and message.heard and message.sent_at != SLOW


def _place(state: State, node: int) -> int | None:
    return next((at for at, process in enumerate(state.processes) if process.node == node), None)


def _put(state: State, at: int, process: Process) -> State:
    return state._replace(processes=(*state.processes[:at], process, *state.processes[at + 1 :]))


def _sent(state: State, message: Message) -> State:
    return state._replace(messages=in_order((*state.messages, message)))


def _taken(state: State, message: Message) -> State:
    at = state.messages.index(message)
    return state._replace(messages=state.messages[:at] + state.messages[at + 1 :])


def _history(parents: dict[int, tuple[int, str]], state: int) -> tuple[str, ...]:
    said: list[str] = []
    while True:
        state, what = parents[state]
        if not what:
            return tuple(reversed(said))
        said.append(what)


def explore(bounds: Bounds, kind: type[Explorer] = Explorer) -> Explored:
    """Explore everything within the bounds."""
    return kind(bounds).explore()
