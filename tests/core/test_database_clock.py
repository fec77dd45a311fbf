"""What a node takes for the ledger's time: the last good answer, carried on; a jump is doubted before it is
believed."""

from tenure.core.database_clock import DatabaseClock

NOON = 1_800_000_000.0


def fed(offset=NOON, at=0.0, slack=0.001):
    clock = DatabaseClock()
    clock.observe(at + offset, at - slack, at + slack)
    return clock


def test_it_knows_nothing_before_the_first_answer():
    assert not DatabaseClock().known
    assert fed().known


def test_time_is_carried_on_by_the_steady_clock():
    clock = fed()
    assert clock.now(12.5) == NOON + 12.5
    assert clock.at(NOON + 12.5) == 12.5


def test_a_better_answer_replaces_a_worse_one_and_not_the_other_way_round():
    clock = fed(slack=0.5)
    clock.observe(NOON + 10.2, 9.999, 10.001)
    assert abs(clock.now(10.0) - (NOON + 10.2)) < 1e-6
    clock.observe(NOON + 11.0, 10.0, 12.0)  # took two seconds: it says nothing that contradicts
    assert abs(clock.now(11.0) - (NOON + 11.2)) < 1e-6


def test_a_slow_answer_counts_where_it_contradicts():
    clock = fed()
    clock.observe(NOON + 40.0, 9.0, 11.0)
    assert abs(clock.now(10.0) - (NOON + 40.0)) < 1e-6


def test_drift_is_followed():
    clock = fed()
    for second in range(1, 100):
        clock.observe(NOON + second * 1.01, second - 0.001, second + 0.001)
    assert abs(clock.now(99.0) - (NOON + 99.99)) < 0.01


def test_a_jump_begins_a_doubt_once_and_the_old_time_goes_on():
    clock = fed()
    year = 365 * 86400.0
    assert clock.observe(NOON + year + 100, 99.999, 100.001)
    assert clock.doubts
    assert not clock.observe(NOON + year + 101, 100.999, 101.001)
    assert clock.now(101.0) == NOON + 101.0


def test_a_clock_that_comes_back_is_believed_at_once():
    clock = fed()
    clock.observe(NOON + 86400, 99.999, 100.001)
    clock.observe(NOON + 110, 109.999, 110.001)
    assert not clock.doubts
    assert abs(clock.now(110.0) - (NOON + 110.0)) < 1e-6


def test_a_jump_that_lasts_is_believed_after_as_long_as_the_old_time_was_but_not_longer_than_five_minutes():
    clock = fed()
    clock.observe(NOON + 86400 + 30, 29.999, 30.001)
    clock.observe(NOON + 86400 + 59, 58.999, 59.001)
    assert clock.doubts
    clock.observe(NOON + 86400 + 61, 60.999, 61.001)
    assert not clock.doubts
    assert abs(clock.now(61.0) - (NOON + 86400 + 61.0)) < 1e-6

    old = fed()
    old.observe(NOON + 86400 + 10_000, 9_999.999, 10_000.001)
    old.observe(NOON + 86400 + 10_301, 10_300.999, 10_301.001)
    assert not old.doubts


def test_it_knows_since_when_the_present_time_is_believed():
    clock = fed(at=5.0)
    clock.observe(NOON + 86400 + 30, 29.999, 30.001)
    clock.observe(NOON + 40, 39.999, 40.001)
    assert clock.believed_since == 5.001
    clock.observe(NOON + 86400 + 50, 49.999, 50.001)
    clock.observe(NOON + 86400 + 100, 99.999, 100.001)
    assert clock.believed_since == 100.001


def test_backwards_is_a_jump_too():
    clock = fed()
    assert abs(clock.observe(NOON - 3600 + 100, 99.999, 100.001) + 3600) < 1e-6
    assert clock.now(100.0) == NOON + 100.0


def test_who_began_with_another_clock_than_the_ledgers_takes_a_jump_for_a_return():
    year = 365 * 86400.0
    clock = DatabaseClock()
    clock.observe(NOON + year, 0.0, 0.0, wall=NOON)
    assert clock.suspect_until > 5.0
    assert not clock.observe(NOON + 5.0, 5.0, 5.0)
    assert (clock.now(5.0), clock.doubts) == (NOON + 5.0, False)


def test_after_a_while_it_argues_like_the_others():
    clock = DatabaseClock()
    clock.observe(NOON, 0.0, 0.0, wall=NOON + 7200)
    assert clock.suspect_until < 11.0
    assert clock.observe(NOON + 86400, 11.0, 11.0)
    assert clock.doubts
