"""The lease: what a node may believe about itself (G1, G2).

A node has one row in the database and sends a numbered beat every `heartbeat_every` seconds. Everything it holds, it
holds by that row.

Trust
-----
`s` is read from a clock that never steps, *before* a beat is sent. If the beat is acknowledged, the node may act while
`now < s + 0.8 ttl`. Other nodes declare it dead only after they have seen the same count for a whole ttl. So trust ends
first, whatever the network did in between: delays only make `s` older. Offsets and steps of clocks never enter, only
their rates, which may differ by 25 %.

A lapse is for ever
-------------------
When trust has run out, every term that was held ends. A later beat may well be acknowledged, if no node has declared
this one dead. Then new terms may be won, but the old ones are never believed again: they are drained and released.
`trust_period` counts the unbroken periods of trust; a term belongs to the period in which it was won.

Sessions
--------
Where the node's session holds an advisory lock and the row says so, others may take over `1.25 grace` after they saw
that lock free. So belief in terms also ends `grace` after the start of the last good check. This holds for *every*
nonce that the row may contain: the one from the last acknowledged beat, and those from all beats sent since,
acknowledged or not.

Holdings
--------
A holding is what a node has in one election, from the attempt to acquire a term until its release is acknowledged:

    AcquireSent        granted            resigned, lapsed,          drained               release acknowledged,
        |              in time            asked, or not shown                              or not shown any more
        v                 |                      |                      |                      |
      OPEN --------------------> HELD ----------------> DRAINING ------------> RELEASING ------------> (none)
        |                                                   |
        +-- refused, failed, or trust lapsed: (none)        +-- drained, and the database has given it away: (none)

An attempt is entered as OPEN *before* it is sent. Its answer makes it HELD if the node has had unbroken trust since
then, under the same identity; otherwise the attempt is abandoned and its answer is never acted on. Each beat shows what
this node holds according to the database. Both sides are compared:

- The database shows a term for which there is no holding: release it (an abandoned attempt succeeded after all).
- A held term is not shown: it is lost, but only if its answer was processed before this beat was *sent*. The snapshot
  of a beat may be older than the answer to an attempt that went over the other connection.
- A term that is being released is still shown: release it again.

Stepping down always goes in the same order: end belief, tell the work, drain the work, release in the database.

`step` is the whole machine: a pure function that the runtime, the tests and the simulator share. It reads no clock and
does no I/O.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeVar

from tenure.core.cluster import Advert, BeatAnswer, BeatVerdict, Cadence, NodeId, Trust

_K = TypeVar("_K")
_V = TypeVar("_V")


class Phase(Enum):
    """Where a holding is between the attempt to acquire and the acknowledged release."""

    OPEN = "open"
    HELD = "held"
    DRAINING = "draining"
    RELEASING = "releasing"


@dataclass(frozen=True, slots=True)
class Holding:
    """What a node has, or has tried to acquire, in one election."""

    phase: Phase
    attempt: int
    term: int = 0
    after_beat: int = 0
    """The last beat that had been sent when the answer was processed: only later beats can show this term."""
    owned: bool = True
    """False if the node knows that the database no longer gives it to this node: there is nothing to release."""
    why: str = ""
    """Why it is being given up."""


@dataclass(frozen=True, slots=True)
class Lease:
    """All that one identity of a node knows about itself."""

    node: NodeId
    cadence: Cadence
    trust_period: int = 0
    sent: int = 0
    acked: int = 0
    epoch: int = 0
    """As the last acknowledged beat showed it."""
    attempts: int = 0
    until: float = -math.inf
    gone: bool = False
    under_way: Mapping[int, float] = field(default_factory=dict)
    """Unanswered beats, each with the time before it was sent."""
    adverts: Mapping[int, Advert | None] = field(default_factory=dict)
    """Session evidence that the row may contain: from the last acknowledged beat, and from every beat sent since."""
    checked: Mapping[int, float] = field(default_factory=dict)
    """The start of the last good check of each nonce."""
    holdings: Mapping[str, Holding] = field(default_factory=dict)

    @property
    def terms_until(self) -> float:
        """When belief in terms ends: with the lease, or with the grace of any session that the row may contain."""
        bounds = [self.checked.get(a.nonce, -math.inf) + a.grace for a in self.adverts.values() if a is not None]
        return min([self.until, *bounds])

    @property
    def trust(self) -> Trust:
        """What every thread may read."""
        return Trust(self.terms_until, self.trust_period)


@dataclass(frozen=True, slots=True)
class BeatSent:
    """A beat is about to be sent; `sent_at` was read just before."""

    number: int
    sent_at: float
    advert: Advert | None = None


@dataclass(frozen=True, slots=True)
class BeatAnswered:
    """The database answered a beat."""

    number: int
    answer: BeatAnswer


@dataclass(frozen=True, slots=True)
class BeatFailed:
    """A beat got no answer, and a late answer will be ignored. The beat may have been executed, or may still be."""

    number: int


@dataclass(frozen=True, slots=True)
class SessionChecked:
    """A check that began at `began_at` found the session lock of `nonce` in place."""

    nonce: int
    began_at: float


@dataclass(frozen=True, slots=True)
class AcquireSent:
    """An attempt is about to be sent."""

    name: str


@dataclass(frozen=True, slots=True)
class AcquireAnswered:
    """An attempt was answered; `term` is None if it was refused."""

    name: str
    attempt: int
    term: int | None


@dataclass(frozen=True, slots=True)
class AcquireFailed:
    """An attempt has an unknown outcome: it is abandoned, and a later beat will settle it."""

    name: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Resign:
    """Give up a term now."""

    name: str
    term: int
    reason: str


@dataclass(frozen=True, slots=True)
class Drained:
    """The work of a term has stopped."""

    name: str
    term: int


@dataclass(frozen=True, slots=True)
class ReleaseAcked:
    """The database released a term, or no longer knew it as ours."""

    name: str
    term: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = (
    BeatSent
    | BeatAnswered
    | BeatFailed
    | SessionChecked
    | AcquireSent
    | AcquireAnswered
    | AcquireFailed
    | Resign
    | Drained
    | ReleaseAcked
    | Tick
)


@dataclass(frozen=True, slots=True)
class Announce:
    """A term was won in this period of trust: tell the election."""

    name: str
    term: int
    trust_period: int


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Belief has ended: tell the work to stop."""

    name: str
    term: int
    reason: str


@dataclass(frozen=True, slots=True)
class Release:
    """Release a term in the database, comparing term and holder."""

    name: str
    term: int
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Rejoin:
    """This identity is dead: join again under a new one."""


@dataclass(frozen=True, slots=True)
class DatabaseRewound:
    """The database was restored to an older state: the epoch must be raised."""


Action = Announce | Withdraw | Release | Rejoin | DatabaseRewound


def step(lease: Lease, event: Event, now: float) -> tuple[Lease, list[Action]]:
    """The lease after an event, and what has to be done about it. It notices expired trust before anything else."""
    lease, actions = _lapse(lease, now)
    match event:
        case BeatSent(number, sent_at, advert):
            lease = replace(
                lease,
                sent=number,
                under_way={**lease.under_way, number: sent_at},
                adverts={**lease.adverts, number: advert},
            )
        case BeatAnswered(number, answer):
            lease, more = _answered(lease, number, answer)
            actions += more
        case BeatFailed(number):
            lease = replace(lease, under_way=_without(lease.under_way, number))
        case SessionChecked(nonce, began_at):
            lease = replace(lease, checked={**lease.checked, nonce: max(began_at, lease.checked.get(nonce, began_at))})
        case AcquireSent(name):
            attempt = lease.attempts + 1
            lease = _with_holding(replace(lease, attempts=attempt), name, Holding(Phase.OPEN, attempt))
        case AcquireAnswered(name, attempt, term):
            lease, more = _acquired(lease, name, attempt, term, now)
            actions += more
        case AcquireFailed(name, attempt):
            if _is_open(lease, name, attempt):
                lease = _without_holding(lease, name)
        case Resign(name, term, reason):
            holding = lease.holdings.get(name)
            if holding is not None and holding.phase is Phase.HELD and holding.term == term:
                lease = _with_holding(lease, name, replace(holding, phase=Phase.DRAINING, why=reason))
                actions.append(Withdraw(name, term, reason))
        case Drained(name, term):
            lease, more = _drained(lease, name, term)
            actions += more
        case ReleaseAcked(name, term):
            holding = lease.holdings.get(name)
            if holding is not None and holding.phase is Phase.RELEASING and holding.term == term:
                lease = _without_holding(lease, name)
        case Tick():
            pass
    return lease, actions


def believes(lease: Lease, name: str, now: float) -> int | None:
    """The term in which this node leads now, if it does."""
    holding = lease.holdings.get(name)
    return holding.term if holding is not None and holding.phase is Phase.HELD and now < lease.terms_until else None


def _lapse(lease: Lease, now: float) -> tuple[Lease, list[Action]]:
    """Trust ran out: held terms end, and open attempts are abandoned, because another node may win meanwhile."""
    if now < lease.terms_until or not any(
        holding.phase in {Phase.HELD, Phase.OPEN} for holding in lease.holdings.values()
    ):
        return lease, []
    held = {name: holding for name, holding in lease.holdings.items() if holding.phase is Phase.HELD}
    reason = "no beat was acknowledged in time" if now >= lease.until else "its session could not be checked in time"
    holdings = {
        name: replace(holding, phase=Phase.DRAINING, why=reason) if name in held else holding
        for name, holding in lease.holdings.items()
        if holding.phase is not Phase.OPEN
    }
    return replace(lease, trust_period=lease.trust_period + bool(held), holdings=holdings), [
        Withdraw(name, holding.term, reason) for name, holding in held.items()
    ]


def _answered(lease: Lease, number: int, answer: BeatAnswer) -> tuple[Lease, list[Action]]:
    sent_at = lease.under_way.get(number)
    under_way = _without(lease.under_way, number)
    if sent_at is None or lease.gone:
        return replace(lease, under_way=under_way), []  # given up before: gives no trust
    match answer.verdict:
        case BeatVerdict.LATE:
            return replace(lease, under_way=under_way), []
        case BeatVerdict.GONE:
            held = [
                Withdraw(n, h.term, "this node was declared dead")
                for n, h in lease.holdings.items()
                if h.phase is Phase.HELD
            ]
            gone = replace(
                lease, under_way=under_way, gone=True, until=-math.inf, trust_period=lease.trust_period + 1, holdings={}
            )
            return gone, [*held, Rejoin()]
        case BeatVerdict.RENEWED:
            # The count went backwards. Unless the epoch has been raised since, no node has dealt with that yet.
            put_back = answer.was_seq < lease.acked and answer.epoch <= lease.epoch
            actions: list[Action] = [DatabaseRewound()] if put_back else []
            adverts = {n: advert for n, advert in lease.adverts.items() if n >= number}
            nonces = {advert.nonce for advert in adverts.values() if advert is not None}
            lease = replace(
                lease,
                under_way=under_way,
                acked=number,
                epoch=answer.epoch,
                until=max(lease.until, sent_at + lease.cadence.trust),
                adverts=adverts,
                checked={nonce: at for nonce, at in lease.checked.items() if nonce in nonces or at >= sent_at},
            )
            lease, more = _compare(lease, number, answer)
            return lease, actions + more


def _compare(lease: Lease, number: int, answer: BeatAnswer) -> tuple[Lease, list[Action]]:
    """Compare what the database gives this node with its holdings."""
    actions: list[Action] = []
    shown = {row.name: row for row in answer.elections if row.held and row.holder == lease.node}
    for name, row in shown.items():
        holding = lease.holdings.get(name)
        if holding is None or (holding.term == row.term and holding.phase is Phase.RELEASING):
            actions.append(Release(name, row.term, holding.why if holding else "won after it was given up"))
        elif holding.term == row.term and holding.phase is Phase.HELD and row.asked:
            lease = _with_holding(lease, name, replace(holding, phase=Phase.DRAINING, why="asked to resign"))
            actions.append(Withdraw(name, holding.term, "asked to resign"))
    for name, holding in list(lease.holdings.items()):
        if (
            holding.phase is Phase.OPEN
            or holding.after_beat >= number
            or (name in shown and shown[name].term == holding.term)
        ):
            continue
        if holding.phase is Phase.RELEASING:
            lease = _without_holding(lease, name)
        else:
            lease = _with_holding(lease, name, replace(holding, phase=Phase.DRAINING, owned=False))
            if holding.phase is Phase.HELD:
                actions.append(Withdraw(name, holding.term, "the database no longer gives it to this node"))
    return lease, actions


def _acquired(lease: Lease, name: str, attempt: int, term: int | None, now: float) -> tuple[Lease, list[Action]]:
    if not _is_open(lease, name, attempt):
        return lease, []  # abandoned before its answer came
    if term is None or lease.gone or now >= lease.terms_until:
        return _without_holding(lease, name), []  # refused, or abandoned: a later beat releases what was granted
    holding = Holding(Phase.HELD, attempt, term, after_beat=lease.sent)
    return _with_holding(lease, name, holding), [Announce(name, term, lease.trust_period)]


def _drained(lease: Lease, name: str, term: int) -> tuple[Lease, list[Action]]:
    holding = lease.holdings.get(name)
    if holding is None or holding.phase is not Phase.DRAINING or holding.term != term:
        return lease, []
    if not holding.owned:
        return _without_holding(lease, name), []
    return _with_holding(lease, name, replace(holding, phase=Phase.RELEASING)), [Release(name, term, holding.why)]


def _is_open(lease: Lease, name: str, attempt: int) -> bool:
    holding = lease.holdings.get(name)
    return holding is not None and holding.phase is Phase.OPEN and holding.attempt == attempt


def _with_holding(lease: Lease, name: str, holding: Holding) -> Lease:
    return replace(lease, holdings={**lease.holdings, name: holding})


def _without_holding(lease: Lease, name: str) -> Lease:
    return replace(lease, holdings=_without(lease.holdings, name))


def _without(mapping: Mapping[_K, _V], key: _K) -> dict[_K, _V]:
    return {k: v for k, v in mapping.items() if k != key}
