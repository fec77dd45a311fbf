"""Everything that a node says to PostgreSQL, once, without threads: for roles that may do all of it and no more."""

import uuid
from typing import Any

import psycopg

from tenure.core.alerts import AlertKind, AlertLimits, Symptom, steps
from tenure.core.backfills import NewBackfill, Steer
from tenure.core.cluster import Acquire, AcquireOutcome, Beat, BeatVerdict, NodeCard
from tenure.core.messages import (
    Action,
    ActionQuery,
    ClaimRequest,
    Ending,
    JobChange,
    LogLine,
    LogTrim,
    NewRun,
    Planned,
    Progress,
    RunQuery,
    RunRequest,
)
from tenure.core.records import Change, JobId, JobSpec, NodeFacts, Rules, RunState
from tenure.stores import Session, store_for
from tenure.stores.ledger import Ledger
from tenure.triggers import every
from tenure.util.clock import boottime

HOURLY = every("1h").to_json()


def run(url: str) -> None:
    """All of it, as the role in the URL."""
    store = store_for(url, migrate=False)
    store.prepare()
    session = store.session("battery", 5.0)
    try:
        elections(url, session)
        jobs(url, session)
    finally:
        session.close()


def elections(url: str, session: Session) -> None:
    first, second, third = (join(session) for _ in range(3))
    assert session.hold_session_lock(first, 2.0) is not None
    name = f"election {uuid.uuid4()}"
    assert session.check_session_lock((name,), 1.0).held
    term = session.acquire(Acquire(first, name, fenced=True)).term
    assert term
    with psycopg.connect(url) as connection:
        connection.execute("SELECT tenure.fence(%s, %s, %s)", [name, term, first])
    assert session.acquire(Acquire(second, name, fenced=True)).outcome is AcquireOutcome.HELD
    assert session.ask(name) == term
    assert session.leader(name)
    assert session.elections()
    assert session.release(first, name, term, "resigned")
    assert session.acquire(Acquire(second, name)).outcome is AcquireOutcome.GRANTED
    assert session.succeed(second, "proved", Acquire(third, name))[1].outcome is AcquireOutcome.GRANTED
    assert session.terms(name, 10)
    assert session.cards([third])
    assert not session.declare(second, None, "again")
    session.leave(third, "bye")
    session.sweep()
    session.rehearse()
    epoch = session.epoch()
    assert epoch.settled
    session.raise_epoch(epoch)
    session.listen(first)


def backfills(ledger: Ledger, application: str, session: Session) -> None:
    """A backfill that runs to its end, and one that is paused, resumed, cancelled and forgotten."""
    now, node = round(ledger.now()), join(session)
    assert ledger.change(change(application, "filled", Change.ADDED, queue="filled"))
    due = tuple(float(now - ago) for ago in (7200, 7100, 7000))
    number, (first,) = ledger.create_backfill(NewBackfill(application, "filled", due[0], due[-1], due[:2], at_once=1))
    assert number is not None
    token = str(uuid.uuid4())
    assert [run.id for run in ledger.claim(ClaimRequest(node, application, token, 1, queues=("filled",))).runs] == [
        first.id
    ]
    ledger.finish([Ending(first.id, token, RunState.FAILED)])
    assert ledger.advance_backfills(application, 10).begins
    again, _ = ledger.create_backfill(
        NewBackfill(application, "filled", due[0], due[-1], due, ("failed", "missing"), 1)
    )
    assert again is not None
    for one in (number, again):
        assert ledger.steer_backfill(application, one, Steer.CANCEL, by="", why="")
    last, _ = ledger.create_backfill(
        NewBackfill(application, "filled", due[0], due[-1], due, at_once=1, action=Action("backfill", "ada"))
    )
    assert last is not None
    for steer in (Steer.PAUSE, Steer.RESUME, Steer.CANCEL):
        assert ledger.steer_backfill(application, last, steer, by="ada", why="why", action=Action(steer, "ada"))
    assert len(ledger.backfills(application)) == 3
    assert ledger.forget_backfills(application, ledger.now() + 60, 10) == 3
    session.leave(node, "bye")


def jobs(url: str, session: Session) -> None:
    ledger, application = session.ledger, f"app {uuid.uuid4()}"
    now = ledger.now()
    due = NewRun(now - 5, now - 5, None), NewRun(now - 4, now - 4, None)
    late = NewRun(now - 300, now - 300, now - 200)
    ledger.sync(application, 1, [change(application, "code", Change.ADDED)])
    ledger.sync(application, 2, [change(application, "code", Change.ADDED)])
    assert ledger.change(change(application, "job", Change.ADDED, runs=(late, *due)))
    assert ledger.change(change(application, "pooled", Change.ADDED, runs=due, pool="pool"))
    assert ledger.change(change(application, "waits", Change.ADDED, runs=due, overlap="wait", queue="another"))
    assert ledger.change_many([change(application, "planned", Change.ADDED, next_due=now - 1)])
    assert ledger.applications()
    assert ledger.functions(application) == {"f"}
    (unplanned,) = ledger.unplanned(application, before=now, limit=10)
    plan = Planned(unplanned.id, unplanned.generation, now - 1, now + 3600, (NewRun(now - 1, now - 1, None),))
    assert unplanned.next_due is not None
    assert ledger.plan([plan]) in {0, 1}
    (missed,) = ledger.missed(application, 10)
    assert ledger.settle(
        missed.id, missed.generation, make_up=[], skip=[one.id for one in missed.runs], reason="missed"
    )
    runs(url, session, application)
    skipped, ahead = (NewRun(at, at, None, RunState.SKIPPED, "missed") for at in (now - 3, now + 600))
    assert ledger.change(change(application, "follows", Change.ADDED, after="parent"))
    assert ledger.change(change(application, "parent", Change.ADDED, runs=(skipped, ahead)))
    assert ledger.owed(application, 10)
    assert ledger.follow_up(application, 10).paid == 2
    assert ledger.change(change(application, "parent", Change.UPDATED))
    assert ledger.followers(application, "parent")
    figures(ledger, application)
    backfills(ledger, application, session)
    for what in (Change.PAUSED, Change.RESUMED, Change.UPDATED, Change.REMOVED):
        assert ledger.change(change(application, "planned", what))
    assert ledger.unbegun(unplanned.id, 99) == []
    assert ledger.changes(application)
    assert ledger.jobs(application)
    assert ledger.prune(application, before=now + 1, keep=0, limit=100).removed >= 1
    assert ledger.forget(application, before=now + 60, defined=(), limit=9).jobs >= 0
    ledger.forget_actions(application, before=now + 60, keep=0, limit=9)
    alerts(ledger, application)
    assert ledger.guard(application, "key", None, "me")
    ledger.unguard(application, "key", "me")
    ledger.set_pool(application, "pool", 2)
    ledger.set_pool(application, "pool", 3)
    assert [pool.size for pool in ledger.pools(application)] == [3]


def figures(ledger: Ledger, application: str) -> None:
    now = ledger.now()
    assert ledger.count_hours(application, since=None, beyond=JobId(0), jobs=99).runs
    for up_to in (1.0, 2.0):
        ledger.note_counted(application, up_to)
    assert ledger.plan([_late(ledger, application, now - 20 * 86400)]) == 1
    assert ledger.count_hours(application, since=now, beyond=JobId(0), jobs=99).changed
    assert ledger.prune(application, before=now - 19 * 86400, keep=0, limit=100).removed == 1
    assert ledger.close_days(application, before=now - 14 * 86400, oldest=0.0, limit=9) == 1
    assert ledger.days(application, "planned", 0.0, now)
    assert ledger.hours(application, "job", 0.0, now)
    assert ledger.totals(application, now - 86400)
    assert ledger.counts_by_queue(application, now - 86400)
    assert ledger.close_days(application, before=now - 14 * 86400, oldest=now - 86400, limit=9) == 1


def _late(ledger: Ledger, application: str, due: float) -> Planned:
    (job,) = ledger.jobs(application, "planned")
    assert job.next_due is not None
    new = NewRun(due, due, None, RunState.SKIPPED, "missed")
    return Planned(job.id, job.generation, job.next_due, job.next_due + 1, (new,))


def alerts(ledger: Ledger, application: str) -> None:
    limits, fails = AlertLimits(), Symptom(AlertKind.FAILING, "job", "it fails", ledger.now())
    orphaned = Symptom(AlertKind.ORPHANED, "job", "it is orphaned", ledger.now())
    for found in ([orphaned], [fails], []):
        now, known = ledger.now(), ledger.open_alerts(application)
        made = steps(application, known, found, judged=tuple(AlertKind), now=now, limits=limits)
        assert all(ledger.note_alerts(application, now, made, ["log"]))
    (message,) = ledger.claim_messages(application, "me", ["log"], 60.0, 10)
    assert ledger.end_message(message.number, "me")
    assert ledger.alert_messages(application, [message.alert.id])
    assert ledger.alert_history(application, 10)
    assert ledger.forget_alerts(application, now + 60, 10) == 1
    assert ledger.dead_nodes(application, now) == []
    assert ledger.job_marks(application, JobId(0), 10, 10)


def runs(url: str, session: Session, application: str) -> None:
    ledger, node = session.ledger, join(session)
    for functions in ({"f"}, {"f", str(uuid.uuid4())}):
        ledger.write_facts(NodeFacts(node, application, frozenset(functions), None, 1, 0, "0", "2026a"))
    assert ledger.nodes(application)
    ledger.remove_facts(node, application)
    taken = claim(ledger, node, application)
    assert len(taken) >= 2
    (first, token), (second, other), *rest = taken.items()
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT tenure.once(%s, %s, 'key')", [first, token]).fetchone() == (True,)
        connection.execute("SELECT tenure.complete(%s, %s, NULL)", [first, token])
    said = [LogLine(first, 1, place, 0.0, "said") for place in range(3)]
    ledger.keep_log(said[:2])
    ledger.keep_log(said[2:], [LogTrim(first, 1, 0, 1)])
    assert ledger.log(first) == said[1:]
    for done in (1.0, 2.0):
        ledger.keep_progress([Progress(first, 1, done, None, "", 0.0)])
    assert ledger.progress([first])
    assert ledger.attempts(first)
    ledger.note_begun([(second, other, ledger.now())])
    ledger.finish([Ending(second, other, RunState.PENDING, "failed", again_in=3600.0)])
    ledger.put_back(rest)
    assert ledger.cancel(second, "me", "why", Action("cancel", "me", "why"))
    assert ledger.retry([second], "me")[0]
    ledger.overdue(application, ledger.now(), 10)
    ledger.running(application)
    ledger.stored_arguments(application, "", 10)
    ledger.requested_arguments(application, first, 10)
    ledger.unserved(application, [("f", None)], 10)
    (asked,) = ledger.request_runs([RunRequest(application, "code", str(uuid.uuid4()), None)])
    assert asked
    lost = join(session)
    assert claim(ledger, lost, application)
    assert session.declare(lost, None, "proved")
    assert ledger.reconcile(node, application).lost
    assert ledger.runs(RunQuery(application))
    ledger.actions(ActionQuery(application))
    assert ledger.stats(application, "job").runs


def join(session: Session) -> str:
    node = str(uuid.uuid4())
    session.join(NodeCard(node, "battery", 10.0))
    assert session.beat(Beat(node, 1, boottime(), boottime() + 8, None, ())).verdict is BeatVerdict.RENEWED
    return node


def claim(ledger: Ledger, node: str, application: str) -> dict[int, str]:
    token = str(uuid.uuid4())
    return {run.id: token for run in ledger.claim(ClaimRequest(node, application, token, 10)).runs}


def change(
    application: str,
    name: str,
    what: Change,
    *,
    next_due: float | None = None,
    runs: tuple[NewRun, ...] = (),
    **rules: Any,
) -> JobChange:
    spec = JobSpec(application, name, "f", HOURLY, Rules(**rules)) if what in {Change.ADDED, Change.UPDATED} else None
    return JobChange(application, name, what, spec, next_due, runs)
