"""Freezes at the one place where they hurt, which no random schedule finds: stores are driven by hand, one statement at
a time."""

import time
import uuid

import pytest

from tenure.core.cluster import Beat, BeatVerdict, NodeCard
from tenure.stores import store_for
from tenure.stores.host_lock import LockFile
from tenure.util.clock import boottime

TTL = 10.0


class Hands:
    """Two nodes on one store, each moved by the test."""

    def __init__(self, url, folder):
        self.store = store_for(url)
        self.store.prepare()
        self.directory = self.store.evidence_directory if self.store.pulse_in_file else folder
        self.a, self.b = self.join("a"), self.join("b")

    def join(self, label):
        session = self.store.session(label, 2.0)
        node = str(uuid.uuid4())
        lock = LockFile(self.directory, node)
        session.use_lock_file(lock)
        session.join(NodeCard(node, label, TTL, lock.card()))
        return node, session, lock

    def beat(self, who, number, deadline=None):
        node, session, _ = who
        now = boottime()
        return session.beat(Beat(node, number, now, now + TTL if deadline is None else deadline, None, ("x",)))

    def seen(self, who, of):
        """What this node sees of the other."""
        number = getattr(self, "_looks", 1) + 1
        self._looks = number
        return next(peer.pulse for peer in self.beat(who, number).peers if peer.id == of[0])

    def close(self):
        for _, session, lock in (self.a, self.b):
            session.close()
            lock.remove()


@pytest.fixture(params=["sqlite", "postgres"])
def hands(request, tmp_path):
    url = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "database")
    hands = Hands(url, tmp_path)
    for who in (hands.a, hands.b):
        assert hands.beat(who, 1, deadline=0.0).verdict is BeatVerdict.RENEWED
    yield hands
    hands.close()


def test_a_beat_between_the_last_look_and_the_declaration_saves_its_node(hands):
    stale = hands.seen(hands.b, hands.a)
    assert hands.beat(hands.a, 2).verdict is BeatVerdict.RENEWED
    assert hands.b[1].declare(hands.a[0], stale, "silent") is False
    assert hands.beat(hands.a, 3).verdict is BeatVerdict.RENEWED
    assert hands.b[1].declare(hands.a[0], hands.seen(hands.b, hands.a), "silent") is True
    assert hands.beat(hands.a, 4).verdict is BeatVerdict.GONE


def test_a_node_that_froze_before_its_pulse_finds_itself_dead(sqlite_url, tmp_path, monkeypatch):
    hands = Hands(sqlite_url, tmp_path)
    for who in (hands.a, hands.b):
        hands.beat(who, 1, deadline=0.0)
    pulse = hands.seen(hands.b, hands.a)
    write = LockFile.pulse
    frozen = []

    def frozen_before(self, number):
        if self is hands.a[2] and not frozen:  # it has read that it is alive; now a ttl passes
            frozen.append(number)
            time.sleep(0.06)
            assert hands.b[1].declare(hands.a[0], pulse, "silent") is True
        write(self, number)

    monkeypatch.setattr(LockFile, "pulse", frozen_before)
    assert hands.beat(hands.a, 2, deadline=boottime() + 0.05).verdict is BeatVerdict.GONE
    assert frozen == [2]
    hands.close()


def test_a_node_that_nobody_declared_may_come_back_through_the_database(hands):
    assert hands.beat(hands.a, 2, deadline=boottime() - 1).verdict is BeatVerdict.RENEWED
    assert hands.beat(hands.a, 2, deadline=boottime() - 1).verdict is BeatVerdict.LATE, "a count is used once"
