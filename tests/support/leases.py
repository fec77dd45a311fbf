"""A lease that tests step along by hand, and what the rows of elections may say to it."""

# ruff: noqa: ANN001, ANN002, ANN003, ANN201, ANN204 - untyped, as the tests that use it

from tenure.core import lease as machine
from tenure.core.cluster import Advert, BeatAnswer, BeatVerdict, Cadence, ElectionRow
from tenure.core.lease import AcquireAnswered, AcquireSent, BeatAnswered, BeatSent, Lease

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

    def answer(self, number, at, *rows, verdict=BeatVerdict.RENEWED, was=None):
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
        hand = self.lease.holdings.get(name)
        return None if hand is None else hand.phase


def mine(term, name="x", **more):
    return ElectionRow(name, term, ME, held=True, holder_alive=True, **more)


def theirs(term, name="x"):
    return ElectionRow(name, term, OTHER, held=True, holder_alive=True)
