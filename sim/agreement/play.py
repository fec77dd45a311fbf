"""One case on the model and on a real database, step by step, and what is not the same."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from sim.agreement.cases import Case, draw
from sim.agreement.model import WAITS, Model
from sim.agreement.real import RealPostgres
from sim.agreement.sqlite import HELD_UP, RealSqlite
from sim.agreement.words import UNSAID, UNSEEN, Op, plainly
from tenure.util.clock import walltime

REFUSE = frozenset({"fence", "complete"})
"""Their refusal ends the transaction."""


@dataclass(slots=True)
class Tally:
    """What many cases had in common."""

    cases: int = 0
    waited: int = 0
    deadlocks: int = 0
    statements: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)


def many(seeds: Iterable[int], real: RealPostgres | RealSqlite, told: Callable[[str], None] = print) -> Tally:
    """Compare the cases of these seeds."""
    tally = Tally()
    for seed in seeds:
        base = float(int(walltime().timestamp()))
        case = draw(seed, base, sqlite=isinstance(real, RealSqlite))
        real.begin(base)
        heard, differs = (
            one_at_a_time(case, base, real) if isinstance(real, RealSqlite) else side_by_side(case, base, real)
        )
        tally.cases += 1
        tally.waited += any(words[-1] == "waits" for words in heard)
        tally.deadlocks += "deadlock" in heard
        tally.statements.update(op.name for ops in case.said for op in ops)
        if differs:
            tally.failed.append(f"{case}\n{differs}")
            told(tally.failed[-1])
    return tally


def side_by_side(case: Case, base: float, real: RealPostgres) -> tuple[list[Any], str]:
    """Both know row locks: what was heard on the database, and in what the model differs."""
    said, rows = Play(Model(base), case, base).whole()
    heard, found = Play(real, case, base).whole()
    return heard, _first(itertools.zip_longest(said, heard)) or _rows(rows, found)


@dataclass(slots=True)
class Play:
    """One case on one engine, and what became of it."""

    engine: Any
    case: Case
    base: float
    without: frozenset[str] = UNSAID
    heard: list[Any] = field(default_factory=list)
    """Who was answered what, and who waited, in order."""
    waits: list[bool] = field(default_factory=lambda: [False, False])
    over: list[bool] = field(default_factory=lambda: [False, False])
    last: list[Op] = field(default_factory=lambda: [Op(""), Op("")])

    def whole(self) -> tuple[list[Any], dict[str, Any]]:
        """Everything that is compared."""
        for who, op in self.case.before:
            self.engine.look()
            self.heard.append(("before", str(op), self._plainly(self.engine.do(who, op))))
        self.engine.look()
        turns, left = list(self.case.order), [list(ops) for ops in self.case.said]
        while turns:
            free = [turn for turn in turns if not self.waits[turn]]
            if not free:  # each waits for the other
                self.heard.append("deadlock")
                self.waits[0] = False
                self._end(0, commit=False)
                continue
            who = free[0]
            turns.remove(who)
            if self.over[who]:
                continue
            if left[who]:
                self.last[who] = left[who].pop(0)
                self._hear(who, self.engine.step(who, self.last[who]))
            else:
                self._end(who, commit=self.case.commits[who])
        return self.heard, self.engine.shown()

    def _hear(self, who: int, answer: Any) -> None:
        op = self.last[who]
        self.waits[who] = answer is WAITS
        self.heard.append((who, str(op), "waits" if answer is WAITS else self._plainly(answer)))
        if answer is False and op.name in REFUSE:
            self._end(who, commit=False)

    def _end(self, who: int, *, commit: bool) -> None:
        self.over[who] = True
        self.engine.end(who, commit=commit)
        if self.waits[1 - who]:
            self._hear(1 - who, self.engine.again(1 - who))

    def _plainly(self, answer: Any) -> Any:
        return plainly(answer, self.base, self.without)


def one_at_a_time(case: Case, base: float, real: RealSqlite) -> tuple[list[Any], str]:
    """One writes at a time: what was heard on the database, and in what the model differs, in the order in which they
    came to write."""
    play = Following(real, case, base, UNSEEN)
    heard, found = play.whole()
    return heard, _first(play.pairs) or "".join(play.wrong[:1]) or _rows(play.model.shown(), found)


class Following(Play):
    """The model does what the database did, in that order."""

    __slots__ = ("begun", "model", "pairs", "pending", "wrong")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.model = Model(self.base, serial=True)
        self.pairs: list[tuple[Any, Any]] = []
        self.pending: list[Any] = [None, None]
        """What the model answered where the database has not yet."""
        self.begun: list[Any] = [None, None]
        self.wrong: list[str] = []

    def whole(self) -> tuple[list[Any], dict[str, Any]]:
        for who, op in self.case.before:
            self.model.look()
            self.pairs.append((("before", str(op), self._plainly(self.model.do(who, op))), None))
        self.model.look()
        heard, found = super().whole()
        before = len(self.case.before)
        self.pairs[:before] = [
            (said, other) for (said, _), other in zip(self.pairs[:before], heard[:before], strict=True)
        ]
        return heard, found

    def _hear(self, who: int, answer: Any) -> None:
        op, other = self.last[who], self.engine.writes(1 - who) and not self.waits[1 - who]
        self.waits[who] = answer is WAITS
        if answer is WAITS:
            self.heard.append((who, str(op), "waits"))
            if op.name == "beat":  # it shows what there was before it waited
                self.begun[who] = self.model.step(who, op, busy=True)
            return
        said = self._plainly(self.model.again(who) if self.begun[who] is WAITS else self.model.step(who, op))
        if other and self.model.wrote(who):
            self.wrong.append(f"{op} of session {who} did not wait, and writes")
        if answer is HELD_UP:
            self.pending[who] = said
            return
        self._compare(who, op, said, answer)
        if not self.engine.writes(who):  # it only read, or was refused
            self.over[who] = True
            self._end(who, commit=True)

    def _end(self, who: int, *, commit: bool) -> None:
        self.over[who] = True
        answer = self.engine.end(who, commit=commit)
        self.model.end(who, commit=commit)
        if self.pending[who] is not None and answer is not HELD_UP:
            self._compare(who, self.last[who], self.pending[who], answer)
        if self.waits[1 - who]:
            self._hear(1 - who, self.engine.again(1 - who))

    def _compare(self, who: int, op: Op, said: Any, answer: Any) -> None:
        plain = self._plainly(answer)
        self.heard.append((who, str(op), plain))
        if op.name == "acquire" and ("outcome", "held") in plain and said[1][1] in {"gone", "moved"}:
            said = plain  # it looks at the election first
        self.pairs.append(((who, str(op), said), (who, str(op), plain)))


def _first(pairs: Iterable[tuple[Any, Any]]) -> str:
    return next((f"the model: {said}\nthe database: {heard}" for said, heard in pairs if said != heard), "")


def _rows(rows: dict[str, Any], found: dict[str, Any]) -> str:
    for table, kept in rows.items():
        if not isinstance(kept, dict) and kept != found[table]:
            return f"{table}:\nthe model: {kept}\nthe database: {found[table]}"
        if kept != found[table]:
            keys = [key for key in {**kept, **found[table]} if kept.get(key) != found[table].get(key)]
            return "\n".join(
                f"{table} {k}:\nthe model: {kept.get(k)}\nthe database: {found[table].get(k)}" for k in keys
            )
    return ""
