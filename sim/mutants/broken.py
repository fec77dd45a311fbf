"""The broken rules themselves: what `mutants.py` puts in the place of a function of production or of the database."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from sim.database import rows, statements
from sim.database.rows import Rows
from sim.database.store import SimSession
from sim.runtime import application, copies
from sim.runtime.kernel import K
from tenure.core.cluster import Acquired, AcquireOutcome, BeatAnswer, BeatVerdict
from tenure.core.messages import Claimed, Pruned
from tenure.core.records import RunState
from tenure.stores.notices import Released

L = copies.lease
_step, _compare, _beat = L.step, L._compare, Rows.beat
_learn = copies.planner.Planner.learn


# The lease


def anchored_at_response(lease: Any, event: Any, now: float) -> Any:
    if isinstance(event, L.BeatAnswered) and event.number in lease.under_way:
        lease = replace(lease, under_way={**lease.under_way, event.number: now})
    return _step(lease, event, now)


def compare_open(lease: Any, number: int, answer: Any) -> Any:
    """An attempt that is open counts as nothing in hand."""
    after, actions = _compare(lease, number, answer)
    for row in answer.elections:
        hand = lease.holdings.get(row.name)
        if row.held and row.holder == lease.node and hand is not None and hand.phase is L.Phase.OPEN:
            actions.append(L.Release(row.name, row.term))
    return after, actions


def compare_old(lease: Any, number: int, answer: Any) -> Any:
    hands = {name: replace(hand, after_beat=0) for name, hand in lease.holdings.items()}
    return _compare(replace(lease, holdings=hands), number, answer)


def acquired_anyway(lease: Any, name: str, attempt: int, term: int | None, now: float) -> Any:
    """An answer is an answer, whatever happened since the question."""
    if name in lease.holdings and not L._is_open(lease, name, attempt):
        return lease, []
    if term is None or lease.gone or now >= lease.terms_until:
        return L._without_holding(lease, name), []
    hand = L.Holding(L.Phase.HELD, attempt, term, after_beat=lease.sent)
    return L._with_holding(lease, name, hand), [L.Announce(name, term, lease.trust_period)]


def newest_nonce(lease: Any) -> float:
    """Only the session of the last beat that was sent bounds the trust."""
    newest = lease.adverts.get(lease.sent)
    bounds = [] if newest is None else [lease.checked.get(newest.nonce, -1e9) + newest.grace]
    return float(min([lease.until, *bounds]))


def revived(term: Any) -> bool:
    """Trust is trust, whoever was told what in between."""
    return bool(copies.election.boottime() < term._state.lease_until)


def watch_at_send() -> list[Any]:
    sent = SimSession.beat
    renewed = copies.heartbeat.BeatRenewed

    def beat(self: Any, beat: Any) -> Any:
        K.process.things["sent"] = beat.sent_at  # type: ignore[union-attr]
        return sent(self, beat)

    def at_send(answer: Any, at: float) -> Any:
        del at
        return renewed(answer, K.process.things["sent"])  # type: ignore[union-attr]

    return [(SimSession, "beat", beat), (copies.heartbeat, "BeatRenewed", at_send)]


def no_wait() -> list[Any]:
    row, notice = Rows.epoch_row, copies.epoch.EpochGuard.notice

    def at_once(self: Any, session: Any) -> None:
        notice(self, session)
        if self._noticed is not None:
            self.ripe_at = 0.0

    return [
        (Rows, "epoch_row", lambda self, timeline: replace(row(self, timeline), max_ttl=5.0)),
        (copies.epoch.EpochGuard, "notice", at_once),
    ]


def inherited_mutex() -> list[Any]:
    """The standing of a forked child keeps the mutex as it was."""

    def forked(self: Any) -> None:
        self.become("")

    return [(copies.lease_state.LeaseState, "forked", forked)]


# Planning


def only_own_functions(self: Any, ledger: Any, node: str, functions: Any) -> None:
    """What this node has no function for is left to others."""
    _learn(self, ledger, node, functions)
    self._absent = tuple(sorted(functions - self._written.functions))


def leaves_overdue(self: Any, job: Any, now: float, *, leads: bool) -> bool:
    """What is overdue is the planner's; a minute is shorter here."""
    return self._clock.doubts if job.resumes else not leads and job.next_due is not None and job.next_due < now - 3.0


def only_known_rules(self: Any, ledger: Any, node: str, functions: Any) -> None:
    """What was written with newer zone rules is left to others, whether there are any or not."""
    _learn(self, ledger, node, functions)
    self._zones = self._tzdata


def unresolved(self: Any, ledger: Any) -> None:
    """What was missed stays as it is."""
    del ledger
    self._context.agenda.at(copies.missed.Step.RESOLVE_MISSED, math.inf)


# Nodes and elections in the database


def beat_of_the_dead(self: Rows, beat: Any, snapshot: Any) -> Any:
    node = self.nodes.get(beat.node)
    if node is None or node.seq >= beat.number:
        return _beat(self, beat, snapshot)
    node.seq, node.advert = beat.number, beat.advert
    was, peers, shown, epoch = snapshot
    return BeatAnswer(BeatVerdict.RENEWED, was, peers, shown, self.now(), epoch)


def late_beat(self: Rows, beat: Any, snapshot: Any) -> Any:
    node = self.nodes.get(beat.node)
    if node is not None and node.seq >= beat.number:
        node.seq = beat.number - 1
    return _beat(self, beat, snapshot)


def reaping_beat(st: Any, beat: Any) -> Any:
    """Whoever's stored time is a ttl old by the server's clock is dead."""
    snapshot = st.server.rows.shown(beat)
    yield ("node", beat.node), "U"
    here = st.server.rows
    for node, row in here.nodes.items():
        if row.state == "alive" and row.renewed_at and here.now() - row.renewed_at > row.card.ttl:
            st.server.checker.declared(node)
            here.declare(node)
    return here.beat(beat, snapshot)


def deleting_release(self: Rows, node: str, name: str, term: int) -> bool:
    e = self.elections.get(name)
    if e is None or (e.held, e.term, e.holder) != (True, term, node):
        return False
    self.elections[name] = rows.ElectionState()
    self.ring(Released(name))
    return True


def any_release(self: Rows, node: str, name: str, term: int) -> bool:
    del node, term
    e = self.elections.get(name)
    if e is None or not e.held:
        return False
    e.held, e.asked = False, None
    self.ring(Released(name))
    return True


def any_vacancy(self: Rows, request: Any, free: Any) -> str | None:
    e = self.elections.get(request.name)
    if e is not None and e.held and request.vanished is not None and e.holder == request.vanished.holder:
        return "session ended"
    return _vacancy(self, request, free)


_vacancy = Rows.vacancy


def always_vacant(self: Rows, request: Any, free: Any) -> str:
    del free
    self.elections.setdefault(request.name, rows.ElectionState())
    return "taken"


def careless_acquire(st: Any, request: Any) -> Any:
    """What was read is not compared again when it is written."""
    server = st.server
    yield ("node", request.node), "S"
    if not server.rows.alive(request.node):
        return Acquired(AcquireOutcome.GONE)
    if not server.rows.settled(server.timeline):
        return Acquired(AcquireOutcome.MOVED)
    if server.rows.vacancy(request, server.lock_free) is None:
        return Acquired(AcquireOutcome.HELD, holder=server.rows.elections[request.name].holder)
    term = server.rows.next_term(server.rows.elections[request.name])
    yield st.gap()
    e = server.rows.elections[request.name]
    e.term, e.holder, e.held, e.asked, e.fenced = term, request.node, True, None, request.fenced
    server.checker.granted(request.name, term, request.node, fenced=request.fenced)
    return Acquired(AcquireOutcome.GRANTED, term, request.node)


def open_fence(st: Any, name: str, term: int, node: str) -> Any:
    """Compared, and then everybody may pass."""
    yield st.gap()
    if not st.server.rows.fenced_by(name, term, node):
        return False
    st.keep = True
    return True


# The ledger


def claim_of_the_dead() -> list[Any]:
    def claim(st: Any, request: Any) -> Any:
        yield st.gap()
        alive = Rows.alive
        Rows.alive = lambda _self, _node: True  # type: ignore[method-assign, assignment]
        try:
            answer = st.server.rows.ledger.claim(request)
        finally:
            Rows.alive = alive  # type: ignore[method-assign]
        st.server.checker.claimed(answer.runs, request.token, request.node, doubted=request.as_of is not None)
        return answer

    return [(statements, "claim", claim)]


def claim_by_snapshot(st: Any, request: Any) -> Any:
    """Counted before the jobs are locked, or without locking them."""
    here = st.server.rows
    yield ("node", request.node), "S"
    if not here.alive(request.node):
        return Claimed((), here.now(), None, more=False, missed=False, alive=False)
    counted = {job: here.tables.began(job) for job in here.tables.jobs}
    yield st.gap()
    tables = copies.memory_tables.Tables
    began = tables.began
    tables.began = lambda _self, job: counted.get(job, 0)
    try:
        answer = here.ledger.claim(request)
    finally:
        tables.began = began
    st.server.checker.claimed(answer.runs, request.token, request.node, doubted=request.as_of is not None)
    return answer


def pool_by_snapshot(st: Any, request: Any) -> Any:
    """The runs of a pool are counted before it is locked, or without locking it."""
    here = st.server.rows
    yield ("node", request.node), "S"
    if not here.alive(request.node):
        return Claimed((), here.now(), None, more=False, missed=False, alive=False)
    tables = copies.memory_tables.Tables
    pool = tables.pool
    names = {row.spec.rules.pool for row in here.tables.jobs.values() if row.spec.rules.pool}
    counted = {name: here.tables.pool(request.application, name) for name in names}
    yield st.gap()
    tables.pool = lambda self, application, name: counted.get(name) or pool(self, application, name)
    try:
        answer = here.ledger.claim(request)
    finally:
        tables.pool = pool
    st.server.checker.claimed(answer.runs, request.token, request.node, doubted=request.as_of is not None)
    return answer


def claim_past_pause(st: Any, request: Any) -> Any:
    """Which jobs are active is read before, and the jobs are not locked."""
    here = st.server.rows
    yield ("node", request.node), "S"
    if not here.alive(request.node):
        return Claimed((), here.now(), None, more=False, missed=False, alive=False)
    before = dict(here.tables.jobs)
    yield st.gap()
    after = {job: row for job, row in here.tables.jobs.items() if job in before}
    here.tables.jobs.update({job: replace(row, state=before[job].state) for job, row in after.items()})
    answer = here.ledger.claim(request)
    here.tables.jobs.update(after)
    st.server.checker.claimed(answer.runs, request.token, request.node, doubted=request.as_of is not None)
    return answer


def finish_any(st: Any, endings: Any, busy: Any = ()) -> Any:
    """Whatever attempt the run has now is the one that ended."""
    del busy
    here = st.server.rows
    endings = [
        replace(e, token=here.tables.runs[e.id].token or e.token) if e.id in here.tables.runs else e for e in endings
    ]
    return here.ledger.finish(endings)


def finish_waits(st: Any, endings: Any) -> Any:
    """Waits for the runs that another transaction has locked."""
    for ending in sorted(endings, key=lambda ending: ending.id):
        if statements.holds(st.server.rows, ending.id, ending.token):
            yield ("run", ending.id), "U"
    yield st.gap()
    return statements.finish_now(st, endings)


def finish_refuses(st: Any, endings: Any) -> Any:
    """What is locked is refused."""
    answers = yield from statements_finish(st, endings)
    return [answer._replace(busy=False) for answer in answers]


statements_finish = statements.finish


def finish_final() -> list[Any]:
    """A token outlives its run, and the state is not compared."""
    tables = copies.memory_tables.Tables
    end = tables.end

    def keep(self: Any, run: Any, state: Any, reason: str, now: float) -> None:
        token = run.token
        end(self, run, state, reason, now)
        run.token = token

    def over(self: Any, run: Any, after: Any, now: float) -> None:
        if not after.state.final:
            self.open[run.job][run.id] = run
        _over(self, run, after, now)

    return [
        (tables, "end", keep),
        (tables, "over", over),
        (copies.memory_ledger, "_holds", lambda run, token: bool(token) and run.token == token),
    ]


_over = copies.memory_tables.Tables.over


def complete_any(st: Any, run: Any, token: str) -> Any:
    """What the caller commits together with a completion that is none."""
    del token
    yield ("run", run), "U"
    st.keep = True
    return True


def put_back_any(st: Any, held: Any) -> Any:
    here = st.server.rows
    yield st.gap()
    mine = [
        (run, here.tables.runs[run].token)
        for run, _ in held
        if run in here.tables.runs and here.tables.runs[run].state is RunState.RUNNING
    ]
    for run, token in mine:
        st.server.checker.taken_back(run, token)
    return here.ledger.put_back(mine)


def roll_backwards(self: Any, ledger: Any) -> None:
    """What is in hand is looked up after the answer, and what the answer does not name is forgotten, ended or not."""
    context, executor, sent_at = self._context, self._context.executor, copies.reconciler.boottime()
    call = ledger.reconcile(context.identity, context.application)
    context.agenda.at(copies.reconciler.Step.RECONCILE, sent_at + context.every)
    self._clock_watch.observe(call.now, sent_at)
    held = {mine.id for mine in call.held}
    strays = [(mine.id, mine.token) for mine in call.held]
    ledger.put_back([stray for stray in strays if stray[0] not in executor.in_hand])
    executor.lose(
        [a for a in executor.in_hand.values() if a.id in held and a.queued_at > sent_at - 1.0],
        "the ledger took it back",
    )


def begin_anyway() -> list[Any]:
    """Neither the answer of a claim nor the call of a body looks at the lease."""
    claim = copies.claimer.Claimer.claim

    def act(self: Any, ledger: Any) -> None:
        node = self._node
        self._node = SimpleNamespace(id=node.id, lease_until=math.inf, wake=node.wake)
        try:
            claim(self, ledger)
        finally:
            self._node = node

    return [
        (copies.base_executor.BaseExecutor, "_trusted", lambda _self, _attempt: True),
        (copies.claimer.Claimer, "claim", act),
    ]


def claim_of_the_old() -> list[Any]:
    """The answer of a claim is acted on, whoever this node is by now."""
    claim = copies.claimer.Claimer.claim

    def act(self: Any, ledger: Any) -> None:
        node = self._node
        self._node = Unchanging(node)
        try:
            claim(self, ledger)
        finally:
            self._node = node

    return [(copies.claimer.Claimer, "claim", act)]


def body_of_the_old() -> list[Any]:
    """Nor does the call of a body ask whose claim it was."""

    def trusted(self: Any, attempt: Any) -> bool:
        del attempt
        return bool(copies.base_executor.boottime() < self._node.lease_until)

    return [*claim_of_the_old(), (copies.base_executor.BaseExecutor, "_trusted", trusted)]


class Unchanging:
    """A node with the identity that it had."""

    def __init__(self, node: Any) -> None:
        self.id, self.wake, self._node = node.id, node.wake, node

    @property
    def lease_until(self) -> float:
        return float(self._node.lease_until)


class SameToken:
    """One token for all claims of a process."""

    def uuid4(self) -> str:
        return f"token of {K.process}"


def uncounted_loss(run: Any, rules: Any, *, removed: bool) -> Any:
    del rules, removed
    after = copies.admission._over(run, RunState.PENDING, "")
    return after._replace(expires_at=None)


def number_given_back(run: Any, rules: Any, *, removed: bool) -> Any:
    """An attempt that was interrupted goes back as if it had never begun."""
    del rules, removed
    after = copies.admission._over(run, RunState.PENDING, "")
    return after._replace(attempt=run.attempt - 1, expires_at=None)


def interrupted_again(run: Any, rules: Any, *, removed: bool) -> Any:
    """Whatever `on_lost` says."""
    return _after_interruption(run, replace(rules, on_lost="retry"), removed=removed)


_after_interruption = copies.admission.after_interruption


def counted_as_loss(run: Any, rules: Any, *, removed: bool) -> Any:
    """Whether its node was asked to stop or not."""
    return _after_loss(run._replace(stopping=False), rules, removed=removed)


_after_loss = copies.admission.after_loss


def look_is_a_failure(run: Any, ending: Any, *rest: Any, **more: Any) -> Any:
    """It counts against `retries`."""
    after = _after_look(run, ending, *rest, **more)
    return after._replace(failures=run.failures + 1)


def looks_for_ever(run: Any, ending: Any, again_in: float, wait_up_to: float, **more: Any) -> Any:
    """Whatever `wait_up_to` says."""
    del wait_up_to
    return _after_look(run, ending, again_in, math.inf, **more)


def first_look_forgotten(run: Any, *rest: Any, **more: Any) -> Any:
    """The wait begins anew with every look."""
    return _after_look(run._replace(looking_since=None), *rest, **more)


_after_look = copies.admission.after_look


def leaves_at_once(self: Any, parts: Any) -> None:
    """A stop does not keep the node for bodies that go on."""
    del parts
    self._leave()


def deaf_roll(st: Any, node: str, application: str, stopping: bool = False) -> Any:
    """Lists what the caller has; what the dead had is nobody's business."""
    alive = Rows.alive
    generator = statements_reconcile(st, node, application, stopping)
    try:
        while True:
            Rows.alive = lambda _self, _node: True  # type: ignore[method-assign, assignment]
            want = next(generator)
            Rows.alive = alive  # type: ignore[method-assign]
            yield want
    except StopIteration as stop:
        return stop.value
    finally:
        Rows.alive = alive  # type: ignore[method-assign]


statements_reconcile = statements.reconcile


def forgetful_tell(self: Any, session: Any) -> None:
    try:
        _tell(self, session)
    except Exception:
        self._sent = []
        raise


_tell = copies.completer.Completer._tell


def careless_plan(self: Any, batch: Any) -> int:
    inserted = 0
    for planned in batch:
        row = self._tables.jobs.get(planned.id)
        if row is not None:
            self._tables.put(replace(row, next_due=planned.then_due))
            inserted += self._tables.insert(row, planned.runs)
    return inserted


def insert_all(self: Any, job: Any, runs: Any) -> int:
    """A second run for a due time that has one."""
    for new in runs:
        self.keys[job.id].pop(copies.memory_tables.due_key(new.scheduled_for), None)
    return int(_insert(self, job, runs))


_insert = copies.memory_tables.Tables.insert


def compared_in_force(row: Any, spec: Any, release: int) -> Any:
    """What the code last said is not remembered."""
    return _synced(None if row is None else replace(row, override=None), spec, release)


_synced = copies.admission.synced


def prune_all(self: Any, application: str, *, before: float, **rest: int) -> Pruned:
    """Whatever is old goes, open or not, and nobody notes it."""
    del rest
    old = [
        run for row in self._tables.of(application) for run in self._tables.keys[row.id].values()
        if run.scheduled_for < before and run.state is not RunState.RUNNING
    ]  # fmt: skip
    for run in old:
        self._tables.delete(run)
    return Pruned(len(old), None)


def backfill_forgotten() -> list[Any]:
    """A due time without a run is taken for one that has not run, whatever retention has removed."""
    offered = copies.verbs.backfillable

    def backfillable(*args: Any, **_options: Any) -> Any:
        return offered(*args, even_forgotten=True)

    return [
        (copies.verbs, "backfillable", backfillable),
        (copies.memory_ledger, "_forgotten", lambda _row, _asked: False),
    ]


# Followers


def forgetting(ended_so: Callable[[Any, Any, str], bool]) -> Callable[[], list[Any]]:
    """An ending of this kind takes the mark away."""

    def end(self: Any, run: Any, state: Any, reason: str, now: float) -> None:
        _end(self, run, state, reason, now)
        if ended_so(run, state, reason):
            run.owes = False

    return lambda: [(copies.memory_tables.Tables, "end", end)]


_end = copies.memory_tables.Tables.end


def completed_forgets(self: Any, ending: Any) -> Any:
    """The completer's ending of a run that succeeded takes the mark away."""
    ended = _finish(self, ending)
    if ended.accepted and ended.state is RunState.SUCCEEDED:
        self._tables.runs[ending.id].owes = False
    return ended


_finish = copies.memory_ledger.MemoryLedger._finish


def own_transaction_forgets(setting: Any, run: Any, token: str, work: Any) -> None:
    """The completion in the body's own transaction takes the mark away."""
    _succeeded(setting, run, token, work)
    found = setting.store.server.rows.tables.runs.get(run)
    if found is not None:
        found.owes = False


_succeeded = application._succeeded


def insert_unmarked(self: Any, job: Any, runs: Any) -> int:
    """What is planned does not owe."""
    before = set(self.keys[job.id])
    inserted = _insert(self, job, runs)
    for key in self.keys[job.id].keys() - before:
        self.keys[job.id][key].owes = False
    return int(inserted)


def request_unmarked(self: Any, request: Any, noted: Any) -> Any:
    """What is requested does not owe."""
    row = _request_run(self, request, noted)
    if row is not None and row.id in self._tables.runs:
        self._tables.runs[row.id].owes = False
    return row


_request_run = copies.memory_ledger.MemoryLedger._request_run


def reopen_unmarked(self: Any, row: Any, run: Any, *rest: Any) -> Any:
    """A run that is retried owes what it owed before, and that was paid."""
    owed = run.owes
    reopened = _reopen(self, row, run, *rest)
    run.owes = owed
    return reopened


_reopen = copies.memory_ledger.MemoryLedger._reopen


def by_the_servers_clock(self: Any, application: str, limit: int, *, beyond: Any, **_as_of: Any) -> Any:
    """What follows is due now, whatever time the node goes by."""
    return self._session.ask("follow_up", statements.follow_up, application, limit, beyond, None)


def paid_first(self: Any, application: str, limit: int, **_page: Any) -> Any:
    """The marks are taken away in one transaction, and the rows are written in the next one."""
    owing = self._session.ask("follow_up", _take_marks, application)
    return self._session.ask("follow_up", _pay, owing, application, limit)


def _take_marks(st: Any, application: str) -> Any:
    yield st.gap()
    owing = st.server.rows.tables.owed(application)
    for run in owing:
        run.owes = False
    return owing


def _pay(st: Any, owing: Any, application: str, limit: int) -> Any:
    yield st.gap()
    for run in owing:
        run.owes = run.state.final
    return st.server.rows.ledger.follow_up(application, limit)


def unsaid_debt(st: Any, node: str, application: str, stopping: bool = False) -> Any:
    """Only who ends a run follows it up."""
    answer = yield from statements_reconcile(st, node, application, stopping)
    return replace(answer, owed=False)


def old_and_owing(self: Any, row: Any, before: float, keep: int) -> Any:
    """Retention does not look at marks."""
    runs = list(self._tables.keys[row.id].values())
    owing = [run for run in runs if run.owes]
    for run in owing:
        run.owes = False
    try:
        return list(_old(self, row, before, keep))
    finally:
        for run in owing:
            run.owes = True


_old = copies.memory_ledger.MemoryLedger._old


def unlinked(self: Any, row: Any) -> None:
    """Only runs that are inserted later owe a job that begins to follow."""
    parent = self.job(row.spec.application, row.spec.rules.after or "")
    before = {} if parent is None else {run.id: run.owes for run in self.open[parent.id].values()}
    _link(self, row)
    for run, owed in before.items():
        self.runs[run].owes = owed


_link = copies.memory_tables.Tables.link


def begins_anyway(on: str, state: Any, attempt: int) -> bool:
    """However the run ended that it follows."""
    del on, state, attempt
    return True


# Slots and retries


def slot_kept(self: Any, run: Any, after: Any, now: float) -> None:
    """A run that is as if it had not been claimed has its slot again."""
    slot = run.slot
    _over(self, run, after, now)
    if not run.state.final:
        run.slot = slot


def reopen_elsewhere(self: Any, row: Any, run: Any, *rest: Any) -> Any:
    """A retry is a run of another key."""
    del self._tables.keys[row.id][run.key]
    run.key += " again"
    return _reopen(self, row, run, *rest)


def look_is_a_loss(run: Any, ending: Any, *rest: Any, **more: Any) -> Any:
    """It counts against `max_lost`."""
    after = _after_look(run, ending, *rest, **more)
    return after._replace(losses=run.losses + 1)


# Clocks


def believed() -> list[Any]:
    """No jump is too far to be believed, or noticed."""
    return [(copies.timekeeper, "JUMP", 1e12), (copies.missed, "JUMP", 1e12), (copies.planner, "JUMP", 1e12)]


def planned_by_anybody() -> list[Any]:
    """However long it should have been planned."""
    return [(copies.planner.Planner, "_for_others", lambda *_, **__: False)]


def healed_once() -> list[Any]:
    """By whoever begins to plan, or believes another time."""
    return [(copies.planner, "REPLAN_FOR", 0.0)]
