"""One behaviour for every store: what the runtime relies on, said once and held against all of them.

PostgreSQL is also tried in each installed version and through a transaction pooler.
"""

import select
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from harness.components import need
from harness.pgbouncer import PgBouncer
from harness.postgres import Postgres, installed
from tenure.core.cluster import (
    Acquire,
    Acquired,
    AcquireOutcome,
    Beat,
    BeatAnswer,
    BeatVerdict,
    ElectionRow,
    NodeCard,
    Peer,
)
from tenure.errors import StoreError
from tenure.stores import Session, Store, store_for
from tenure.stores.host_lock import LockFile
from tenure.stores.notices import Notice, PeersChanged, Released, ResignRequested
from tenure.util.clock import boottime


class Actor:
    """A node driven by hand: one session, one identity, a beat when told to."""

    def __init__(self, store: Store, ttl: float = 10.0) -> None:
        self.id = str(uuid.uuid4())
        self.session: Session = store.session("test", timeout=2.0)
        self.number = 0
        self.lock: LockFile | None = None
        if store.pulse_in_file:
            assert store.evidence_directory is not None
            self.lock = LockFile(store.evidence_directory, self.id)
            self.session.use_lock_file(self.lock)
        self.session.join(NodeCard(self.id, f"label of {self.id[:4]}", ttl, self.lock.card() if self.lock else None))
        assert self.beat().verdict is BeatVerdict.RENEWED

    def beat(self, *names: str, number: int | None = None, deadline: float | None = None) -> BeatAnswer:
        self.number = self.number + 1 if number is None else number
        trusted_until = boottime() + 8 if deadline is None else deadline
        return self.session.beat(Beat(self.id, self.number, boottime(), trusted_until, None, names))

    def acquire(self, name: str = "x") -> Acquired:
        return self.session.acquire(Acquire(self.id, name))

    def sees(self, other: "Actor") -> Peer | None:
        return next((peer for peer in self.beat().peers if peer.id == other.id), None)

    def row(self, name: str = "x") -> ElectionRow:
        return next(row for row in self.beat(name).elections if row.name == name)

    def close(self) -> None:
        self.session.close()
        if self.lock:
            self.lock.remove()


@pytest.fixture(params=["memory", "sqlite", *(f"postgres {version}" for version in sorted(installed())), "pgbouncer"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    match request.param:
        case "memory":
            url = f"memory://{uuid.uuid4()}"
        case "sqlite":
            url = f"sqlite:///{tmp_path / 'jobs.db'}"
        case "pgbouncer":
            need("pgbouncer")
            bouncer: PgBouncer = request.getfixturevalue("pgbouncer")
            url = bouncer.url(request.getfixturevalue("database").rsplit("/", 1)[1])
        case version:
            server: Postgres = request.getfixturevalue("postgres_versions")(version.removeprefix("postgres "))
            url = server.create_database()
    opened = store_for(url)
    opened.prepare()
    return opened


@pytest.fixture
def actor(store: Store) -> Iterator[Callable[[], Actor]]:
    actors: list[Actor] = []

    def make(ttl: float = 10.0) -> Actor:
        actors.append(Actor(store, ttl))
        return actors[-1]

    yield make
    for one in actors:
        one.close()


def test_a_beat_renews_and_a_late_one_changes_nothing(actor: Callable[[], Actor]) -> None:
    a, b = actor(), actor()
    assert a.beat(number=5, deadline=0).verdict is BeatVerdict.RENEWED
    seen = b.sees(a)
    if a.lock is None:  # SQLite counts in its lock file and looks at the row only to be revived
        assert a.beat(number=4).verdict is BeatVerdict.LATE
        assert b.sees(a) == seen
    assert a.beat(number=6).verdict is BeatVerdict.RENEWED
    after = b.sees(a)
    assert seen is not None
    assert after is not None
    assert seen.pulse != after.pulse


def test_nodes_see_each_other_but_not_themselves(actor: Callable[[], Actor]) -> None:
    a, b = actor(), actor()
    assert {peer.id for peer in a.beat().peers} == {b.id}
    assert [card.label for card in a.session.cards([b.id])] == [f"label of {b.id[:4]}"]


def test_a_silent_node_keeps_its_pulse(actor: Callable[[], Actor]) -> None:
    a, b = actor(), actor()
    assert a.sees(b) == a.sees(b)


def test_death_is_final(actor: Callable[[], Actor]) -> None:
    a, b = actor(), actor()
    peer = a.sees(b)
    assert peer is not None
    assert a.session.declare(b.id, peer.pulse, "silent")
    assert b.beat().verdict is BeatVerdict.GONE
    assert b.acquire().outcome is AcquireOutcome.GONE
    assert not a.session.declare(b.id, peer.pulse, "silent"), "only one call does it"
    b.session.join(NodeCard(b.id, "again", 10.0))
    assert b.beat().verdict is BeatVerdict.GONE, "an identity never comes back"
    assert a.sees(b) is None


def test_a_declaration_compares_the_pulse(actor: Callable[[], Actor]) -> None:
    a, b = actor(), actor()
    peer = a.sees(b)
    assert peer is not None
    b.beat(deadline=0)
    assert not a.session.declare(b.id, peer.pulse, "silent")
    assert b.beat().verdict is BeatVerdict.RENEWED


def test_proof_of_death_needs_no_pulse(actor: Callable[[], Actor]) -> None:
    a, b = actor(), actor()
    b.beat()
    assert a.session.declare(b.id, None, "its host lock is free")
    assert b.beat().verdict is BeatVerdict.GONE


def test_no_row_is_dead(store: Store) -> None:
    session = store.session("test", 2.0)
    assert session.beat(Beat(str(uuid.uuid4()), 1, boottime(), 0.0, None, ())).verdict is BeatVerdict.GONE
    session.close()


def test_one_is_granted_and_the_others_are_told_who_holds(actor: Callable[[], Actor]) -> None:
    a, b = actor(), actor()
    first = a.acquire()
    assert (first.outcome, first.term) == (AcquireOutcome.GRANTED, 1)
    refused = b.acquire()
    assert (refused.outcome, refused.holder) == (AcquireOutcome.HELD, a.id)
    row = b.row()
    assert (row.term, row.holder, row.held, row.holder_alive, row.vacant) == (1, a.id, True, True, False)


def test_the_holder_is_shown_what_it_holds_unasked(actor: Callable[[], Actor]) -> None:
    a = actor()
    a.acquire("x")
    a.acquire("y")
    assert {(row.name, row.holder) for row in a.beat().elections} == {("x", a.id), ("y", a.id)}


def test_a_release_compares_term_and_holder(actor: Callable[[], Actor]) -> None:
    a, b = actor(), actor()
    a.acquire()
    assert not b.session.release(b.id, "x", 1, "not mine")
    assert not a.session.release(a.id, "x", 2, "not that term")
    assert a.session.release(a.id, "x", 1, "resigned")
    assert not a.session.release(a.id, "x", 1, "twice")
    assert b.row().vacant
    assert b.acquire().term == 2
    assert not a.session.release(a.id, "x", 1, "late, after the next grant")
    assert b.row().held


def test_succession_declares_the_dead_leader_and_wins_its_term(actor: Callable[[], Actor]) -> None:
    a, b, c = actor(), actor(), actor()
    a.acquire()
    declared, won = b.session.succeed(a.id, "its host lock is free", Acquire(b.id, "x"))
    assert (declared, won.outcome, won.term) == (True, AcquireOutcome.GRANTED, 2)
    assert "its host lock is free" in won.detail
    assert a.beat().verdict is BeatVerdict.GONE
    declared, refused = c.session.succeed(a.id, "its host lock is free", Acquire(c.id, "x"))
    assert (declared, refused.outcome, refused.holder) == (False, AcquireOutcome.HELD, b.id)


def test_a_term_number_survives_its_release_and_grows(actor: Callable[[], Actor]) -> None:
    a = actor()
    numbers = []
    for _ in range(5):
        numbers.append(a.acquire().term)
        a.session.release(a.id, "x", numbers[-1], "resigned")
    assert numbers == [1, 2, 3, 4, 5]


def test_what_a_dead_node_held_is_vacant(actor: Callable[[], Actor]) -> None:
    a, b = actor(), actor()
    a.acquire()
    b.session.declare(a.id, None, "its host lock is free")
    assert b.row().vacant
    won = b.acquire()
    assert (won.outcome, won.term) == (AcquireOutcome.GRANTED, 2)
    assert "its host lock is free" in won.detail


def test_leaving_releases_everything_at_once(actor: Callable[[], Actor]) -> None:
    a, b = actor(), actor()
    a.acquire("x")
    a.acquire("y")
    a.session.leave(a.id, "left")
    assert a.beat().verdict is BeatVerdict.GONE
    assert (b.acquire("x").term, b.acquire("y").term) == (2, 2)
    assert {record.began_by for record in b.session.terms(None, 10)} == {"first", "released"}


def test_a_leader_is_asked_to_resign_once(actor: Callable[[], Actor]) -> None:
    a, b = actor(), actor()
    assert b.session.ask("x") is None
    a.acquire()
    assert b.session.ask("x") == 1
    assert a.row().asked
    a.session.release(a.id, "x", 1, "asked to resign")
    b.acquire()
    assert not b.row().asked, "the question was for term 1"


def test_a_release_wakes_those_who_listen(actor: Callable[[], Actor], store: Store) -> None:
    a, b = actor(), actor()
    b.session.listen(b.id)
    a.acquire("an election")
    b.session.notices()
    a.session.release(a.id, "an election", 1, "resigned")
    if getattr(store, "pooled", False):
        assert b.session.fileno() is None, "a transaction pooler delivers no notices: the beat looks instead"
        return
    assert _heard(b.session) == [Released("an election")]
    a.acquire("an election")
    a.session.ask("an election")
    assert _heard(b.session) == [ResignRequested("an election")]
    a.session.declare(a.id, None, "dead")
    assert _heard(b.session) == [PeersChanged()]


def test_no_grant_and_no_declaration_on_another_database(actor: Callable[[], Actor]) -> None:
    a, b = actor(), actor()
    a.acquire("before")
    epoch = a.session.epoch()
    assert epoch.settled
    a.session.unsettle(epoch)
    noticed = b.session.epoch()
    assert not noticed.settled
    assert a.acquire("after").outcome is AcquireOutcome.MOVED
    assert not a.session.declare(b.id, None, "proof")
    assert a.beat().verdict is BeatVerdict.RENEWED, "whoever holds something goes on"
    assert not b.session.raise_epoch(epoch), "the epoch is raised only as it was noticed"
    assert b.session.raise_epoch(noticed)
    assert not b.session.raise_epoch(noticed), "and once"
    assert a.session.epoch().settled
    if a.lock is None:  # a SQLite file that was put back in time is another file, and needs no beat to tell
        assert a.beat().epoch == a.session.epoch().number
    leaped = a.acquire("after").term
    assert leaped >= a.session.epoch().number << 20 > 2**40
    assert leaped < 2**53, "every language can carry the number"
    a.session.release(a.id, "before", 1, "resigned")
    assert b.acquire("before").term >= leaped


def test_the_newest_terms_of_each_election_are_listed_by_name(actor: Callable[[], Actor]) -> None:
    a = actor()
    for name, times in {"b": 4, "c": 1, "a": 2}.items():
        for _ in range(times):
            term = a.acquire(name).term
            a.session.release(a.id, name, term, "resigned")

    def found(after: str, elections: int, each: int) -> list[tuple[str, int]]:
        return [(record.election, record.number) for record in a.session.recent_terms(after, elections, each)]

    assert found("", 10, 3) == [("a", 2), ("a", 1), ("b", 4), ("b", 3), ("b", 2), ("c", 1)]
    assert found("", 1, 1) == [("a", 2)]
    assert found("a", 1, 9) == [("b", 4), ("b", 3), ("b", 2), ("b", 1)]
    assert found("c", 9, 9) == []
    assert [record.number for record in a.session.terms("b", 2)] == [4, 3]


def test_nodes_are_listed_with_how_each_ended(actor: Callable[[], Actor]) -> None:
    a, b, c, d = actor(), actor(), actor(), actor()
    for one in (a, b, c, d):
        one.beat()
    c.session.leave(c.id, "stopped")
    assert a.session.declare(b.id, None, "its process is gone")
    by_label = sorted([a.id, d.id])
    records = a.session.node_records(10)
    assert [(one.id, one.state, one.ended_by) for one in records] == [
        *((node, "alive", "") for node in by_label),
        (b.id, "dead", "its process is gone"),
        (c.id, "left", "stopped"),
    ]
    assert [one.id for one in a.session.node_records(1)] == [*by_label, b.id]
    assert [one.id for one in a.session.node_records(0)] == by_label
    alive, dead = records[0], records[2]
    assert alive.seen_at is not None
    assert dead.ended_at is not None
    assert abs((dead.ended_at - alive.seen_at).total_seconds()) < 60
    assert dead.joined_at <= dead.ended_at
    assert not alive.silent_at(alive.seen_at)
    assert alive.silent_at(alive.seen_at + timedelta(seconds=alive.ttl + 1))
    assert not dead.silent_at(dead.ended_at + timedelta(days=1))


def test_the_history_says_who_led_why_and_after_which_gap(actor: Callable[[], Actor]) -> None:
    a, b = actor(), actor()
    a.acquire()
    a.session.release(a.id, "x", 1, "resigned")
    b.acquire()
    newest, oldest = b.session.terms("x", 10)
    assert (oldest.number, oldest.node, oldest.began_by, oldest.ended_by, oldest.gap) == (
        1,
        a.id,
        "first",
        "resigned",
        None,
    )
    assert (newest.number, newest.node, newest.began_by, newest.ended_at) == (2, b.id, "released", None)
    assert newest.gap is not None
    assert 0 <= newest.gap.total_seconds() < 60
    assert not newest.gap_at_most, "it is known when a term ended that was given back"
    assert [record.number for record in b.session.terms("x", 1)] == [2]
    assert b.session.terms("no such election", 5) == []
    assert a.acquire("y").term
    assert a.beat().verdict is BeatVerdict.RENEWED
    assert b.session.declare(a.id, None, "proof")
    assert b.acquire("y").outcome is AcquireOutcome.GRANTED
    after_a_death = b.session.terms("y", 1)[0]
    assert after_a_death.gap is not None, "counted from its last heartbeat"
    assert after_a_death.gap_at_most, "when it died since then is not known"


def test_the_leader_can_be_asked_for_by_anybody(actor: Callable[[], Actor]) -> None:
    a, b = actor(), actor()
    assert b.session.leader("x") is None
    a.acquire()
    leader = b.session.leader("x")
    assert leader is not None
    assert (leader.term, leader.node, leader.label, leader.healthy) == (1, a.id, f"label of {a.id[:4]}", True)
    assert leader.since.tzinfo is not None
    assert [held.election for held in b.session.elections()] == ["x"]
    b.session.declare(a.id, None, "dead")
    after = b.session.leader("x")
    assert after is not None
    assert not after.healthy


def test_sweeping_forgets_nobody_who_matters(actor: Callable[[], Actor]) -> None:
    a, b = actor(), actor()
    a.acquire()
    a.session.sweep()
    assert a.row().held
    assert b.sees(a) is not None


@pytest.mark.parametrize(
    "name", ["it's", 'a "quoted" name', "x'; DROP TABLE tenure.election; --", "선거", "%s {} :x ?", "a" * 200]
)
def test_any_name_is_only_a_name(actor: Callable[[], Actor], name: str) -> None:
    a = actor()
    assert a.acquire(name).outcome is AcquireOutcome.GRANTED
    assert a.row(name).holder == a.id
    assert a.session.release(a.id, name, 1, name)
    assert a.session.terms(name, 1)[0].ended_by == name


def test_of_many_candidates_at_once_one_is_granted(store: Store) -> None:
    actors = [Actor(store) for _ in range(6)]
    start = threading.Barrier(len(actors))

    def once(one: Actor, name: str) -> Acquired:
        start.wait()
        for _ in range(50):
            answer = one.acquire(name)
            if answer.outcome is not AcquireOutcome.BUSY:
                return answer
        return answer

    with ThreadPoolExecutor(len(actors)) as pool:
        for round_ in range(15):
            name = f"election {round_}"
            answers = list(pool.map(lambda one, name=name: once(one, name), actors))
            outcomes = [answer.outcome for answer in answers]
            assert outcomes.count(AcquireOutcome.GRANTED) == 1, outcomes
    for one in actors:
        one.close()


def test_terms_of_rivals_never_repeat(store: Store) -> None:
    actors = [Actor(store) for _ in range(4)]
    won: list[int] = []

    def compete(one: Actor) -> None:
        for _ in range(25):
            try:
                answer = one.acquire()
                if answer.outcome is AcquireOutcome.GRANTED:
                    won.append(answer.term)
                    assert one.session.release(one.id, "x", answer.term, "resigned")
            except StoreError:
                continue  # a lost round: SQLite was busy for longer than we wait

    with ThreadPoolExecutor(len(actors)) as pool:
        list(pool.map(compete, actors))
    assert len(won) > 1
    assert sorted(won) == list(range(1, len(won) + 1))
    for one in actors:
        one.close()


def _heard(session: Session) -> list[Notice]:
    fileno = session.fileno()
    assert fileno is not None
    ready, _, _ = select.select([fileno], [], [], 5.0)
    assert ready, "nobody rang"
    return session.notices()
