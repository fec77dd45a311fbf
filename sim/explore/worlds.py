"""One state of the explored world, and its canonical form: what is the same for the promises is one state.

Times are ages: it is always 0 now, and a tick makes everything older. What is too old to matter is of one age. Beats,
terms and attempts are only ever compared, so that their numbers are replaced by their ranks. Processes have no names:
they are sorted by what they know.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from sim.database.rows import Clock, ElectionState, NodeRow, Rows
from sim.runtime import copies
from tenure.core.cluster import Cadence, NodeCard


class Scale:
    """How many ticks a ttl has; trust is 0.8 of it."""

    ttl = 5.0


def cadence() -> Cadence:
    return Cadence(ttl=Scale.ttl, heartbeat_every=1.0, attempt_timeout=1.0)


NAME = "e"
ME = "me"


class Message(NamedTuple):
    """On its way there (`answer` None) or back."""

    kind: str
    node: int
    number: int
    """Of the beat, the attempt or the term; of a declaration: who."""
    sent_at: float = 0.0
    """Of a declaration: the count that was seen."""
    answer: Any = None
    heard: bool = True
    """Its sender still listens."""


class Heard(NamedTuple):
    """The answer to a beat, as far as it matters: who was shown with which count, and what election."""

    verdict: Any
    was: int
    peers: tuple[tuple[int, int], ...]
    election: tuple[int, bool, bool]
    """Term, held, and by the one who beats."""


class Frozen:
    """A lease with a key, so that equal ones are one."""

    __slots__ = ("_hash", "key", "lease")

    def __init__(self, lease: Any) -> None:
        self.lease = lease
        hand = lease.holdings.get(NAME)
        held = None if hand is None else (hand.phase.value, hand.attempt, hand.term, hand.after_beat, hand.owned)
        self.key = (
            lease.sent, lease.acked, lease.attempts, lease.until, lease.gone, tuple(sorted(lease.under_way.items())), held,
        )  # fmt: skip
        self._hash = hash(self.key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frozen) and self.key == other.key


class Process(NamedTuple):
    """One process, under the identity that it has now."""

    node: int
    lease: Frozen
    watches: tuple[tuple[int, Any], ...]
    frozen: bool = False
    beaten: bool = False
    """In this tick."""


class State(NamedTuple):
    """One state of the world; hashable."""

    rows: tuple[tuple[int, int], ...]
    """The nodes that are alive, with their counts."""
    election: tuple[int, int, bool]
    """Term, holder (-1: nobody), held."""
    processes: tuple[Process, ...]
    messages: tuple[Message, ...]
    left: int
    """How many accidents may still happen."""


def rows_of(state: State) -> Rows:
    """The database of a state."""
    rows: Rows = object.__new__(Rows)
    alive = dict(state.rows)
    rows.clock, rows.ring, rows.epoch, rows.recorded = Clock(), lambda _words: None, 0, 1
    dead = {process.node: 0 for process in state.processes} | {message.node: 0 for message in state.messages}
    rows.nodes = {
        f"{n}": NodeRow(NodeCard(f"{n}", "", Scale.ttl), "alive" if n in alive else "dead", seq)
        for n, seq in {**dead, **alive}.items()
    }
    term, holder, held = state.election
    rows.elections = {NAME: ElectionState(term, f"{holder}" if holder >= 0 else None, held)}
    return rows


def written(state: State, rows: Rows) -> State:
    """The state with what the database has now; who is not alive has no row."""
    e = rows.elections[NAME]
    return state._replace(
        rows=tuple((int(n), row.seq) for n, row in rows.nodes.items() if row.state == "alive"),
        election=(e.term, int(e.holder) if e.holder is not None else -1, e.held),
    )


def older(state: State) -> State:
    """A tick later."""
    return state._replace(
        processes=tuple(_older(process) for process in state.processes),
        messages=tuple(
            message._replace(sent_at=max(message.sent_at - 1, -Scale.ttl)) if message.kind == "beat" else message
            for message in state.messages
        ),
    )


def _older(process: Process) -> Process:
    lease = process.lease.lease
    aged = replace(
        lease,
        until=max(lease.until - 1, 0.0),
        under_way={number: max(at - 1, -Scale.ttl) for number, at in lease.under_way.items()},
    )
    watches = tuple((node, replace(watch, last=max(watch.last - 1, -Scale.ttl))) for node, watch in process.watches)
    return process._replace(lease=Frozen(aged), watches=watches, beaten=False)


def canonical(state: State) -> State:
    """The one state that stands for all that are like it."""
    state = _ranked(_without_the_lost(state))
    order = sorted(state.processes, key=lambda p: (p.frozen, p.beaten, repr(p.lease.key), p.node == state.election[1]))
    known = {process.node: None for process in order}
    names = {
        node: index
        for index, node in enumerate([*known, *(n for n, _ in sorted(state.rows, key=_by_count) if n not in known)])
    }
    for message in state.messages:
        names.setdefault(message.node, len(names))
    if all(node == index for node, index in names.items()) and order == list(state.processes):
        return state._replace(rows=tuple(sorted(state.rows)))
    term, holder, held = state.election
    return state._replace(
        rows=tuple(sorted((names[node], seq) for node, seq in state.rows)),
        election=(term, names.get(holder, -1), held),
        processes=tuple(
            process._replace(
                node=names[process.node],
                watches=tuple(sorted(((names[n], w) for n, w in process.watches if n in names), key=_first)),
            )
            for process in order
        ),
        messages=in_order(_renamed(message, names) for message in state.messages),
    )


def _without_the_lost(state: State) -> State:
    """Without what can never matter again: late words that change nothing, counts that nobody will be shown again, a
    first comparison."""
    rows = dict(state.rows)
    kept = tuple(message for message in state.messages if message.heard or _may_matter(message, rows, state.election))
    term, holder, held = state.election
    shown = {(m.node, pair) for m in kept if m.kind == "beat" and m.answer is not None for pair in m.answer.peers}
    processes = tuple(
        process._replace(
            lease=Frozen(_tidied(process.lease.lease)),
            watches=tuple(
                (n, replace(w, since=0.0, unchanged=min(w.unchanged, Scale.ttl)))
                for n, w in process.watches
                if rows.get(n) == w.pulse[1] or (n in rows and (process.node, (n, w.pulse[1])) in shown)
            ),
        )
        for process in state.processes
        if not process.lease.lease.gone
    )
    there = {process.node for process in processes}
    kept = tuple(message for message in kept if message.answer is None or message.node in there)
    return state._replace(messages=kept, processes=processes, election=(term, holder if holder in rows else -1, held))


def _may_matter(message: Message, rows: dict[int, int], election: tuple[int, int, bool]) -> bool:
    if message.node not in rows:
        return message.kind == "declare" and rows.get(message.number) == message.sent_at
    match message.kind:
        case "beat":
            return rows[message.node] < message.number
        case "release":
            return election == (message.number, message.node, True)
        case "declare":
            return rows.get(message.number) == message.sent_at
    return True


def _tidied(lease: Any) -> Any:
    first = min(lease.under_way, default=lease.sent + 1)
    hands = {
        name: replace(
            hand,
            why="",
            attempt=hand.attempt if hand.phase is copies.lease.Phase.OPEN else 0,
            after_beat=hand.after_beat if hand.after_beat >= first else 0,
        )
        for name, hand in lease.holdings.items()
    }
    return replace(
        lease, until=max(lease.until, 0.0), holdings=hands, trust_period=0, epoch=0, acked=0, adverts={}, checked={}
    )


def _ranked(state: State) -> State:
    """Beats of each node, terms and attempts by rank."""
    counts: dict[int, set[int]] = {node: {seq} for node, seq in state.rows}
    terms = {0, state.election[0]}
    for process in state.processes:
        lease, mine = process.lease.lease, counts.setdefault(process.node, set())
        mine.update((lease.sent, lease.acked, *lease.under_way))
        for hand in lease.holdings.values():
            terms.add(hand.term)
            mine.add(hand.after_beat)
        for node, watch in process.watches:
            counts.setdefault(node, set()).add(watch.pulse[1])
    for message in state.messages:
        match message.kind:
            case "beat":
                counts.setdefault(message.node, set()).add(message.number)
                if message.answer is not None:
                    counts[message.node].add(message.answer.was)
                    terms.add(message.answer.election[0])
                    for node, seq in message.answer.peers:
                        counts.setdefault(node, set()).add(seq)
            case "acquire" if message.answer is not None:
                terms.add(message.answer)
            case "release":
                terms.add(message.number)
            case "declare":
                counts.setdefault(message.number, set()).add(int(message.sent_at))
    tries = {process.node: _tries(state, process) for process in state.processes}
    ranks = {node: {old: new for new, old in enumerate(sorted({0, *seen}))} for node, seen in counts.items()}
    of_term = {old: new for new, old in enumerate(sorted(terms))}
    if all(old == new for rank in (*ranks.values(), *tries.values(), of_term) for old, new in rank.items()):
        return state
    return state._replace(
        rows=tuple((node, ranks[node][seq]) for node, seq in state.rows),
        election=(of_term[state.election[0]], *state.election[1:]),
        processes=tuple(_ranked_process(p, ranks[p.node], tries[p.node], ranks, of_term) for p in state.processes),
        messages=in_order(_ranked_message(m, ranks, tries.get(m.node, {}), of_term) for m in state.messages),
    )


def _tries(state: State, process: Process) -> dict[int, int]:
    """The attempts of a process that somebody still speaks of, and the last one."""
    spoken = {m.number for m in state.messages if m.kind == "acquire" and m.node == process.node}
    spoken |= {hand.attempt for hand in process.lease.lease.holdings.values() if hand.attempt}
    ranks = {old: new for new, old in enumerate(sorted(spoken), 1)}
    return {process.lease.lease.attempts: len(ranks), **ranks}


def _ranked_process(
    process: Process,
    mine: dict[int, int],
    tries: dict[int, int],
    ranks: dict[int, dict[int, int]],
    of_term: dict[int, int],
) -> Process:
    lease = process.lease.lease
    hands = {
        name: replace(
            hand, term=of_term[hand.term], after_beat=mine[hand.after_beat], attempt=tries.get(hand.attempt, 0)
        )
        for name, hand in lease.holdings.items()
    }
    under_way = {mine[number]: at for number, at in lease.under_way.items()}
    ranked = replace(
        lease,
        sent=mine[lease.sent],
        acked=mine[lease.acked],
        under_way=under_way,
        holdings=hands,
        attempts=tries[lease.attempts],
    )
    watches = tuple(
        (node, replace(watch, pulse=("row", ranks[node][watch.pulse[1]]))) for node, watch in process.watches
    )
    return process._replace(lease=Frozen(ranked), watches=watches)


def _ranked_message(
    message: Message, ranks: dict[int, dict[int, int]], tries: dict[int, int], of_term: dict[int, int]
) -> Message:
    match message.kind:
        case "beat":
            answer = message.answer
            if answer is not None:
                term, *rest = answer.election
                answer = answer._replace(
                    was=ranks[message.node][answer.was],
                    peers=tuple((node, ranks[node][seq]) for node, seq in answer.peers),
                    election=(of_term[term], *rest),
                )
            return message._replace(number=ranks[message.node][message.number], answer=answer)
        case "acquire":
            answer = None if message.answer is None else of_term[message.answer]
            return message._replace(number=tries.get(message.number, 0), answer=answer)
        case "release":
            return message._replace(number=of_term[message.number])
        case "declare":
            return message._replace(sent_at=ranks[message.number][int(message.sent_at)])
    return message


def _renamed(message: Message, names: dict[int, int]) -> Message:
    node = names[message.node]
    if message.kind == "declare":
        return message._replace(node=node, number=names.setdefault(message.number, len(names)))
    if message.kind == "beat" and message.answer is not None:
        peers = tuple(sorted((names.setdefault(n, len(names)), seq) for n, seq in message.answer.peers))
        return message._replace(node=node, answer=message.answer._replace(peers=peers))
    return message._replace(node=node)


def in_order(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Messages on their way have no order."""
    return tuple(sorted(messages, key=lambda m: (m.kind, m.node, m.number, m.heard, m.answer is not None, m.sent_at)))


def _by_count(row: tuple[int, int]) -> tuple[int, int]:
    return row[1], row[0]


def _first(pair: tuple[int, Any]) -> int:
    return pair[0]
