"""The application in every simulated process: a scheduler with a few jobs, an election of its own, and people who do things to jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sim.database import statements
from sim.database.store import SimStore
from sim.promises.checks import APPLICATION, ELECTION, Checker
from sim.runtime import copies, fakes
from sim.runtime.kernel import K, Process
from tenure.core.backfills import NewBackfill
from tenure.core.cluster import Cadence
from tenure.core.records import RunState
from tenure.errors import NotYet, StoreError, StoreUnavailable, TenureError
from tenure.jobs.decorators import Definitions
from tenure.triggers import Trigger, cron, every

JOBS: dict[str, dict[str, Any]] = {
    "tick": {"seconds": 3, "max_lost": 1},
    "pair": {"seconds": 2, "overlap": "allow", "max_running": 2, "missed": "all", "grace": 4},
    "wait": {"seconds": 4, "overlap": "wait", "retries": 2, "backoff": 0.5},
    "swap": {"seconds": 5, "overlap": "replace"},
    "free": {"seconds": 4, "overlap": "allow", "max_lost": 9},
    "once": {"seconds": 5, "missed": "skip", "grace": 3, "on_lost": "fail"},
}
MORE: dict[str, dict[str, Any]] = {
    "look": {"seconds": 6, "overlap": "wait", "wait_up_to": 4, "retries": 1, "backoff": 0.5, "max_lost": 9},
    "dock": {"seconds": 3, "pool": "port", "max_lost": 9},
    "quay": {"seconds": 4, "pool": "port", "overlap": "wait", "retries": 1, "backoff": 0.5},
}
FOLLOWING: dict[str, dict[str, Any]] = {
    "load": {"seconds": 3, "missed": "skip", "grace": 3, "max_lost": 1},
    "report": {"after": "load", "overlap": "allow", "max_lost": 9, "pool": "gate"},
    "alarm": {"after": "load", "on": "failure", "overlap": "wait", "retries": 1, "backoff": 0.5},
    "sweep": {"after": "report", "on": "end", "overlap": "allow", "max_lost": 9, "pool": "gate", "wait_up_to": 4},
}
"""A job, two that follow it, and one that follows one of these."""
BESIDE = (("look",), ("dock", "quay"), tuple(FOLLOWING), tuple(FOLLOWING))
"""Of these, in some of the histories, beside the others."""
DIRECTED: dict[str, dict[str, Any]] = {
    "zone": {"cron": "*/4 * * * * *", "max_lost": 9},
    "order": {"max_lost": 1},
    "ship": {"after": "order", "on": "end"},
}
"""In directed schedules alone."""
LONG = {
    "zone": 2.0,
    "tick": 2.0,
    "pair": 3.0,
    "wait": 3.0,
    "swap": 14.0,
    "free": 2.0,
    "once": 1.0,
    "look": 0.5,
    "dock": 1.5,
    "quay": 1.5,
    "load": 2.5,
    "report": 0.8,
    "alarm": 0.8,
    "sweep": 0.5,
    "order": 4.0,
    "ship": 0.5,
}
"""How long a body may take."""
NUMBERED, AT_ONCE = frozenset({"free", "wait"}), 2
"""The jobs that people backfill a few due times at a time, and how many; those of others are requested all at once."""
BACKFILLED = 40.0
"""How far back people look for due times that did not run: further than the ledger remembers."""
NOT_YET = {"look": 0.6, "sweep": 0.2}
"""How often a body of such a job does not find what it needs."""
SLOTS, KEYS = 2, 4
"""How many slots people use for a job, and how many keys of their own."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What all processes of a history have in common."""

    store: SimStore
    checker: Checker
    cadence: Cadence
    jobs: tuple[str, ...]
    host_evidence: bool
    session_evidence: bool
    leaves: float
    lingers: float
    """How likely a leader writes once more when its term is over."""
    keep_for: float
    deaf: float
    """How likely a body does not look up before it has ended."""
    completes: float
    """How likely it completes its run in a transaction of its own …"""
    leaks: float
    """… and leaves that open."""
    alone: tuple[str, str] = ("", "")
    """A job, and the only node that has its function."""


class NoListeners:
    """Nobody wants to hear."""

    of_beats: tuple[Callable[[str, float], None], ...] = ()

    def wants(self, kind: object) -> bool:
        del kind
        return False

    def off(self, listener: Callable[..., object]) -> None:
        """None was on."""

    def stop(self, patience: float) -> None:
        """Nobody to wait for."""


def live(setting: Setting) -> None:
    """The main thread of a process: take part, and lead when it is one's turn."""
    process = K.process
    assert process is not None
    engine = _engine(setting, process)
    insist(lambda: engine.start(setting_changes(setting, process)))
    parts = engine._parts
    process.things.update(engine=engine, node=parts.node, planner=parts.election, executor=parts.executor)
    election = copies.election.Election(
        setting.store,
        ELECTION,
        label=process.name,
        ttl=setting.cadence.ttl,
        heartbeat_every=setting.cadence.heartbeat_every,
        attempt_timeout=setting.cadence.attempt_timeout,
        host_evidence=setting.host_evidence,
        session_evidence=setting.session_evidence,
    )
    process.things["election"] = election
    insist(election.start)
    lead(setting, election)


def lead(setting: Setting, election: Any) -> None:
    """Lead when it is one's turn, until the end of the process."""
    for term in election.terms():
        while term.trusted:
            if K.rng.random() < 0.5:
                _write_fenced(setting, term)
            if not term.wait(K.rng.uniform(0.5, 2.0)):
                break
            if K.rng.random() < setting.leaves and not setting.store.network.calm:
                break
        if K.rng.random() < setting.lingers:  # work that was not told, or did not listen
            fakes.sleep(K.rng.choice((0.0, 0.5, 3.0)))
            _write_fenced(setting, term)


def leave(setting: Setting) -> None:
    """Stop as a deployment does."""
    del setting
    process = K.process
    assert process is not None
    if (engine := process.things.pop("engine", None)) is not None:
        engine.stop(K.rng.choice((0.0, 1.0, 3.0)))
    if (election := process.things.get("election")) is not None:
        election.stop(2.0)


def reload(setting: Setting) -> None:
    """Stop the scheduler and start it again, in the same process."""
    process = K.process
    assert process is not None
    if (engine := process.things.pop("engine", None)) is None:
        return  # it has not started yet, or stops for good
    engine.stop(K.rng.choice((0.0, 0.5)))
    engine = _engine(setting, process)
    insist(lambda: engine.start(setting_changes(setting, process)))
    process.things.setdefault("former", []).append(process.things["executor"])  # may wait for what has not ended
    parts = engine._parts
    process.things.update(engine=engine, node=parts.node, planner=parts.election, executor=parts.executor)


def setting_changes(setting: Setting, process: Process) -> Any:
    """What a node brings to the ledger when it starts."""
    session = setting.store.session("now", setting.cadence.attempt_timeout)
    try:
        return process.things["definitions"].changes(session.ledger.now())
    finally:
        session.close()


def _engine(setting: Setting, process: Process) -> Any:
    definitions = Definitions(APPLICATION, "UTC", 0)
    job, node = setting.alone
    for name in setting.jobs:
        if name == job and process.name.partition(".")[0] != node:
            continue
        policy = dict((JOBS | MORE | FOLLOWING | DIRECTED)[name])
        definitions.define(_body(setting, name), _trigger(policy), name, kwargs=None, process=False, policy=policy)
    process.things["definitions"] = definitions
    options = copies.engine.EngineOptions(
        application=APPLICATION,
        tz="UTC",
        cadence=setting.cadence,
        capacity=3,
        keep_for=setting.keep_for,
        keep=3,
        label=process.name,
        host_evidence=setting.host_evidence,
        session_evidence=setting.session_evidence,
    )
    return copies.engine.Engine(setting.store, definitions.registry, options, NoListeners())


def _trigger(policy: dict[str, Any]) -> Trigger | None:
    """Taken from the words of a definition; None for a job that follows another, or runs on request."""
    if "cron" in policy:
        return cron(policy.pop("cron"), "Europe/Berlin")
    return every(seconds=policy.pop("seconds")) if "seconds" in policy else None


def insist(what: Callable[[], Any]) -> Any:
    """As whoever restarts a program that could not start."""
    while True:
        try:
            return what()
        except TenureError:
            fakes.sleep(0.5)


def _body(setting: Setting, name: str) -> Callable[..., None]:
    def body(run) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - so it is given the run
        checker = setting.checker
        try:
            mark = checker.begun(run)
        except Exception as error:  # or it would look like a body that failed
            checker.broken("the simulator", f"a body cannot be watched: {error!r}")
            raise
        try:
            draw = K.rng.random()
            long = K.rng.uniform(0.0, LONG[name])
            if setting.deaf and K.rng.random() < setting.deaf:
                fakes.sleep(2 * long)
            elif not run.wait(long) and draw < 0.5:
                run.check()
            if name in NOT_YET and K.rng.random() < NOT_YET[name]:
                raise NotYet(K.rng.choice((0.3, 1.5, 9.0)), "not there")
            if draw < 0.15:
                raise ValueError("it failed")
            if draw > 1 - setting.completes:
                _complete(setting, run, leaks=draw > 1 - setting.leaks)
        finally:
            checker.over(mark)

    return body


def _write_fenced(setting: Setting, term: Any) -> None:
    """An effect of the leader's, in a transaction that is fenced with its term."""
    session = None
    try:
        session = setting.store.session("effects", setting.cadence.attempt_timeout)
        allowed, transaction = session.call("fence", statements.fence, term.election, term.number, term.node)
        if allowed:
            fakes.sleep(K.rng.choice((0.0, 0.0, 0.4, 3.0)))
            session.call("commit", _commit, transaction, lambda: setting.checker.fenced(term.election, term.number))
    except StoreError:
        pass
    finally:
        if session is not None:
            session.close()


def _complete(setting: Setting, run: Any, *, leaks: bool) -> None:
    """`run.complete(conn)` in a transaction of the body's own. One that leaks is neither committed nor closed, and every other of these goes on working."""
    session = setting.store.session("effects", setting.cadence.attempt_timeout)
    try:
        accepted, transaction = session.call("complete", statements.complete, run.id, run._control.claim.token)
        if not accepted:
            run.check()
            raise ValueError("refused")
        run._control.note_completed()
        if leaks:
            transaction.at_work = K.rng.random() < 0.5
            return
        fakes.sleep(K.rng.choice((0.0, 0.0, 0.5)))
        work = (run._control.claimed.job, run.key)
        session.call(
            "commit", _commit, transaction, lambda: _succeeded(setting, run.id, run._control.claim.token, work)
        )
    finally:
        if not (leaks and run._control.completed):
            session.close()


def _succeeded(setting: Setting, run: Any, token: str, work: Any) -> None:
    rows = setting.store.server.rows
    setting.checker.ended(run, token, RunState.SUCCEEDED)
    setting.checker.effect(work)
    if run in rows.tables.runs:
        rows.tables.end(rows.tables.runs[run], RunState.SUCCEEDED, "", rows.now())


def _commit(st: Any, transaction: Any, effect: Callable[[], None]) -> Any:
    yield st.gap()
    if transaction.over:
        raise StoreUnavailable("the transaction was rolled back")
    effect()
    transaction.finish()


# People


def people(setting: Setting, what: str, name: str) -> None:
    """Somebody does something to a job, from a process of its own."""
    try:
        session = setting.store.session("people", setting.cadence.attempt_timeout)
        ledger = session.ledger
        rows = ledger.jobs(APPLICATION, name)
        now = ledger.now()
        if what == "resign":
            session.ask("ask", _ask_to_resign)
        elif rows:
            _do(setting, ledger, rows[0], now, what)
        session.close()
    except StoreError:
        pass


def _do(setting: Setting, ledger: Any, job: Any, now: float, what: str) -> None:
    verbs = copies.verbs
    if what == "backfill" and job.spec.name in NUMBERED:
        since = now - BACKFILLED
        due = verbs.backfillable(ledger, job, since, now, now).due
        ledger.create_backfill(NewBackfill(APPLICATION, job.spec.name, since, now, tuple(due), at_once=AT_ONCE))
        return
    if what == "pause":
        paused = ledger.change(verbs.paused(job, now, K.rng.choice((2.0, 6.0))))
        if paused is not None and not verbs.until_answered(ledger, paused):
            setting.checker.paused(paused)
    elif what == "resume":
        ledger.change(verbs.resumed(job, now))
    elif what == "update" and job.spec.trigger is not None:
        ledger.change(verbs.updated(job, now, trigger=every(seconds=K.rng.choice((2, 3, 4)))))
    elif what in {"update", "retouch"}:
        ledger.change(verbs.updated(job, now, policy={"retries": K.rng.choice((1, 2, 3))}))
    elif what == "ask" and job.spec.rules.pool and K.rng.random() < 0.5:
        ledger.set_pool(APPLICATION, job.spec.rules.pool, K.rng.choice((1, 2)))
    elif what == "ask":
        ledger.request_runs([verbs.requested(job, f"manual-{K.rng.getrandbits(32):08x}", None)])
    elif what in {"later", "slot"}:
        ledger.request_runs([_later(job, now, slot=what == "slot")])
    elif what == "backfill" and job.spec.trigger is not None:
        offered = verbs.backfillable(ledger, job, now - BACKFILLED, now, now)
        ledger.request_runs(verbs.backfilled(job, offered.due))
    elif what == "retry":
        over = [run for run in ledger.runs(_open(job)) if run.state.final]  # also such that must not run again
        if over:
            ledger.retry([K.rng.choice(over).id], "somebody")
    elif what == "cancel":
        open_runs = [run for run in ledger.runs(_open(job)) if not run.state.final and run.scheduled_for <= now]
        if open_runs:
            ledger.cancel(K.rng.choice(open_runs).id, "somebody", "")


def _later(job: Any, now: float, *, slot: bool) -> Any:
    """A run at a time to come, under a key that others may use as well, or in a slot."""
    at = round(now + K.rng.choice((0.0, 0.3, 1.0, 4.0)), 6)
    if not slot:
        return replace(copies.verbs.requested(job, f"at {K.rng.randrange(KEYS)}", None), scheduled_for=at)
    request = copies.verbs.requested(job, f"manual-{K.rng.getrandbits(32):08x}", None)
    place, if_waiting = f"slot {K.rng.randrange(SLOTS)}", K.rng.choice(("keep", "replace", "later"))
    return replace(request, scheduled_for=at, slot=place, if_waiting=if_waiting)


def _open(job: Any) -> Any:
    from tenure.core.messages import RunQuery

    return RunQuery(APPLICATION, job.spec.name, limit=20)


def _ask_to_resign(st: Any) -> Any:
    yield st.gap()
    st.server.rows.ask(ELECTION)
