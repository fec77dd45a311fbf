"""Whatever happens to a lease, in whichever order, breaks none of its rules."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from leases import ME, N1, N2, OTHER, D, Node
from tenure.core import lease as machine
from tenure.core.cluster import BeatAnswer, BeatVerdict, ElectionRow
from tenure.core.lease import (
    AcquireAnswered,
    AcquireFailed,
    AcquireSent,
    Announce,
    BeatAnswered,
    BeatFailed,
    BeatSent,
    Drained,
    Phase,
    Rejoin,
    Release,
    ReleaseAcked,
    Resign,
    SessionChecked,
    Tick,
    Withdraw,
)

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
    st.tuples(st.just("answer"), st.integers(0, 2), st.sampled_from([*[BeatVerdict.RENEWED] * 8, *BeatVerdict]), rows),
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
                if how[0] not in before.holdings and not before.gone and self.now < before.terms_until:
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
        assert after.trust_period >= before.trust_period
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
        held = before.holdings.get(name)
        assert len(withdrawn) <= 1
        assert len(announced) <= 1
        if withdrawn:
            assert held is not None
            assert (held.phase, held.term) == (Phase.HELD, withdrawn[0]), "only what was in hand is withdrawn"
            assert believed is None or announced
        if announced:
            assert before.holdings[name].phase is Phase.OPEN
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
    node.play("answer", 0, BeatVerdict.RENEWED, [])
    for seconds, event in schedule:
        node.pass_time(seconds)
        node.play(*event)
