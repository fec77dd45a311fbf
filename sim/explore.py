"""The lease machine, exhaustively: every order of sending, executing, answering, giving up and waiting, within small bounds.

Nodes run `lease.step` and `watch.observe` of production against the rows of the simulated database. Time is coarse and the same for all
(ttl five ticks, trust four), and nothing has to happen in time: a node that takes no step is frozen, a message that is not delivered is
late. What is bounded is how much of everything there is. Every node has had one beat acknowledged, and the first one leads. An interval
between two answers of a watcher counts in full here: the rule of a quarter spares live nodes, the promise does not rest on it. Checked in every state: at most one believer; terms only grow; nobody is
declared dead while it trusts itself; nobody gives up what the database still gives it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sim import copies
from sim.rows import Clock, ElectionState, NodeRow, Rows
from tenure.model import Acquire, Beat, Cadence, NodeCard, Outcome

TTL = 5.0
CADENCE = Cadence(ttl=TTL, heartbeat_every=1.0, attempt_timeout=1.0)
NAME = "e"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of everything."""

    nodes: int = 2
    ticks: int = 8
    beats: tuple[int, ...] = (1, 1)
    """Of each node, after its first two."""
    acquires: tuple[int, ...] = (0, 1)
    faults: int = 1
    """Messages whose sender gave up on them; they may be executed all the same, later."""
    states: int = 400_000


class Message(NamedTuple):
    """On its way there (`answer` None) or back."""

    kind: str
    node: int
    number: int
    sent_at: float
    answer: Any = None
    heard: bool = True
    """Its sender still listens."""


class State(NamedTuple):
    """One state of the world; hashable."""

    now: int
    nodes: tuple[tuple[str, int], ...]
    election: tuple[int, int, bool]
    """Term, holder (-1: nobody), held."""
    leases: tuple[Any, ...]
    watches: tuple[Any, ...]
    messages: tuple[Message, ...]
    used: tuple[tuple[int, int], ...]
    """Beats and attempts of each node."""
    faults: int


@dataclass(slots=True)
class Explored:
    """What was found."""

    states: int = 0
    steps: int = 0
    whole: bool = True
    """All states within the bounds were seen."""
    violation: str = ""
    trace: tuple[str, ...] = ()


class Frozen:
    """A lease with a key, so that equal ones are one."""

    __slots__ = ("_hash", "key", "lease")

    def __init__(self, lease: Any) -> None:
        self.lease = lease
        self.key = (
            lease.stretch, lease.sent, lease.acked, lease.attempts, lease.until, lease.gone,
            tuple(sorted(lease.under_way.items())), tuple(sorted((n, repr(h)) for n, h in lease.hands.items())),
        )  # fmt: skip
        self._hash = hash(self.key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frozen) and self.key == other.key


def rows_of(state: State) -> Rows:
    """The database of a state."""
    rows: Rows = object.__new__(Rows)
    rows.clock, rows.ring, rows.epoch, rows.recorded = Clock(), lambda _words: None, 0, 1
    rows.nodes = {f"{n}": NodeRow(NodeCard(f"{n}", "", TTL), s, seq) for n, (s, seq) in enumerate(state.nodes)}
    term, holder, held = state.election
    rows.elections = {NAME: ElectionState(term, f"{holder}" if holder >= 0 else None, held)}
    return rows


def written(state: State, rows: Rows) -> State:
    """The state with what the database has now."""
    e = rows.elections[NAME]
    return state._replace(
        nodes=tuple((row.state, row.seq) for row in rows.nodes.values()),
        election=(e.term, int(e.holder) if e.holder is not None else -1, e.held),
    )


class Explorer:
    """Breadth first, so that the first violation has a shortest history."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.found = Explored()
        self._broken = ""

    def explore(self) -> Explored:
        """Everything within the bounds."""
        interval, copies.watch.LARGEST_INTERVAL = copies.watch.LARGEST_INTERVAL, 1.0
        try:
            return self._explore()
        finally:
            copies.watch.LARGEST_INTERVAL = interval

    def _explore(self) -> Explored:
        bounds = self.bounds
        first = self._first()
        parents: dict[State, tuple[State | None, str]] = {first: (None, "")}
        queue = deque([first])
        while queue:
            state = queue.popleft()
            for said, after in self.steps(state):
                self.found.steps += 1
                if not self._broken and after is not None:
                    self._check(after)
                if self._broken:
                    self.found.violation = self._broken
                    self.found.trace = (*_history(parents, state), said)
                    self.found.states = len(parents)
                    self.found.whole = False
                    return self.found
                if after is not None and after not in parents:
                    parents[after] = (state, said)
                    queue.append(after)
            if len(parents) >= bounds.states:
                self.found.whole = False
                break
        self.found.states = len(parents)
        return self.found

    def _first(self) -> State:
        """Everybody's first beat was executed and answered, and so was the first node's attempt."""
        nodes = range(self.bounds.nodes)
        state = State(
            0, tuple(("alive", 0) for _ in nodes), (0, -1, False),
            tuple(Frozen(copies.lease.Lease(f"{n}", CADENCE)) for n in nodes), tuple(() for _ in nodes), (),
            tuple((0, 0) for _ in nodes), self.bounds.faults,
        )  # fmt: skip
        for kind, n in [*(("beat", n) for n in nodes), ("acquire", 0), *(("beat", n) for n in nodes)]:
            number = state.leases[n].lease.sent + 1 if kind == "beat" else 1
            event = copies.lease.BeatSent(number, 0.0) if kind == "beat" else copies.lease.AcquireSent(NAME)
            state = self._execute(self._lease(state, n, event), Message(kind, n, number, 0.0))
            state = self._hear(state._replace(messages=()), state.messages[0])
        return state

    def _check(self, state: State) -> None:
        believers = [
            n
            for n, frozen in enumerate(state.leases)
            if copies.lease.believes(frozen.lease, NAME, state.now) is not None
        ]
        if len(believers) > 1:
            self._broken = f"two believers at {state.now}: {believers}"
        for n, (standing, _) in enumerate(state.nodes):
            lease = state.leases[n].lease
            if standing == "dead" and not lease.gone and state.now < lease.until:
                self._broken = f"node {n} is dead at {state.now} and trusts itself until {lease.until:g}"

    def steps(self, state: State) -> Any:
        """Everything that may happen next."""
        if state.now < self.bounds.ticks:
            yield "tick", self._each(state._replace(now=state.now + 1))
        for index, message in enumerate(state.messages):
            yield from self._message(state, index, message)
        for n, frozen in enumerate(state.leases):
            if frozen.lease.gone:
                continue
            beats, attempts = state.used[n]
            busy = {m.kind for m in state.messages if m.node == n and m.heard}
            if beats < self.bounds.beats[n] and "beat" not in busy:
                number = frozen.lease.sent + 1
                after = self._lease(state, n, copies.lease.BeatSent(number, state.now))
                yield f"{n} beats", self._sent(after, n, Message("beat", n, number, state.now), (beats + 1, attempts))
            lease = frozen.lease
            if (
                attempts < self.bounds.acquires[n]
                and "acquire" not in busy
                and NAME not in lease.hands
                and state.now < lease.terms_until
            ):
                after = self._lease(state, n, copies.lease.AcquireSent(NAME))
                attempt = after.leases[n].lease.attempts
                yield (
                    f"{n} tries",
                    self._sent(after, n, Message("acquire", n, attempt, state.now), (beats, attempts + 1)),
                )
            for other, watched in state.watches[n]:
                if watched.over:
                    declared = Message("declare", n, other, watched.pulse[1])
                    watches = tuple(pair for pair in state.watches[n] if pair[0] != other)
                    after = self._sent(state, n, declared, (beats, attempts))
                    yield f"{n} declares {other}", after._replace(watches=_put(state.watches, n, watches))

    def _message(self, state: State, index: int, message: Message) -> Any:
        rest = state.messages[:index] + state.messages[index + 1 :]
        n = message.node
        if message.answer is None:
            yield f"{message.kind} of {n} is executed", self._execute(state._replace(messages=rest), message)
        elif message.heard:
            yield f"{n} hears of its {message.kind}", self._hear(state._replace(messages=rest), message)
        if message.heard and state.faults and message.kind in {"beat", "acquire"}:
            event = (
                copies.lease.BeatFailed(message.number)
                if message.kind == "beat"
                else copies.lease.AcquireFailed(NAME, message.number)
            )
            left = rest if message.answer is not None else (*rest, message._replace(heard=False))
            after = self._lease(state._replace(messages=_sorted(left), faults=state.faults - 1), n, event)
            yield f"{n} gives up on its {message.kind}", after

    def _execute(self, state: State, message: Message) -> State:
        rows, n = rows_of(state), message.node
        answer: Any = True
        if message.kind == "beat":
            beat = Beat(f"{n}", message.number, message.sent_at, 0.0, None, (NAME,))
            answer = rows.beat(beat, rows.shown(beat))
        elif message.kind == "acquire":
            request, before = Acquire(f"{n}", NAME), rows.elections[NAME].term
            granted = rows.alive(f"{n}") and rows.vacancy(request, lambda *_: False) is not None
            answer = rows.grant(request) if granted else Outcome.HELD
            if granted and answer.term <= before:
                self._broken = f"term {answer.term} was granted after {before}"
        elif message.kind == "release":
            rows.release(f"{n}", NAME, message.number)
        elif message.kind == "declare" and rows.declarable(f"{message.number}", int(message.sent_at), 1):
            rows.declare(f"{message.number}")
        after = written(state, rows)
        if message.kind == "release":
            return self._lease(after, n, copies.lease.ReleaseAcked(NAME, message.number))
        if not message.heard or message.kind == "declare":
            return after
        return after._replace(messages=_sorted((*after.messages, message._replace(answer=answer))))

    def _hear(self, state: State, message: Message) -> State:
        n = message.node
        if message.kind == "acquire":
            term = None if message.answer is Outcome.HELD else message.answer.term
            return self._lease(state, n, copies.lease.AcquireAnswered(NAME, message.number, term))
        state = self._lease(state, n, copies.lease.BeatAnswered(message.number, message.answer))
        if n == 0:
            return state  # the first one leads and watches nobody
        seen = {f"{other}": watch for other, watch in state.watches[n]}
        observed = copies.watch.observe(seen, message.answer.peers, self.observed_at(state, message))
        watches = tuple(sorted(((int(other), watch) for other, watch in observed.items()), key=lambda pair: pair[0]))
        return state._replace(watches=_put(state.watches, n, watches))

    def observed_at(self, state: State, message: Message) -> float:
        """The moment of the answer."""
        del message
        return state.now

    def _each(self, state: State) -> State:
        for n in range(len(state.leases)):
            state = self._lease(state, n, copies.lease.Tick())
        return state

    def _lease(self, state: State, n: int, event: Any) -> State:
        lease, actions = copies.lease.step(state.leases[n].lease, event, state.now)
        messages = list(state.messages)
        for action in actions:
            if isinstance(action, copies.lease.Withdraw):
                if action.reason.startswith("the database") and state.election == (action.term, n, True):
                    self._broken = f"node {n} gave up term {action.term}, which it has"
                lease, more = copies.lease.step(lease, copies.lease.Drained(NAME, action.term), state.now)
                actions.extend(more)
            elif isinstance(action, copies.lease.Release):
                release = Message("release", n, action.term, 0.0)
                if release not in messages:
                    messages.append(release)
        return state._replace(leases=_put(state.leases, n, Frozen(lease)), messages=_sorted(messages))

    def _sent(self, state: State, n: int, message: Message, used: tuple[int, int]) -> State:
        return state._replace(messages=_sorted((*state.messages, message)), used=_put(state.used, n, used))


class FromSending(Explorer):
    """A watch that counts from when the beat was sent."""

    def observed_at(self, state: State, message: Message) -> float:
        del state
        return message.sent_at


def _sorted(messages: Any) -> tuple[Message, ...]:
    return tuple(sorted(messages, key=lambda m: (m.kind, m.node, m.number, m.heard, m.answer is not None)))


def _put(items: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return (*items[:at], value, *items[at + 1 :])


def _history(parents: dict[State, tuple[State | None, str]], state: State | None) -> tuple[str, ...]:
    said: list[str] = []
    while state is not None:
        state, what = parents[state]
        if what:
            said.append(what)
    return tuple(reversed(said))


def explore(bounds: Bounds, kind: type[Explorer] = Explorer) -> Explored:
    """Explore everything within the bounds."""
    return kind(replace(bounds)).explore()
