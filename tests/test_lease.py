"""The rules of the lease and of the watch, one by one: pure functions, no clock, no database.

Each test is named after the rule it holds. The schedules under "interleavings" are those that broke earlier versions of the design.
"""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure import lease as machine
from tenure import watch
from tenure.lease import (
    AcquireAnswered,
    AcquireFailed,
    AcquireSent,
    Announce,
    BeatAnswered,
    BeatFailed,
    BeatSent,
    Drained,
    Hand,
    Lease,
    Phase,
    PutBack,
    Rejoin,
    Release,
    ReleaseAcked,
    Resign,
    SessionChecked,
    Tick,
    Withdraw,
)
from tenure.model import Advert, BeatAnswer, Cadence, ElectionRow, Peer, Vacancy, Verdict

TTL = 10.0
D = 8.0
ME, OTHER = "me", "other"
N1, N2 = Advert(1, 2.0), Advert(2, 2.0)


class Node:
    """A lease that is stepped along, with what it was told to do."""

    def __init__(self):
        self.lease = Lease(ME, Cadence.of(TTL))
        self.done = []

    def step(self, event, at):
        self.lease, actions = machine.step(self.lease, event, at)
        self.done += actions
        return actions

    def send(self, at, advert=None):
        number = self.lease.sent + 1
        self.step(BeatSent(number, at, advert), at)
        return number

    def answer(self, number, at, *rows, verdict=Verdict.RENEWED, was=None):
        answer = BeatAnswer(verdict, was_seq=number - 1 if was is None else was, elections=rows)
        return self.step(BeatAnswered(number, answer), at)

    def beat(self, at, *rows, answered=None, advert=None):
        return self.answer(self.send(at, advert), at + 0.01 if answered is None else answered, *rows)

    def win(self, term, at, name="x"):
        self.step(AcquireSent(name), at)
        return self.step(AcquireAnswered(name, self.lease.attempts, term), at + 0.01)

    def leads(self, at, name="x"):
        return machine.believes(self.lease, name, at)

    def phase(self, name="x"):
        hand = self.lease.hands.get(name)
        return None if hand is None else hand.phase


def mine(term, name="x", **more):
    return ElectionRow(name, term, ME, held=True, holder_alive=True, **more)


def theirs(term, name="x"):
    return ElectionRow(name, term, OTHER, held=True, holder_alive=True)


@pytest.fixture
def node():
    """It beat at 0 and was acknowledged."""
    node = Node()
    node.beat(0.0)
    return node


# Trust


def test_trust_is_anchored_before_the_beat_was_sent():
    node = Node()
    node.beat(5.0, answered=7.0)
    assert node.lease.until == 5.0 + D


def test_a_beat_without_an_answer_wins_nothing(node):
    number = node.send(2.0)
    node.step(BeatFailed(number), 4.0)
    assert node.lease.until == D


def test_an_answer_that_was_given_up_is_not_listened_to(node):
    number = node.send(2.0)
    node.step(BeatFailed(number), 4.0)
    assert node.answer(number, 4.1, mine(7)) == []
    assert node.lease.until == D


def test_answers_in_the_wrong_order_never_take_trust_back(node):
    first, second = node.send(1.0), node.send(2.0)
    node.answer(second, 2.1)
    node.answer(first, 2.2, was=second)
    assert node.lease.until == 2.0 + D


def test_a_late_beat_wins_nothing_and_loses_nothing(node):
    node.win(1, 0.1)
    number = node.send(2.0)
    assert node.answer(number, 2.1, verdict=Verdict.LATE) == []
    assert node.lease.until == D
    assert node.leads(2.2) == 1


def test_belief_ends_at_the_deadline_without_any_event(node):
    node.win(1, 0.1)
    assert node.leads(math.nextafter(D, 0)) == 1
    assert node.leads(D) is None


def test_a_lapse_is_for_ever(node):
    node.win(1, 0.1)
    number = node.send(7.9)
    told = node.answer(number, 8.5, mine(1))  # acknowledged: nobody declared it dead, but trust had ended before
    assert told == [Withdraw("x", 1, "no beat was acknowledged in time")]
    assert node.lease.until == 7.9 + D
    assert node.leads(8.6) is None
    assert node.phase() is Phase.DRAINING
    node.beat(9.0, mine(1))
    assert node.leads(9.1) is None


def test_after_a_lapse_a_new_term_may_be_won_in_a_new_stretch(node):
    node.win(1, 0.1)
    before = node.lease.stretch
    node.beat(8.5, mine(1))
    node.step(Drained("x", 1), 8.6)
    node.step(ReleaseAcked("x", 1), 8.7)
    assert node.win(2, 8.8) == [Announce("x", 2, before + 1)]
    assert node.leads(8.9) == 2


def test_dead_is_final_and_everything_is_lost_at_once(node):
    node.win(1, 0.1)
    node.win(2, 0.1, "y")
    number = node.send(2.0)
    told = node.answer(number, 2.1, verdict=Verdict.GONE)
    assert told == [
        Withdraw("x", 1, "this node was declared dead"),
        Withdraw("y", 2, "this node was declared dead"),
        Rejoin(),
    ]
    assert node.lease.trust.until == -math.inf
    assert node.beat(3.0) == []
    assert node.win(3, 3.1) == []
    assert node.lease.until == -math.inf


def test_a_database_that_was_put_back_in_time_is_noticed(node):
    node.beat(2.0)
    number = node.send(4.0)
    assert PutBack() in node.answer(number, 4.1, was=1)
    assert PutBack() not in node.beat(6.0)


# Sessions


def test_a_session_bounds_belief_in_terms_but_not_the_lease(node):
    node.step(SessionChecked(N1.nonce, 0.5), 0.6)
    node.beat(0.6, advert=N1)
    node.win(1, 0.7)
    assert node.lease.until == 0.6 + D
    assert node.lease.terms_until == 0.5 + N1.grace
    node.step(SessionChecked(N1.nonce, 1.5), 1.6)
    assert node.leads(3.4) == 1
    assert node.step(Tick(), 3.5) == [Withdraw("x", 1, "its session could not be checked in time")]


def test_checks_that_arrive_in_the_wrong_order_never_shorten_belief(node):
    node.step(SessionChecked(N1.nonce, 1.0), 1.1)
    node.step(SessionChecked(N1.nonce, 0.5), 1.2)
    assert node.lease.checked[N1.nonce] == 1.0


def test_a_nonce_that_was_never_checked_ends_belief(node):
    node.win(1, 0.1)
    node.send(0.5, N1)
    assert node.leads(0.6) is None


def test_a_row_that_advertises_nothing_is_bounded_by_the_lease_alone(node):
    node.step(SessionChecked(N1.nonce, 0.5), 0.6)
    node.beat(0.6, advert=N1)
    node.beat(1.0)
    assert node.lease.terms_until == 1.0 + D


# Open, in hand, draining, releasing


def test_a_refused_attempt_leaves_nothing_in_hand(node):
    assert node.win(None, 0.1) == []
    assert node.phase() is None


def test_a_term_that_arrives_after_trust_is_abandoned_and_released_by_a_later_beat(node):
    node.step(AcquireSent("x"), 7.0)
    assert node.step(AcquireAnswered("x", 1, 5), 8.5) == []
    assert node.phase() is None
    assert node.beat(9.0, mine(5)) == [Release("x", 5)]


def test_an_abandoned_attempt_is_never_acted_on(node):
    node.step(AcquireSent("x"), 0.1)
    node.step(AcquireFailed("x", 1), 2.1)
    assert node.step(AcquireAnswered("x", 1, 5), 2.2) == []
    assert node.beat(3.0, mine(5)) == [Release("x", 5)]


def test_a_failure_of_an_older_attempt_does_not_touch_a_newer_one(node):
    node.step(AcquireSent("x"), 0.1)
    node.step(AcquireFailed("x", 1), 0.2)
    node.step(AcquireSent("x"), 0.3)
    node.step(AcquireFailed("x", 1), 0.4)
    node.step(AcquireAnswered("x", 1, 4), 0.4)
    assert node.phase() is Phase.OPEN
    assert node.step(AcquireAnswered("x", 2, 5), 0.5) == [Announce("x", 5, 0)]


def test_stepping_down_goes_belief_then_work_then_database(node):
    node.win(1, 0.1)
    assert node.step(Resign("x", 1, "resigned"), 1.0) == [Withdraw("x", 1, "resigned")]
    assert node.leads(1.0) is None
    assert node.beat(2.0, mine(1)) == [], "the work has not stopped yet: the database keeps the term"
    assert node.step(Drained("x", 1), 3.0) == [Release("x", 1)]
    assert node.beat(4.0, mine(1)) == [Release("x", 1)], "it is still shown: once more"
    node.step(ReleaseAcked("x", 1), 4.1)
    assert node.phase() is None


def test_words_about_another_term_change_nothing(node):
    node.win(2, 0.1)
    for event in (Resign("x", 1, "late"), Drained("x", 2), Drained("x", 1), ReleaseAcked("x", 2), Resign("y", 2, "")):
        assert node.step(event, 1.0) == []
    assert node.leads(1.0) == 2


def test_a_release_that_is_no_longer_shown_is_done(node):
    node.win(1, 0.1)
    node.step(Resign("x", 1, "resigned"), 1.0)
    node.step(Drained("x", 1), 1.1)
    assert node.beat(2.0) == []
    assert node.phase() is None


def test_a_term_in_hand_that_is_not_shown_is_lost_and_not_released(node):
    node.win(1, 0.1)
    assert node.beat(2.0, theirs(2)) == [Withdraw("x", 1, "the database no longer gives it to this node")]
    assert node.step(Drained("x", 1), 2.1) == []
    assert node.phase() is None


def test_a_term_that_is_draining_and_no_longer_ours_is_not_released(node):
    node.win(1, 0.1)
    node.step(Resign("x", 1, "resigned"), 1.0)
    assert node.beat(2.0) == []
    assert node.step(Drained("x", 1), 2.1) == []


def test_who_is_asked_resigns_that_term_once(node):
    node.win(1, 0.1)
    assert node.beat(2.0, mine(1, asked=True)) == [Withdraw("x", 1, "asked to resign")]
    assert node.beat(3.0, mine(1, asked=True)) == []


# Interleavings that broke earlier designs


def test_1_a_beat_that_shows_a_grant_whose_answer_is_on_its_way_does_not_release_it(node):
    node.step(AcquireSent("x"), 1.0)
    assert node.beat(2.0, mine(8)) == [], "open: neither acted on nor released"
    assert node.step(AcquireAnswered("x", 1, 8), 2.5) == [Announce("x", 8, 0)]
    assert node.beat(3.0, mine(8)) == []


def test_2_a_beat_older_than_the_answer_does_not_cancel_what_was_just_won(node):
    number = node.send(1.0)  # its snapshot may be from before the grant
    node.win(8, 1.1)
    assert node.answer(number, 1.9) == []
    assert node.leads(2.0) == 8
    assert node.beat(3.0) == [Withdraw("x", 8, "the database no longer gives it to this node")]


def test_4_i_pings_of_a_session_that_the_row_does_not_advertise_prolong_nothing(node):
    node.step(SessionChecked(1, 0.0), 0.0)
    node.beat(0.1, advert=N1)
    node.win(1, 0.2)
    node.step(SessionChecked(2, 1.0), 1.0)  # reconnected; the beat that says so is slow
    slow = node.send(1.0, N2)
    node.step(SessionChecked(2, 1.9), 1.9)
    assert node.lease.terms_until == 0.0 + N1.grace
    node.answer(slow, 1.95)
    assert node.lease.terms_until == 1.9 + N2.grace, "acknowledged in time: n1 cannot stand in the row any more"


def test_4_ii_an_unanswered_beat_may_have_advertised(node):
    node.win(1, 0.1)
    node.step(SessionChecked(1, 1.0), 1.0)
    number = node.send(1.0, N1)
    node.step(BeatFailed(number), 2.0)  # executed or not: nobody knows, and its session is gone
    assert node.lease.terms_until == 1.0 + N1.grace
    node.beat(2.5)  # acknowledged without an advert: the field is clear
    assert node.lease.terms_until == 2.5 + D


def test_4_iii_a_beat_that_is_executed_late_changes_nothing_after_a_newer_one(node):
    node.step(SessionChecked(1, 1.0), 1.0)
    node.step(BeatFailed(node.send(1.0, N1)), 2.0)
    node.beat(2.1)
    assert 1 not in {advert.nonce for advert in node.lease.adverts.values() if advert}, "seq < number keeps it out"


def test_a_grant_that_arrives_after_its_session_ran_out_in_between_is_abandoned(node):
    """Others may have taken over 1.25 grace after the lock was free, and before the new session was advertised."""
    node.step(SessionChecked(1, 0.0), 0.0)
    node.beat(0.0, advert=N1)
    node.step(AcquireSent("x"), 0.1)  # granted as term 8 at once, but the answer takes its time
    node.step(SessionChecked(2, 3.0), 3.0)  # n1 died at 0.1; the other took term 9 at 2.6
    node.beat(3.0, advert=N2)
    assert node.lease.terms_until == 3.0 + N2.grace
    assert node.step(AcquireAnswered("x", 1, 8), 3.5) == []
    assert node.leads(3.5) is None


def test_6_a_release_names_its_term_so_that_a_late_one_hits_nothing_newer(node):
    node.step(AcquireSent("x"), 0.1)
    node.step(AcquireFailed("x", 1), 0.5)
    assert node.beat(1.0, mine(5)) == [Release("x", 5)]
    node.win(6, 1.5)
    assert node.step(ReleaseAcked("x", 5), 2.0) == []
    assert node.leads(2.1) == 6


def test_7_nothing_that_was_sent_under_an_old_identity_is_acted_on():
    old = Node()
    old.beat(0.0)
    old.step(AcquireSent("x"), 0.1)
    old.answer(old.send(1.0), 1.1, verdict=Verdict.GONE)
    assert old.step(AcquireAnswered("x", 1, 8), 1.2) == []
    assert old.phase() is None


# The watch


def peer(count, *, node=OTHER, ttl=TTL, where="row"):
    return Peer(node, (where, count), ttl)


def watched(*answers):
    """The watch of the one other node after these answers: (time, what it showed)."""
    watches = {}
    for at, shown in answers:
        watches = watch.observe(watches, [shown] if shown else [], at)
    return watches.get(OTHER)


def test_silence_counts_from_the_answer_that_first_showed_the_pulse():
    steady = [(float(t), peer(5)) for t in range(0, 11, 2)]
    assert not watched(*steady[:-1]).over
    assert watched(*steady).over
    assert watched(*steady).unchanged == TTL


def test_every_sign_of_life_starts_the_watch_anew():
    assert watched((0, peer(5)), (2, peer(5)), (4, peer(6))).unchanged == 0
    assert watched((0, peer(5)), (2, peer(5)), (4, peer(4))).unchanged == 0, "also one that goes backwards"
    assert watched((0, peer(5)), (2, peer(5)), (4, peer(5, where="file"))).unchanged == 0, "also one from elsewhere"


def test_12_an_interval_counts_for_at_most_a_quarter_of_the_ttl():
    assert watched((0, peer(5)), (100, peer(5))).unchanged == TTL / 4, "the watcher was frozen, not the watched"
    outage = [(0, peer(5)), (60, peer(5)), (62, peer(6))]
    assert not watched(*outage).over


def test_12_a_lost_answer_resets_nothing():
    assert watched((0, peer(5)), (2, peer(5)), (4.05, peer(5))).unchanged == pytest.approx(4.05)


def test_nothing_counts_after_the_last_answer_and_clocks_that_go_back_count_nothing():
    assert watched((0, peer(5))).unchanged == 0
    assert watched((10, peer(5)), (9, peer(5))).unchanged == 0


def test_what_cannot_be_observed_does_not_count():
    unseen = Peer(OTHER, None, TTL)
    assert watched((0, unseen)) is None
    seen = watched((0, peer(5)), (2, peer(5)), (4, unseen), (6, peer(5)), (8, peer(5)))
    assert seen.unchanged == 4.0, "neither the interval before nor the one after"


def test_a_node_that_is_not_shown_is_watched_no_longer():
    assert watched((0, peer(5)), (2, None)) is None
    assert watched((0, peer(5)), (2, peer(5)), (4, None), (6, peer(5))).unchanged == 0


def test_each_row_is_judged_by_its_own_ttl():
    assert watched((0, peer(5, ttl=4)), (1, peer(5, ttl=4)), (2, peer(5, ttl=4)), (3, peer(5, ttl=4))).over is False
    assert watched(*[(t, peer(5, ttl=4)) for t in range(5)]).over is True


def test_watchers_have_different_ranks_that_begin_after_the_dead():
    alive = ["b", "d", "f", "h"]
    assert [watch.rank(alive, "c", node) for node in ("d", "f", "h", "b")] == [0, 1, 2, 3]
    assert [watch.rank(alive, "z", node) for node in alive] == [0, 1, 2, 3]
    assert watch.rank(["a", "b"], "a", "b") == 0


def vacancy(seq=1, nonce=7, term=3):
    return Vacancy(term, OTHER, seq, Advert(nonce, 2.0))


def test_a_free_session_lock_is_acted_on_after_its_grace_and_a_quarter():
    suspicions = watch.suspect({}, {"x": vacancy()}, 10.0)
    assert suspicions["x"].ripe_at == 12.5
    assert watch.suspect(suspicions, {"x": vacancy()}, 11.0)["x"].ripe_at == 12.5, "seen again: the wait goes on"


@pytest.mark.parametrize("change", [{"seq": 2}, {"nonce": 8}, {"term": 4}])
def test_any_sign_of_life_starts_the_wait_anew(change):
    suspicions = watch.suspect({}, {"x": vacancy()}, 10.0)
    assert watch.suspect(suspicions, {"x": vacancy(**change)}, 11.0)["x"].ripe_at == 13.5


def test_a_lock_that_is_held_again_is_not_suspected():
    suspicions = watch.suspect({}, {"x": vacancy()}, 10.0)
    assert watch.suspect(suspicions, {}, 11.0) == {}


def test_what_is_vacant():
    held, dead = theirs(1), replace(theirs(2, "y"), holder_alive=False)
    released = replace(theirs(3, "z"), held=False)
    assert watch.vacated([held, dead, released]) == ["y", "z"]


def test_a_hand_says_from_which_beat_on_it_may_be_spoken_of(node):
    node.send(1.0)
    node.win(1, 1.1)
    assert node.lease.hands["x"] == Hand(Phase.HELD, 1, 1, after_beat=2)


# Whatever happens, in whichever order

NAMES = ("x", "y")
ADVERTS = (None, N1, N2)
times = st.floats(0, 3, allow_nan=False).map(lambda seconds: round(seconds, 3))
terms = st.integers(1, 4)
names = st.sampled_from(NAMES)
rows = st.lists(
    st.builds(
        lambda name, term, holder, held, asked: ElectionRow(name, term, holder, held, asked, holder_alive=True),
        names,
        terms,
        st.sampled_from([ME, OTHER]),
        st.booleans(),
        st.booleans(),
    ),
    max_size=2,
    unique_by=lambda row: row.name,
)
events = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(ADVERTS)),
    st.tuples(st.just("answer"), st.integers(0, 2), st.sampled_from([*[Verdict.RENEWED] * 8, *Verdict]), rows),
    st.tuples(st.just("fail"), st.integers(0, 2)),
    st.tuples(st.just("check"), st.sampled_from([1, 2])),
    st.tuples(st.just("acquire"), names),
    st.tuples(st.just("granted"), names, st.integers(0, 1), st.none() | terms),
    st.tuples(st.just("lost"), names, st.integers(0, 1)),
    st.tuples(st.just("resign"), names, terms),
    st.tuples(st.just("drained"), names, terms),
    st.tuples(st.just("released"), names, terms),
    st.tuples(st.just("tick")),
)


class Anything(Node):
    """Plays any events, also senseless ones, and looks at every rule after each."""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.ended = set()  # (name, term, announcement): belief that was there and is no more
        self.announced = dict.fromkeys(NAMES, 0)
        self.believed = {}
        self.good = {1: -math.inf, 2: -math.inf}

    def play(self, what, *how):
        before = self.lease
        match what:
            case "send":
                self.check(self.step(BeatSent(before.sent + 1, self.now, how[0]), self.now), before)
            case "answer":
                answer = BeatAnswer(how[1], was_seq=before.acked, elections=tuple(how[2]))
                self.check(self.step(BeatAnswered(before.sent - how[0], answer), self.now), before)
            case "fail":
                self.check(self.step(BeatFailed(before.sent - how[0]), self.now), before)
            case "check":
                self.good[how[0]] = self.now
                self.check(self.step(SessionChecked(how[0], self.now), self.now), before)
            case "acquire":
                if how[0] not in before.hands and not before.gone and self.now < before.terms_until:
                    self.check(self.step(AcquireSent(how[0]), self.now), before)
            case "granted":
                self.check(self.step(AcquireAnswered(how[0], before.attempts - how[1], how[2]), self.now), before)
            case "lost":
                self.check(self.step(AcquireFailed(how[0], before.attempts - how[1]), self.now), before)
            case "resign":
                self.check(self.step(Resign(*how, "resigned"), self.now), before)
            case "drained":
                self.check(self.step(Drained(*how), self.now), before)
            case "released":
                self.check(self.step(ReleaseAcked(*how), self.now), before)
            case _:
                self.check(self.step(Tick(), self.now), before)

    def check(self, actions, before):
        after = self.lease
        assert after.stretch >= before.stretch
        assert after.gone >= before.gone
        assert after.until >= before.until or after.gone, "trust that was won is never taken back"
        assert after.until <= self.now + D, "and never reaches further than a beat sent now"
        for name in NAMES:
            self.check_election(name, actions, before)
        assert (Rejoin() in actions) == (after.gone and not before.gone)

    def check_election(self, name, actions, before):
        mine = [action for action in actions if getattr(action, "name", None) == name]
        withdrawn = [action.term for action in mine if isinstance(action, Withdraw)]
        announced = [action for action in mine if isinstance(action, Announce)]
        believed, was = self.leads(self.now, name), machine.believes(before, name, self.now)
        held = before.hands.get(name)
        assert len(withdrawn) <= 1
        assert len(announced) <= 1
        if withdrawn:
            assert held is not None
            assert (held.phase, held.term) == (Phase.HELD, withdrawn[0]), "only what was in hand is withdrawn"
            assert believed is None or announced
        if announced:
            assert before.hands[name].phase is Phase.OPEN
            assert self.now < self.lease.terms_until
            assert believed == announced[0].term
            self.announced[name] += 1
        for action in mine:
            if isinstance(action, Release):
                assert believed != action.term, "belief is off before the database is told"
        if believed is not None and not announced:
            assert was == believed, "belief begins with an announcement and with nothing else"
        if held is not None and held.phase is Phase.HELD and self.phase(name) is not Phase.HELD:
            assert withdrawn, "whoever believed is told"
        now = (name, believed, self.announced[name])
        last = self.believed.get(name)
        if last is not None and last != now:
            self.ended.add(last)
        assert now not in self.ended, "a term that was over is believed again"
        self.believed[name] = now if believed is not None else None

    def pass_time(self, seconds):
        self.now += seconds
        for name in NAMES:
            last = self.believed.get(name)
            if last is not None and self.leads(self.now, name) is None:
                self.ended.add(last)
                self.believed[name] = None
        for advert in self.lease.adverts.values():
            if advert is not None:
                assert self.lease.terms_until <= self.good[advert.nonce] + advert.grace


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(times, events), max_size=60))
def test_no_order_of_events_breaks_a_rule(schedule):
    node = Anything()
    node.play("send", None)
    node.play("answer", 0, Verdict.RENEWED, [])
    for seconds, event in schedule:
        node.pass_time(seconds)
        node.play(*event)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(times, st.integers(0, 2)), min_size=1, max_size=40), st.floats(0.5, 60, allow_nan=False))
def test_a_watch_is_never_over_before_its_ttl_was_seen_to_pass(answers, ttl):
    watches, now, since, count = {}, 0.0, 0.0, None
    for seconds, shown in answers:
        now += seconds
        if shown != count:
            since, count = now, shown
        watches = watch.observe(watches, [peer(shown, ttl=ttl)], now)
        seen = watches[OTHER]
        assert seen.unchanged <= now - since + 1e-9
        assert not seen.over or now - since >= ttl - 1e-9


@given(st.sets(st.text("abcdef", min_size=1, max_size=3), min_size=2, max_size=12), st.data())
def test_ranks_are_all_different(nodes, data):
    dead = data.draw(st.sampled_from(sorted(nodes)))
    alive = sorted(nodes - {dead})
    assert sorted(watch.rank(alive, dead, node) for node in alive) == list(range(len(alive)))
