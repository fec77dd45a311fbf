"""The rules of the watch: who may be taken for dead, and when. Pure functions, no clock, no database."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leases import ME, OTHER, TTL, theirs
from tenure.core import liveness
from tenure.core.cluster import Advert, Peer, Vacancy

times = st.floats(0, 3, allow_nan=False).map(lambda seconds: round(seconds, 3))


def peer(count, *, node=OTHER, ttl=TTL, where="row"):
    return Peer(node, (where, count), ttl)


def watched(*answers):
    """The watch of the one other node after these answers: (time, what it showed)."""
    watches = {}
    for at, shown in answers:
        watches = liveness.observe(watches, [shown] if shown else [], at)
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
    assert [liveness.rank(alive, "c", node) for node in ("d", "f", "h", "b")] == [0, 1, 2, 3]
    assert [liveness.rank(alive, "z", node) for node in alive] == [0, 1, 2, 3]
    assert liveness.rank(["a", "b"], "a", "b") == 0


def test_the_silent_are_declared_dead_one_watcher_after_the_other():
    over, soon = watched(*[(t, peer(5, ttl=4)) for t in range(5)]), watched((0, peer(5)))
    alive = ["b", "d", OTHER, "x"]
    at = {me: liveness.silent({OTHER: over, "x": soon}, alive, me, 2.0, 100.0)[OTHER].at for me in ("b", "d", "x")}
    assert sorted(at.values()) == pytest.approx([100.0, 100.02, 100.04])
    assert liveness.silent({"x": soon}, alive, "b", 2.0, 100.0) == {}
    assert liveness.turn([f"n{i:03}" for i in range(500)], OTHER, "n250", 2.0) <= 2.0, "never longer than a beat"


def test_a_sign_of_life_in_the_meantime_saves():
    over = watched(*[(t, peer(5, ttl=4)) for t in range(5)])
    declaration = liveness.silent({OTHER: over}, [], ME, 2.0, 100.0)[OTHER]
    assert declaration.stands(over)
    assert not declaration.stands(None), "it is not shown any more: it has left, or is dead already"
    assert not declaration.stands(watched((0, peer(6, ttl=4))))
    assert not declaration.stands(watched(*[(t, peer(6, ttl=4)) for t in range(5)])), "another silence"
    assert liveness.Declaration(100.0, None, "its host lock is free").stands(None), "proof needs no silence"


def vacancy(seq=1, nonce=7, term=3):
    return Vacancy(term, OTHER, seq, Advert(nonce, 2.0))


def test_a_free_session_lock_is_acted_on_after_its_grace_and_a_quarter():
    suspicions = liveness.suspect({}, {"x": vacancy()}, 10.0)
    assert suspicions["x"].ripe_at == 12.5
    assert liveness.suspect(suspicions, {"x": vacancy()}, 11.0)["x"].ripe_at == 12.5, "seen again: the wait goes on"


@pytest.mark.parametrize("change", [{"seq": 2}, {"nonce": 8}, {"term": 4}])
def test_any_sign_of_life_starts_the_wait_anew(change):
    suspicions = liveness.suspect({}, {"x": vacancy()}, 10.0)
    assert liveness.suspect(suspicions, {"x": vacancy(**change)}, 11.0)["x"].ripe_at == 13.5


def test_a_lock_that_is_held_again_is_not_suspected():
    suspicions = liveness.suspect({}, {"x": vacancy()}, 10.0)
    assert liveness.suspect(suspicions, {}, 11.0) == {}


def test_what_is_vacant():
    held, dead = theirs(1), replace(theirs(2, "y"), holder_alive=False)
    released = replace(theirs(3, "z"), held=False)
    assert [row.name for row in (held, dead, released) if row.vacant] == ["y", "z"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(times, st.integers(0, 2)), min_size=1, max_size=40), st.floats(0.5, 60, allow_nan=False))
def test_a_watch_is_never_over_before_its_ttl_was_seen_to_pass(answers, ttl):
    watches, now, since, count = {}, 0.0, 0.0, None
    for seconds, shown in answers:
        now += seconds
        if shown != count:
            since, count = now, shown
        watches = liveness.observe(watches, [peer(shown, ttl=ttl)], now)
        seen = watches[OTHER]
        assert seen.unchanged <= now - since + 1e-9
        assert not seen.over or now - since >= ttl - 1e-9


@given(st.sets(st.text("abcdef", min_size=1, max_size=3), min_size=2, max_size=12), st.data())
def test_ranks_are_all_different(nodes, data):
    dead = data.draw(st.sampled_from(sorted(nodes)))
    alive = sorted(nodes - {dead})
    assert sorted(liveness.rank(alive, dead, node) for node in alive) == list(range(len(alive)))
