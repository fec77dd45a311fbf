"""The values of nodes and elections (G1, G2) that travel between the layers. The glossary explains their names."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from typing import Literal

from tenure.errors import ConfigurationError
from tenure.util.durations import Duration, positive

NodeId = str
"""A UUID, fresh for every incarnation of a process (also after a fork), never reused and never a host name."""

Pulse = tuple[str, int]
"""A node's last sign of life: where a watcher read it ('row' or 'file'), and the count. Compared for equality only."""

TRUST = 0.8
"""The part of its ttl for which a node trusts a beat. 0.8 · 1.25 = 1: any two clocks may differ in rate by 25 %."""

MARGIN = 1.25
"""The factor by which a candidate waits longer than the holder's grace, for the same reason."""

MAX_TTL = 60.0
"""The largest accepted ttl: how long to wait after a failover that may have lost grants."""


@dataclass(frozen=True, slots=True)
class Cadence:
    """How often a node does what, in seconds. `Cadence.of` fills in what users left out and refuses what
    cannot work."""

    ttl: float = 10.0
    heartbeat_every: float = 2.0
    attempt_timeout: float = 2.0
    validate_every: float = 0.5
    validate_timeout: float = 0.7
    session_grace: float = 2.0
    keepalive_every: float = 30.0

    @property
    def trust(self) -> float:
        """How long a node may act after sending a beat that was acknowledged."""
        return TRUST * self.ttl

    @classmethod
    def of(
        cls,
        ttl: Duration = 10.0,
        *,
        heartbeat_every: Duration | None = None,
        attempt_timeout: Duration | None = None,
        validate_every: Duration | None = None,
        validate_timeout: Duration | None = None,
        session_grace: Duration | None = None,
        keepalive_every: Duration | None = None,
    ) -> Cadence:
        """The cadence in seconds; heartbeat and attempt default to a fifth of the ttl."""

        def given(value: Duration | None, what: str, default: float) -> float:
            return default if value is None else positive(value, what)

        life = positive(ttl, "ttl")
        cadence = cls(
            ttl=life,
            heartbeat_every=given(heartbeat_every, "heartbeat_every", life / 5),
            attempt_timeout=given(attempt_timeout, "attempt_timeout", life / 5),
            validate_every=given(validate_every, "validate_every", 0.5),
            validate_timeout=given(validate_timeout, "validate_timeout", 0.7),
            session_grace=given(session_grace, "session_grace", 2.0),
            keepalive_every=given(keepalive_every, "keepalive_every", 30.0),
        )
        cadence.check()
        return cadence

    def check(self) -> None:
        """Refuse a cadence in which one hung attempt would cost the lease; the message shows the arithmetic."""
        if self.ttl > MAX_TTL:
            raise ConfigurationError(
                f"ttl: {self.ttl:g} s is more than the {MAX_TTL:g} s that tenure accepts (it waits that long after a "
                "failover of the database). A crash on the same host is noticed in milliseconds whatever the ttl is."
            )
        worst = self.heartbeat_every + 2 * self.attempt_timeout
        if worst >= self.trust:
            raise ConfigurationError(
                f"ttl: {self.ttl:g} s is too small for heartbeat_every={self.heartbeat_every:g} s and attempt_timeout="
                f"{self.attempt_timeout:g} s. A node trusts a beat for 0.8 · ttl = {self.trust:g} s, and a beat "
                "followed by one hung attempt and one good one takes heartbeat_every + 2 · attempt_timeout "
                f"= {worst:g} s, which must be less. "
                f"Write ttl={worst / TRUST + 0.1:.1f} or more, or smaller steps."
            )
        hung = self.validate_every + 2 * self.validate_timeout
        if hung >= self.session_grace:
            raise ConfigurationError(
                f"session_grace: {self.session_grace:g} s is too small: validate_every + 2 · validate_timeout "
                f"= {hung:g} s must be less, so that one hung check does not end a term."
            )


@dataclass(frozen=True, slots=True)
class HostCard:
    """What a node on the same host needs to prove this node's death. Part of the node's row; never trusted
    as a path."""

    boot_id: str
    pid: int
    pid_namespace: int
    started: int
    device: int
    inode: int
    nonce: str


@dataclass(frozen=True, slots=True)
class NodeCard:
    """A node's description of itself."""

    id: NodeId
    label: str
    ttl: float
    host: HostCard | None = None


@dataclass(frozen=True, slots=True)
class Advert:
    """Session evidence in a node's row: the lock that its session holds, and how long the node trusts a check of it."""

    nonce: int
    grace: float


@dataclass(frozen=True, slots=True)
class Peer:
    """Another live node as one beat showed it. `pulse` is None if none could be observed."""

    id: NodeId
    pulse: Pulse | None
    ttl: float


@dataclass(frozen=True, slots=True)
class ElectionRow:
    """An election in the database, with what is known of its holder."""

    name: str
    term: int
    holder: NodeId | None
    held: bool
    asked: bool = False
    """An operator requested that the holder resign this term."""
    holder_alive: bool = False
    holder_seq: int = 0
    holder_advert: Advert | None = None

    @property
    def vacant(self) -> bool:
        """True if any candidate may have it: it was released, or its holder is not alive."""
        return not self.held or not self.holder_alive


class BeatVerdict(Enum):
    """The database's answer to a beat."""

    RENEWED = "renewed"
    LATE = "late"
    """The row has a higher count already, or changed meanwhile: nothing gained, nothing known; beat again."""
    GONE = "gone"
    """Declared dead, left, or no row. Final for this identity."""


@dataclass(frozen=True, slots=True)
class Beat:
    """One heartbeat, as it is sent."""

    node: NodeId
    number: int
    sent_at: float
    deadline: float
    """The node's deadline at the time of sending (SQLite checks it after the pulse was written)."""
    advert: Advert | None
    names: tuple[str, ...]
    """The elections for which this node is a candidate."""


@dataclass(frozen=True, slots=True)
class BeatAnswer:
    """Everything a node learns from one beat."""

    verdict: BeatVerdict
    was_seq: int = 0
    """The count in the row before this beat. If it is less than acknowledged, the database was restored."""
    peers: tuple[Peer, ...] = ()
    elections: tuple[ElectionRow, ...] = ()
    """Elections that the node holds, and those it is a candidate for."""
    time: float = 0.0
    """The database's clock, in seconds since 1970."""
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Vacancy:
    """A holder whose advertised session lock was seen free. The granting statement compares it again."""

    term: int
    holder: NodeId
    seq: int
    advert: Advert


class AcquireOutcome(StrEnum):
    """The outcome of an attempt to acquire."""

    GRANTED = "granted"
    HELD = "held"
    BUSY = "busy"
    """The row is locked, for instance by an open fence: try again soon."""
    GONE = "gone"
    """The candidate itself is not alive."""
    MOVED = "moved"
    """The server is not the one that the epoch was written for: failover, restored dump, copied file."""
    MISMATCH = "mismatch"
    """The election is held in the other mode."""


@dataclass(frozen=True, slots=True)
class Acquire:
    """One attempt to be granted a term."""

    node: NodeId
    name: str
    fenced: bool = False
    """All effects are fenced: take over if the holder's are too and its advertised lock is free in this statement."""
    mode: str = "lease"
    vanished: Vacancy | None = None


@dataclass(frozen=True, slots=True)
class Acquired:
    """The answer to an `Acquire`."""

    outcome: AcquireOutcome
    term: int = 0
    holder: NodeId | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """Identifies a database. If it changes, grants may have been lost, and the epoch must be raised."""

    system: str
    timeline: int
    database: str
    relation: str


@dataclass(frozen=True, slots=True)
class Epoch:
    """The epoch as written, the identity it was written for, and the identity of the server that answered."""

    number: int
    max_ttl: float
    recorded: Identity
    actual: Identity

    @property
    def settled(self) -> bool:
        """True if grants are allowed."""
        return self.recorded == self.actual


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of an election, by the database."""

    election: str
    term: int
    node: NodeId
    label: str
    since: datetime
    healthy: bool
    """True if its node is alive and gave a sign of life within its ttl."""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node that takes part, or did until lately. To read: no decision rests on it."""

    id: NodeId
    label: str
    state: Literal["alive", "left", "dead"]
    ttl: float
    joined_at: datetime
    seen_at: datetime | None
    """Its last sign of life, if that is known."""
    ended_at: datetime | None
    ended_by: str
    """Why it left, or by which evidence it was declared dead."""

    def silent_at(self, now: datetime) -> bool:
        """True if it counts as alive, although it has given no sign of life for its ttl."""
        return self.state == "alive" and self.seen_at is not None and (now - self.seen_at).total_seconds() > self.ttl


EPOCH_BITS = 20
"""The number of a term is at least its epoch, shifted by this many bits."""

RELEASED = "released"
"""The cause of a grant after a leader released its term: then the end of that term is known."""


@dataclass(frozen=True, slots=True)
class TermRecord:
    """One line of the history of terms."""

    election: str
    number: int
    node: NodeId
    label: str
    began_at: datetime
    began_by: str
    """Why it could be granted: first, released, dead (and by which evidence), session ended …"""
    ended_at: datetime | None
    ended_by: str | None
    gap: timedelta | None
    """How long no node led before it; after a dead predecessor at most this long, see `gap_at_most`."""

    @property
    def gap_at_most(self) -> bool:
        """True if the gap is an upper bound: it counts from the last heartbeat of a dead leader."""
        return self.gap is not None and self.began_by != RELEASED


@dataclass(frozen=True, slots=True)
class Trust:
    """Until when a node may act, and in which unbroken period. Replaced as a whole: any thread may read it."""

    until: float
    trust_period: int
