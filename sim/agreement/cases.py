"""Interleavings drawn by a seed: a small state, two transactions, and the order of their steps.

The first session acts as the first node, the second as the second; the third node is nobody's and often dead. What is said is mostly
about what is there (the term that is held, the token that counts), and now and then about what is not.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sim.agreement.model import Model
from sim.agreement.words import APPLIED, STEP, Op, function_of
from tenure.core.keys import due_key
from tenure.core.records import JobState, Rules, RunState

ELECTIONS = ("e0", "e1")
JOBS = ("j0", "j1", "j2")
CHAINED = ("f0", "f1", "f2")
"""Those that follow others, in some of the cases."""
FOLLOWS = 0.3


@dataclass(frozen=True, slots=True)
class Case:
    """One interleaving."""

    seed: int
    before: tuple[tuple[int, Op], ...]
    """Which session says what, one after the other, to make the state."""
    said: tuple[tuple[Op, ...], tuple[Op, ...]]
    commits: tuple[bool, bool]
    order: tuple[int, ...]
    """Whose turn it is; the last turn of each is its commit or rollback."""

    def __str__(self) -> str:
        lines = [f"seed {self.seed}, before: {', '.join(str(op) for _, op in self.before)}"]
        lines += [
            f"session {who}: {'; '.join(map(str, ops))}; {'commit' if self.commits[who] else 'rollback'}"
            for who, ops in enumerate(self.said)
        ]
        return "\n".join([*lines, f"order: {self.order}"])


def draw(seed: int, base: float, *, sqlite: bool) -> Case:
    """The case of a seed. `base` is the beginning of time, of which the case does not depend."""
    drawn = Drawing(random.Random(f"agreement {seed}"), base, sqlite=sqlite)
    before = drawn.before()
    theme = drawn.theme()
    said = (drawn.transaction(0, theme), drawn.transaction(1, theme))
    order = [who for who in (0, 1) for _ in range(len(said[who]) + 1)]
    drawn.rng.shuffle(order)
    if drawn.rng.random() < 0.7:  # both are open before one ends
        order = [0] * len(said[0]) + [1] * len(said[1])
        drawn.rng.shuffle(order)
        order += drawn.rng.sample([0, 1], 2)
    commits = (drawn.rng.random() < 0.8, drawn.rng.random() < 0.8)
    return Case(seed, before, said, commits, tuple(order))


class Drawing:
    """Draws by what the model has."""

    def __init__(self, rng: random.Random, base: float, *, sqlite: bool) -> None:
        self.rng, self.sqlite = rng, sqlite
        self.model = Model(base)
        self.nodes = tuple(str(uuid.UUID(int=rng.getrandbits(128), version=4)) for _ in range(3))
        self._lanes = random.Random(f"lanes {self.nodes}")
        self._codes = random.Random(f"codes {self.nodes}")
        self._looks = random.Random(f"looks {self.nodes}")
        self._pools = random.Random(f"pools {self.nodes}")
        self._pool = "port" if self._pools.random() < 0.4 else None
        self._again = random.Random(f"again {self.nodes}")
        self._chains = random.Random(f"chains {self.nodes}")
        self._follows = self._chains.random() < FOLLOWS
        self._before: list[tuple[int, Op]] = []
        self._tokens = 0

    # The state

    def before(self) -> tuple[tuple[int, Op], ...]:
        rng = self.rng
        for node in self.nodes:
            self._do(0, "join", node)
        if not self.sqlite:
            for who in (0, 1):
                if rng.random() < 0.5:
                    self._do(who, "hold", self.nodes[who])
        for who, node in enumerate(self.nodes):
            if rng.random() < 0.7:
                advert = (
                    "" if self.sqlite else ("own" if who < 2 and self.model.hands[who].held else "lost" * (who == 2))
                )
                self._do(min(who, 1), "beat", node, rng.randint(1, 3), advert, ())
        for name in ELECTIONS:
            if rng.random() < 0.8:
                holder = rng.choice(self.nodes)
                self._do(0, "acquire", holder, name, not self.sqlite and rng.random() < 0.5, None)
                if rng.random() < 0.2:
                    self._do(0, "release", holder, name, 1)
        for name in JOBS[: rng.randint(1, 3)]:
            self._do(0, "change", "added", name, self._rules(), rng.randint(4, 6), self._runs(), None)
        if self._follows:
            self._followers()
        if self._pools.random() < 0.5:
            self._do(0, "set_pool", "port", self._pools.randint(0, 2))
        for number in range(rng.randint(1, 2)):
            self._do(0, "claim", rng.choice([*self.nodes, self.nodes[2]]), f"held {number}")
            self._some_end()
            if rng.random() < 0.5:
                self._do(0, "ask", rng.choice(JOBS), f"asked {number}")
            if self._follows and self._chains.random() < 0.5:
                self._do(0, "follow_up")
        for what, chance in ((self.cancel, 0.3), (self.change, 0.2), (self.guard, 0.5)):
            if rng.random() < chance:
                self._said(0, what(0))
        if rng.random() < 0.5:
            self._do(0, "declare", self.nodes[2], None)
        if rng.random() < 0.1:
            self._do(0, "unsettle")
        self.model.look()
        return tuple(self._before)

    def theme(self) -> tuple[str, ...]:
        """What two transactions are about."""
        theme: tuple[str, ...] = self.rng.choice([*THEMES.values(), tuple(OPS)])
        return FOLLOWERS if self._follows and self._chains.random() < 0.7 else theme

    def _followers(self) -> None:
        """Jobs that follow others, or one another."""
        parents = [row.spec.name for row in self.model.rows.tables.jobs.values()]
        for name in CHAINED[: self._chains.randint(1, 3)]:
            parent = self._chains.choice(parents)
            self._do(0, "change", "added", name, self._following(parent), None, (), None)
            parents.append(name)

    def _following(self, parent: str) -> Rules:
        on = self._chains.choice(["success", "failure", "end"])
        overlap, pool = self._chains.choice(["skip", "wait", "allow"]), self._chains.choice([None, self._pool])
        return Rules(overlap=overlap, after=parent, on=on, pool=pool)  # type: ignore[arg-type]

    def _some_end(self) -> None:
        for run in self._runs_that(RunState.RUNNING):
            if self.rng.random() < 0.25:
                ending = self.rng.choice(
                    [("pending", 0.0), ("pending", 10 * STEP), ("failed", None), ("succeeded", None)]
                )
                self._do(0, "finish", (self._name(run), run.token, *self._look(*ending)))

    def _look(self, state: str, again: float | None) -> tuple[str, float | None]:
        """Some of the failures are looks."""
        if state != "pending" or again is None or self._looks.random() < 0.5:
            return state, again
        return self._looks.choice(["look", "last look"]), again / 5

    def _do(self, who: int, name: str, *args: Any) -> None:
        self._said(who, Op(name, args))

    def _said(self, who: int, op: Op) -> None:
        self.model.look()
        self.model.do(who, op)
        self._before.append((who, op))
        self.model.look()

    def _rules(self) -> Rules:
        overlap = self.rng.choice(["skip", "wait", "replace", "allow"])
        return Rules(
            overlap=overlap,  # type: ignore[arg-type]
            max_running=self.rng.choice([1, 2, None]) if overlap == "allow" else self.rng.choice([1, 1, 2]),
            on_lost=self.rng.choice(["retry", "fail"]),
            max_lost=self.rng.randint(1, 2),
            grace=self.rng.choice([None, 2 * STEP]),
            queue=self._lanes.choice(["default", "default", "slow"]),
            pool=self._pools.choice([None, self._pool]),
        )

    def _runs(self) -> tuple[Any, ...]:
        shift = len(self.model.rows.tables.jobs) / 30  # no two jobs are due at the same instant
        return tuple(
            (
                steps + shift,
                *self.rng.choice(
                    [(None, "pending"), (9.0 if steps > 0 else -0.5, "pending"), (9.0, "pending"), (None, "skipped")]
                ),
            )
            for steps in sorted(self.rng.sample([-5, -4, -3, -2, 2, 3], self.rng.randint(1, 4)))
        )

    # What is there

    def _runs_that(self, *states: RunState) -> list[Any]:
        return [run for run in self.model.rows.tables.runs.values() if not states or run.state in states]

    def _name(self, run: Any) -> tuple[str, str]:
        """A run without its id; a due time by the number of steps."""
        job = self.model.rows.tables.jobs[run.job].spec.name
        steps = (run.scheduled_for - self.model.base) / STEP
        return job, f"@{steps!r}" if run.key == due_key(run.scheduled_for) else run.key

    def _some_run(self, *states: RunState) -> Any:
        return self.rng.choice(self._runs_that(*states) or self._runs_that() or [None])

    def _job(self) -> Any:
        return self.rng.choice(list(self.model.rows.tables.jobs.values()))

    def _term(self, name: str) -> tuple[int, str]:
        e = self.model.rows.elections.get(name)
        if e is None or e.holder is None or self.rng.random() < 0.15:
            return self.rng.randint(1, 2), self.rng.choice(self.nodes)
        return e.term, e.holder

    def _token(self, run: Any) -> str:
        return run.token or "old" if self.rng.random() < 0.75 else "old"

    # What is said

    def transaction(self, who: int, theme: tuple[str, ...]) -> tuple[Op, ...]:
        """One or two statements. A store's own operation on SQLite is a transaction."""
        ops: list[Op] = []
        while len(ops) < self.rng.choice([1, 1, 2]):
            op: Op | None = (OPS | CHAINS)[self.rng.choice(theme)](self, who)
            if op is None or (self.sqlite and (op.name in {"check", "hold"} or (ops and op.name not in APPLIED))):
                continue
            ops.append(op)
            if self.sqlite and op.name not in APPLIED:
                break
        return tuple(ops)

    def beat(self, who: int) -> Op:
        row = self.model.rows.nodes[self.nodes[who]]
        advert = "own" if not self.sqlite and self.model.hands[who].held and self.rng.random() < 0.7 else ""
        return Op("beat", (self.nodes[who], row.seq + self.rng.choice([0, 1, 1, 1]), advert, ELECTIONS))

    def leave(self, who: int) -> Op:
        return Op("leave", (self.nodes[who],))

    def _victim(self, who: int) -> str:
        return self.nodes[self.rng.choice([2, 1 - who])]

    def declare(self, who: int) -> Op:
        dead = self._victim(who)
        return Op("declare", (dead, self.rng.choice([None, self.model.rows.nodes[dead].seq, 7])))

    def _asked(self, who: int) -> tuple[Any, ...]:
        name = self.rng.choice(ELECTIONS)
        term, holder = self._term(name)
        seen = (
            (term, holder, self.model.rows.nodes[holder].seq) if not self.sqlite and self.rng.random() < 0.3 else None
        )
        return self.nodes[who], name, not self.sqlite and self.rng.random() < 0.5, seen

    def acquire(self, who: int) -> Op:
        return Op("acquire", self._asked(who))

    def succeed(self, who: int) -> Op | None:
        return None if self.sqlite else Op("succeed", (self._victim(who), *self._asked(who)))

    def release(self, who: int) -> Op:
        name = self.rng.choice(ELECTIONS)
        term, holder = self._term(name)
        return Op("release", (holder if self.rng.random() < 0.7 else self.nodes[who], name, term))

    def resign(self, who: int) -> Op:
        del who
        return Op("resign", (self.rng.choice(ELECTIONS),))

    def fence(self, who: int) -> Op:
        del who
        name = self.rng.choice(ELECTIONS)
        return Op("fence", (name, *self._term(name)))

    def check(self, who: int) -> Op | None:
        return Op("check", ELECTIONS) if self.model.hands[who].held else None

    def claim(self, who: int) -> Op:
        self._tokens += 1
        names, all_ = self._lanes.sample((*JOBS, *CHAINED) if self._follows else JOBS, 2), self._lanes.random() < 0.6
        functions = None if all_ else tuple(function_of(name) for name in names)  # those that this node has
        queues = None if self._lanes.random() < 0.7 else ("default",)
        return Op("claim", (self.nodes[who], f"new {self._tokens}", functions, queues))

    def _rest(self, job: Any, what: str) -> tuple[Any, ...]:
        """The rules, the next due time and the due times of a change."""
        if job.spec.rules.after is not None:
            keeps = self._chains.random() < 0.5
            rules = job.spec.rules if keeps else self._following(job.spec.rules.after)
            return (rules if what in {"added", "updated"} else None), None, ()
        rules = (job.spec.rules if self.rng.random() < 0.5 else self._rules()) if what in {"added", "updated"} else None
        return (rules, 9, self._runs()) if what in {"added", "updated", "resumed"} else (None, None, ())

    def change(self, who: int) -> Op:
        del who
        job = self._job()
        what = self.rng.choice(["updated", "paused", "resumed", "removed", "added"])
        name = job.spec.name if what != "added" or job.state is JobState.REMOVED else "new"
        generation = self.rng.choice([None, None, job.generation])
        by_hand = what == "updated" and self._codes.random() < 0.7
        code = job.code.rules if by_hand else None
        rest = self._rest(job, what)
        if name == "new" and self._follows:
            rest = (self._following(job.spec.name), None, ())
        return Op("change", (what, name, *rest, generation if name != "new" else None, code))

    def sync(self, who: int) -> Op:
        del who
        job = self._job()
        name = self.rng.choice([job.spec.name, job.spec.name, "new"])
        rules, *rest = self._rest(job, "updated")
        if name == "new" and self._follows:
            rules, rest = self._following(job.spec.name), [None, ()]
        if job.override is not None and self._codes.random() < 0.5:
            rules = job.code.rules
        return Op("sync", (name, rules, self.rng.choice([0, 1]), *rest))

    def plan(self, who: int) -> Op | None:
        del who
        job = self._job()
        if job.next_due is None:
            return None
        due = (job.next_due - self.model.base) / STEP
        said = job.generation if self.rng.random() < 0.85 else job.generation + 1
        return Op("plan", (job.spec.name, said, due, due + 1, ((due, None, "pending"),)))

    def settle(self, who: int) -> Op | None:
        del who
        job = self._job()
        missed = [self._name(run) for run in self._runs_that() if run.job == job.id and run.expired(self.model.base)]
        if not missed and self.rng.random() < 0.8:
            return None
        return Op("settle", (job.spec.name, job.generation, tuple(missed[-1:]), tuple(missed[:-1])))

    def finish(self, who: int) -> Op | None:
        del who
        run = self._some_run(RunState.RUNNING)
        if run is None:
            return None
        ending = self.rng.choice(
            [
                ("succeeded", None),
                ("failed", None),
                ("cancelled", None),
                ("pending", None),
                ("pending", 10 * STEP),
                ("interrupted", None),
            ]
        )
        return Op("finish", ((self._name(run), self._token(run), *self._look(*ending)),))

    def put_back(self, who: int) -> Op | None:
        del who
        run = self._some_run(RunState.RUNNING)
        return None if run is None else Op("put_back", ((self._name(run), self._token(run)),))

    def note_begun(self, who: int) -> Op | None:
        del who
        run = self._some_run(RunState.RUNNING)
        return None if run is None else Op("note_begun", (self._name(run), self._token(run)))

    def unbegun(self, who: int) -> Op:
        del who
        if self._pools.random() < 0.5:
            return Op("set_pool", ("port", self._pools.randint(0, 2)))
        job = self._job()
        return Op("unbegun", (job.spec.name, job.generation + 1))

    def complete(self, who: int) -> Op | None:
        del who
        run = self._some_run(RunState.RUNNING)
        return None if run is None else Op("complete", (self._name(run), self._token(run)))

    def reconcile(self, who: int) -> Op:
        return Op("reconcile", (self.nodes[who], self.rng.random() < 0.3))

    def ask(self, who: int) -> Op:
        del who
        run, job = self._some_run(RunState.SKIPPED), self._job()
        if run is not None and self.rng.random() < 0.4:
            return self._or_retry(Op("ask", self._name(run)))
        due = None if job.next_due is None else (job.next_due - self.model.base) / STEP
        keys = ["asked 0", "asked 9", "asked 9" if due is None else f"@{due!r}"]
        return self._or_slot(job, self._or_retry(Op("ask", (job.spec.name, self.rng.choice(keys)))))

    def cancel(self, who: int) -> Op:
        del who
        run = self._some_run(RunState.RUNNING, RunState.PENDING, RunState.WAITING)
        return self._or_retry(Op("cancel", (("none", "none") if run is None else self._name(run),)))

    def _or_slot(self, job: Any, op: Op) -> Op:
        """A request for a slot instead, now and then, drawn apart as well."""
        if self._again.random() < 0.5:
            return op
        self._tokens += 1
        words = self._again.choice(["keep", "replace", "later"]), self._again.choice([-1.0, 4.5, 6.5])
        return Op("slot", (job.spec.name, f"slot {self._tokens}", self._again.choice("ab"), *words))

    def _or_retry(self, op: Op) -> Op:
        """A retry instead, now and then; the seed draws all else as it would without."""
        states = {RunState.FAILED, RunState.LOST, RunState.SKIPPED, RunState.CANCELLED}
        over = self._runs_that(*states) or self._runs_that()
        return Op("retry", (self._name(self._again.choice(over)),)) if over and self._again.random() < 0.4 else op

    def keep_log(self, who: int) -> Op | None:
        run = self._some_run()
        self._tokens += 1
        return None if run is None else Op("keep_log", (self._name(run), self._tokens * 2 + who))

    def keep_progress(self, who: int) -> Op | None:
        run = self._some_run()
        return None if run is None else Op("keep_progress", (self._name(run), self.rng.randint(1, 2), who))

    def prune(self, who: int) -> Op:
        del who
        return Op("prune", (self.rng.choice([-1, 1]), self.rng.randint(0, 1)))

    def guard(self, who: int) -> Op:
        del who
        return Op("guard", (self.rng.choice("ab"), self.rng.choice([None, 2.0, 0.0])))

    def unguard(self, who: int) -> Op:
        del who
        return Op("unguard", (self.rng.choice("ab"), self.rng.choice(["somebody", "somebody", "else"])))

    def cards(self, who: int) -> Op:
        del who
        return Op("cards", self.nodes)

    def followers(self, who: int) -> Op:
        del who
        return Op("followers", (self._chains.choice([None, self._job().spec.name]),))

    def unplanned(self, who: int) -> Op:
        del who
        return Op("unplanned", (5.5,))


def _bare(name: str) -> Callable[[Drawing, int], Op]:
    return lambda _drawing, _who: Op(name)


_DRAWN = (
    "beat leave declare acquire succeed release resign fence check claim change sync plan settle finish put_back note_begun unbegun complete reconcile "
    "ask cancel keep_log keep_progress prune guard unguard cards unplanned"
)
OPS: dict[str, Callable[[Drawing, int], Op | None]] = {
    **{name: getattr(Drawing, name) for name in _DRAWN.split()},
    **{name: _bare(name) for name in ("epoch", "unsettle", "raise_epoch", "missed", "jobs", "runs")},
}
CHAINS: dict[str, Callable[[Drawing, int], Op | None]] = {
    "followers": Drawing.followers,
    **{name: _bare(name) for name in ("follow_up", "owed")},
}
"""Drawn only where jobs follow others."""
FOLLOWERS = (
    *("follow_up",) * 4, "change", "change", "finish", "finish", "complete", "settle", "reconcile", "put_back",
    "claim", "ask", "cancel", "prune", "sync", "owed", "followers",
)  # fmt: skip
THEMES = {
    theme: tuple(names.split())
    for theme, names in {
        "nodes": "beat leave declare acquire succeed reconcile claim cards",
        "elections": "acquire acquire release fence resign succeed declare leave check beat",
        "epoch": "epoch unsettle raise_epoch acquire declare",
        "jobs": "change change claim plan ask sync settle cancel prune unplanned jobs",
        "runs": "claim claim finish finish complete reconcile note_begun unbegun put_back cancel change declare runs keep_log keep_progress",
        "missed": "settle settle missed claim change cancel prune",
        "guards": "guard guard unguard",
    }.items()
}
