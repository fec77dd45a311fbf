"""The rules of the lease, one by one: a pure function, no clock, no database.

Each test is named after the rule it holds. The schedules under "interleavings" are those that broke earlier versions of
the design.
"""

import math

import pytest

from leases import N1, N2, D, Node, mine, theirs
from tenure.core.cluster import BeatVerdict
from tenure.core.lease import (
    AcquireAnswered,
    AcquireFailed,
    AcquireSent,
    Announce,
    BeatFailed,
    DatabaseRewound,
    Drained,
    Holding,
    Phase,
    Rejoin,
    Release,
    ReleaseAcked,
    Resign,
    SessionChecked,
    Tick,
    Withdraw,
)


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
    assert node.answer(number, 2.1, verdict=BeatVerdict.LATE) == []
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


def test_after_a_lapse_a_new_term_may_be_won_in_a_new_period(node):
    node.win(1, 0.1)
    before = node.lease.trust_period
    node.beat(8.5, mine(1))
    node.step(Drained("x", 1), 8.6)
    node.step(ReleaseAcked("x", 1), 8.7)
    assert node.win(2, 8.8) == [Announce("x", 2, before + 1)]
    assert node.leads(8.9) == 2


def test_dead_is_final_and_everything_is_lost_at_once(node):
    node.win(1, 0.1)
    node.win(2, 0.1, "y")
    number = node.send(2.0)
    told = node.answer(number, 2.1, verdict=BeatVerdict.GONE)
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
    assert DatabaseRewound() in node.answer(number, 4.1, was=1)
    assert DatabaseRewound() not in node.beat(6.0)


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
    old.answer(old.send(1.0), 1.1, verdict=BeatVerdict.GONE)
    assert old.step(AcquireAnswered("x", 1, 8), 1.2) == []
    assert old.phase() is None


def test_a_hand_says_from_which_beat_on_it_may_be_spoken_of(node):
    node.send(1.0)
    node.win(1, 1.1)
    assert node.lease.holdings["x"] == Holding(Phase.HELD, 1, 1, after_beat=2)
