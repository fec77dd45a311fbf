"""Who believed what, when: workers write it down, `check` finds every moment that breaks a promise.

Each process appends JSON lines to a file of its own in one directory. `Recorder` does it for workers:

    recorder = Recorder(directory, node="n1")
    while ...:
        recorder.sample("billing", term.number, lambda: term.trusted)

A line has `node`, `election`, `term`, `kind` and the time, either as `from` and `to`, read before and after, or as one
`t` that claims the very moment (for histories written by hand). Kinds:

    believes, sample   belief was asked for and was true, at some moment between `from` and `to`
    disbelieves        it was asked for and was not true
    acts               the node did something that only a leader may do
    effect             something it did under the term was committed

A process can be frozen between any two instructions, so only what is certain counts: a stretch of belief reaches from
the `to` of its first true sample to the `from` of its last. What `check` reports really happened.
"""

import itertools
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def now() -> float:
    """The clock of all histories: one for the whole machine, and the one that `ShiftedClock` never shifts."""
    return time.monotonic()


class Recorder:
    """Writes one process's history. Every line is one unbuffered write: nothing is lost by kill -9."""

    def __init__(self, directory: str | Path, node: str) -> None:
        self.node = node
        self._file = os.open(
            Path(directory) / f"{node}.{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644
        )
        self._believed: set[tuple[str, int]] = set()

    def sample(self, election: str, term: int, believes: Callable[[], object]) -> bool:
        """Ask once whether the node believes in the term, and write it down (disbelief only when it is news)."""
        before = now()
        answer = bool(believes())
        after = now()
        if answer:
            self._believed.add((election, term))
            self._write("sample", election, term, before, after)
        elif (election, term) in self._believed:
            self._believed.discard((election, term))
            self._write("disbelieves", election, term, before, after)
        return answer

    def record(self, kind: str, election: str, term: int, since: float | None = None) -> None:
        """An act or an effect; `since` is `now()` from before it was begun."""
        moment = now()
        self._write(kind, election, term, moment if since is None else since, moment)

    def close(self) -> None:
        os.close(self._file)

    def _write(self, kind: str, election: str, term: int, before: float, after: float) -> None:
        line = {"kind": kind, "node": self.node, "election": election, "term": term, "from": before, "to": after}
        os.write(self._file, json.dumps(line).encode() + b"\n")


@dataclass(frozen=True)
class Entry:
    kind: str
    node: str
    election: str
    term: int
    before: float
    after: float

    @property
    def true(self) -> bool:
        return self.kind in {"believes", "sample"}


@dataclass(frozen=True)
class Stretch:
    """Belief in one term by one node: all the time from `begin` to `end` or, of a single sample, at some moment
    between."""

    node: str
    election: str
    term: int
    begin: float
    end: float
    momentary: bool = False

    def overlap(self, other: "Stretch") -> tuple[float, float] | None:
        """When both certainly believed at once; touching is not overlapping."""
        begin, end = max(self.begin, other.begin), min(self.end, other.end)
        if self.momentary and other.momentary:
            return None
        if self.momentary or other.momentary:
            moment, stretch = (self, other) if self.momentary else (other, self)
            return (begin, end) if stretch.begin < moment.begin and moment.end < stretch.end else None
        return (begin, end) if begin < end else None


@dataclass(frozen=True)
class Overlap:
    first: Stretch
    second: Stretch
    begin: float
    end: float


@dataclass
class Report:
    entries: list[Entry]
    stretches: list[Stretch]
    overlaps: list[Overlap] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)  # seconds without a believer, between one holder and the next

    @property
    def counts(self) -> dict[str, int]:
        kinds = [entry.kind for entry in self.entries]
        return {
            "nodes": len({entry.node for entry in self.entries}),
            "terms": len({(entry.election, entry.term) for entry in self.entries}),
            "stretches": len(self.stretches),
            "samples": kinds.count("sample") + kinds.count("believes"),
            "acts": kinds.count("acts"),
            "effects": kinds.count("effect"),
        }

    @property
    def largest_gap(self) -> float:
        return max(self.gaps, default=0.0)

    def verify(self, *, terms: int = 1) -> None:
        """Raise with a readable history when a promise was broken, or when fewer terms were seen than the test meant to
        cause."""
        seen = self.counts["terms"]
        problems = list(self.violations)
        if seen < terms:
            problems.append(f"only {seen} terms were seen, at least {terms} expected: this history proves nothing")
        if problems:
            raise AssertionError("\n".join([*problems, "", str(self.counts), "", *self.history()]))

    def history(self, limit: int = 200) -> Iterator[str]:
        """One line per stretch, act, effect and disbelief, in order of time."""
        start = min((entry.before for entry in self.entries), default=0.0)
        rows = [
            (s.begin, f"{s.node:12} {s.election} term {s.term}: believes until {s.end - start:.4f}")
            for s in self.stretches
        ]
        rows += [(e.after, f"{e.node:12} {e.election} term {e.term}: {e.kind}") for e in self.entries if not e.true]
        for moment, text in sorted(rows)[:limit]:
            yield f"{moment - start:10.4f}  {text}"
        if len(rows) > limit:
            yield f"… and {len(rows) - limit} more"


def check(directory: str | Path) -> Report:
    """Read every history in the directory and judge them together."""
    return judge(itertools.chain.from_iterable(map(_read, sorted(Path(directory).glob("*.jsonl")))))


def judge(entries: Iterable[Entry]) -> Report:
    ordered = sorted(entries, key=lambda entry: (entry.before, entry.after))
    report = Report(ordered, sorted(_stretches(ordered), key=lambda stretch: stretch.begin))
    by_election = defaultdict(list)
    for entry in ordered:
        by_election[entry.election].append(entry)
    for election, lines in by_election.items():
        stretches = [stretch for stretch in report.stretches if stretch.election == election]
        _two_believers(stretches, report)
        _two_holders(lines, report)
        _belief_in_the_past(lines, report)
        _given_up_and_believed_again(stretches, report)
        _deeds_of_the_past(lines, report)
        _measure_gaps(stretches, report)
    return report


def entry(line: dict[str, Any]) -> Entry:
    """One line as written by a worker."""
    before, after = (line["t"], line["t"]) if "t" in line else (line["from"], line["to"])
    assert before <= after, f"time runs backwards in {line}"
    assert line["kind"] in {"believes", "sample", "disbelieves", "acts", "effect"}, f"unknown kind in {line}"
    return Entry(line["kind"], line["node"], line["election"], int(line["term"]), float(before), float(after))


def _read(path: Path) -> Iterator[Entry]:
    lines = path.read_text().split("\n")
    for number, text in enumerate(lines, 1):
        if not text:
            continue
        try:
            yield entry(json.loads(text))
        except ValueError:
            if number == len(lines):  # no newline after it: the process was killed as it wrote
                return
            raise


def _stretches(ordered: list[Entry]) -> Iterator[Stretch]:
    """Stretches of true samples, ended by a disbelief. One term may have several, which is a violation of its own."""
    per_holder: dict[tuple[str, str, int], list[Entry]] = defaultdict(list)
    for line in ordered:
        if line.true or line.kind == "disbelieves":
            per_holder[line.node, line.election, line.term].append(line)
    for (node, election, term), lines in per_holder.items():
        for true, group in itertools.groupby(lines, key=lambda line: line.true):
            if true:
                samples = list(group)
                begin, end = min(sample.after for sample in samples), max(sample.before for sample in samples)
                if begin < end:
                    yield Stretch(node, election, term, begin, end)
                else:
                    yield Stretch(node, election, term, end, begin, momentary=True)


def _two_believers(stretches: list[Stretch], report: Report) -> None:
    for first, second in itertools.combinations(stretches, 2):
        if first.node != second.node and (both := first.overlap(second)):
            begin, end = both
            report.overlaps.append(Overlap(first, second, begin, end))
            report.violations.append(
                f"two believers: {first.node} (term {first.term}) and {second.node} (term {second.term}) both led "
                f"{first.election!r} for {end - begin:.6f} s, from {begin:.6f} to {end:.6f}"
            )


def _two_holders(lines: list[Entry], report: Report) -> None:
    holders = defaultdict(set)
    for line in lines:
        if line.kind != "disbelieves":
            holders[line.term].add(line.node)
    for term, nodes in sorted(holders.items()):
        if len(nodes) > 1:
            report.violations.append(
                f"two holders: term {term} of {lines[0].election!r} was held by {', '.join(sorted(nodes))}"
            )


def _belief_in_the_past(lines: list[Entry], report: Report) -> None:
    """Terms grow: once a term was believed in, nobody finds himself believing in an older one."""
    first: dict[int, Entry] = {}
    last: dict[int, Entry] = {}
    for line in filter(lambda line: line.true, lines):
        first[line.term] = min(first.get(line.term, line), line, key=lambda sample: sample.after)
        last[line.term] = max(last.get(line.term, line), line, key=lambda sample: sample.before)
    for older, newer in itertools.combinations(sorted(first), 2):
        if last[older].before > first[newer].after:
            report.violations.append(
                f"terms do not grow: {last[older].node} still believed in term {older} of {lines[0].election!r} at "
                f"{last[older].before:.6f}, {first[newer].node} believed in term {newer} at {first[newer].after:.6f}"
            )


def _given_up_and_believed_again(stretches: list[Stretch], report: Report) -> None:
    seen = set()
    for stretch in stretches:
        if (stretch.node, stretch.term) in seen:
            report.violations.append(
                f"belief came back: {stretch.node} gave up term {stretch.term} of {stretch.election!r} and believed in it "
                f"again at {stretch.begin:.6f}"
            )
        seen.add((stretch.node, stretch.term))


def _deeds_of_the_past(lines: list[Entry], report: Report) -> None:
    """Nothing is done for an older term after the first effect of a newer one."""
    first_effect: dict[int, Entry] = {}
    for line in lines:
        if line.kind == "effect":
            first_effect[line.term] = min(first_effect.get(line.term, line), line, key=lambda effect: effect.after)
    for line in lines:
        if line.kind in {"acts", "effect"}:
            for term, effect in first_effect.items():
                if line.term < term and line.before > effect.after:
                    report.violations.append(
                        f"deed of the past: {line.kind} of {line.node} for term {line.term} of {line.election!r} at "
                        f"{line.before:.6f}, after the first effect of term {term} by {effect.node} at {effect.after:.6f}"
                    )


def _measure_gaps(stretches: list[Stretch], report: Report) -> None:
    for earlier, later in itertools.pairwise(stretches):
        if earlier.term != later.term:
            report.gaps.append(max(0.0, later.begin - earlier.end))
