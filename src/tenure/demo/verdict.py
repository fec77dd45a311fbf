"""Compares the notes of the processes and finds broken promises.

A period of belief reaches from the end of its first true answer to the beginning of its last, so a reported overlap
really was one. A body that ended twice for one due time is a duplicate, unless one of the two ran in a process that had
been frozen: the ledger refused that ending.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Note:
    """What one process believed: true if the kind is leads or sample, false if it is lost."""

    label: str
    kind: str
    term: int
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class BeliefPeriod:
    """Certain belief of one process in one term."""

    label: str
    term: int
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the notes prove about the election."""

    stretches: list[BeliefPeriod]
    samples: int
    overlaps: list[str]

    def gaps(self) -> list[tuple[int, float]]:
        """The seconds without a leader after each term."""
        return [(a.term, max(b.begin - a.end, 0.0)) for a, b in itertools.pairwise(self.stretches)]


def judge(notes: Iterable[Note]) -> Judgement:
    """Compare what the processes believed."""
    true = [note for note in notes if note.kind in {"leads", "sample"}]
    stretches = []
    for (label, term), group in itertools.groupby(
        sorted(true, key=lambda note: (note.label, note.term)), key=lambda note: (note.label, note.term)
    ):
        answers = list(group)
        begin, end = min(note.after for note in answers), max(note.before for note in answers)
        stretches.append(BeliefPeriod(label, term, begin, max(begin, end)))
    stretches.sort(key=lambda stretch: stretch.begin)
    overlaps = []
    for a, b in itertools.combinations(stretches, 2):
        shared = min(a.end, b.end) - max(a.begin, b.begin)
        if a.label != b.label and (shared > 0 or a.term == b.term):
            overlaps.append(
                f"{a.label} (term {a.term}) and {b.label} (term {b.term}) both led, for {max(shared, 0):.6f} s"
            )
        elif b.term <= a.term:
            overlaps.append(f"{b.label} led in term {b.term} after {a.label} in term {a.term}: terms must grow")
    return Judgement(stretches, len(true), overlaps)


@dataclass(frozen=True, slots=True)
class Body:
    """One call of a body. `ended` if it returned, but not just before a kill, when its ending may be unreported."""

    label: str
    job: str
    key: str
    attempt: int
    began: float
    ended: bool
    frozen: bool = False
    """Its process was frozen at some time."""


@dataclass(frozen=True, slots=True)
class Bodies:
    """What the notes prove about the runs."""

    called: int
    cut_short: tuple[Body, ...]
    """Bodies that a kill ended, or that ended just before one."""
    repeated: int
    """Bodies that were called again, because the previous attempt was cut short or declared lost."""
    duplicates: list[str]


def judge_bodies(bodies: Sequence[Body], invoices: Sequence[str]) -> Bodies:
    """Compare what the processes ran with the effects in the database."""
    by_key: dict[tuple[str, str], list[Body]] = defaultdict(list)
    for body in bodies:
        by_key[body.job, body.key].append(body)
    duplicates = []
    for (job, key), calls in sorted(by_key.items()):
        done = [call for call in calls if call.ended and not call.frozen]
        if len(done) > 1:
            duplicates.append(f"{job} {key} was run by {' and '.join(call.label for call in done)}")
    for key, copies in sorted((key, invoices.count(key)) for key in set(invoices)):
        if copies > 1:
            duplicates.append(f"the effect of invoice {key} is in the database {copies} times")
    return Bodies(
        called=len(bodies),
        cut_short=tuple(body for body in bodies if not body.ended),
        repeated=sum(len(calls) - 1 for calls in by_key.values()),
        duplicates=duplicates,
    )
