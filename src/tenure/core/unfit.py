"""Stored arguments that do not fit their function, as the node that has looked at them writes them down."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from tenure.util.plurals import counted

NAMED = 5
"""How many jobs, runs and combinations of names are kept."""
LONGEST = 500
"""Characters of a problem that are kept."""


@dataclass(frozen=True, slots=True)
class UnfitArguments:
    """What does not fit one function: arguments of jobs, and of runs that were requested with their own."""

    function: str
    problem: str
    """What is wrong, and what to write instead, for the first of them."""
    surely: bool
    """True if the function cannot be called with them; False if they have other types than it declares."""
    jobs: int = 0
    """How many jobs there are …"""
    names: tuple[str, ...] = ()
    """… and the first of them."""
    runs: int = 0
    """How many requested runs there are that have not begun …"""
    requested: tuple[tuple[int, str], ...] = ()
    """… and the numbers and jobs of the first of them."""
    given: tuple[tuple[str, ...], ...] = ()
    """Which arguments they have, by name, where the function cannot be called with them."""

    def and_one(self, job: str, run: int | None, given: Iterable[str]) -> UnfitArguments:
        """With one more: a job, or a run of it."""
        names = tuple(sorted(given))
        more = self if not self.surely or names in self.given else replace(self, given=(*self.given, names)[:NAMED])
        if run is None:
            return replace(more, jobs=self.jobs + 1, names=(*self.names, job)[:NAMED])
        return replace(more, runs=self.runs + 1, requested=(*self.requested, (run, job))[:NAMED])

    @property
    def named(self) -> tuple[str, ...]:
        """The jobs that are known by name."""
        return tuple(dict.fromkeys((*self.names, *(job for _, job in self.requested))))

    @property
    def text(self) -> str:
        """What is wrong, and what to do."""
        counts = [
            counted(count, noun) for count, noun in ((self.jobs, "stored job"), (self.runs, "requested run")) if count
        ]
        some = [*self.names, *(f"run {run} of {job}" for run, job in self.requested)][:NAMED]
        more = self.jobs + self.runs - len(some)
        names = ", ".join(some) + (f" and {more:,} more" if more else "")
        advice = ["Change them with scheduler.update(name, kwargs={…})"] if self.jobs else []
        advice += ["cancel such a run (`tenure cancel RUN`) and request it anew"] if self.runs else []
        told = ", ".join(advice)
        return (
            f"{' and '.join(counts)} {'has' if self.jobs + self.runs == 1 else 'have'} arguments that "
            f"{self.function!r} does not take, so the runs {'will' if self.surely else 'may'} fail: {names}. "
            f"{self.problem} {told[:1].upper()}{told[1:]}, or let the function take both."
        )

    def applies_to(self, job: str, function: str, kwargs: str) -> bool:
        """Whether it is about the arguments of this job, as far as it is known."""
        if function != self.function or job in self.names:
            return function == self.function
        try:
            return self.surely and tuple(sorted(json.loads(kwargs))) in self.given
        except (ValueError, TypeError, RecursionError):
            return False

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "function": self.function,
            "surely": self.surely,
            "jobs": self.jobs,
            "some": list(self.names),
            "runs": self.runs,
            "text": self.text,
        }


def written(unfit: Iterable[UnfitArguments]) -> str:
    """As text, for the facts of a node; '' for nothing."""
    found = [asdict(one) for one in unfit]
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")) if found else ""


def read(text: object) -> tuple[UnfitArguments, ...]:
    """What was written. Nothing, if it cannot be read: another release, or another program, may have written it."""
    try:
        return tuple(map(_read, json.loads(text))) if isinstance(text, str) and text else ()
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return ()


def _read(one: Mapping[str, Any]) -> UnfitArguments:
    return UnfitArguments(
        function=str(one["function"]),
        problem=str(one["problem"])[:LONGEST],
        surely=bool(one["surely"]),
        jobs=int(one["jobs"]),
        names=tuple(map(str, one["names"]))[:NAMED],
        runs=int(one["runs"]),
        requested=tuple((int(run), str(job)) for run, job in one["requested"])[:NAMED],
        given=tuple(tuple(map(str, names)) for names in one["given"])[:NAMED],
    )
