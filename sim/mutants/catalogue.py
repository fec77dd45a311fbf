"""Deliberately broken protocols, each one rule of the design left out. A simulator that does not catch them proves nothing.

`hole` names the promise, or the attacks on the design that found the hole: 2.4 is the fourth hole of the second attack. A mutant may ask for histories in which its hole can matter at all (`where`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sim.database import rows, statements, store
from sim.explore.plans import Fault, Plan
from sim.mutants import broken
from sim.runtime import application, copies, hosts
from tenure.core.records import RunState
from tenure.core.run_rules import OVERLAP, PAUSED

Patch = tuple[Any, str, Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A rule left out."""

    name: str
    hole: str
    patches: Callable[[], list[Patch]]
    where: Callable[[Plan], Plan] = lambda plan: plan
    schedule: str = ""
    """The directed schedule that catches it, where seeds are too rarely hit."""
    covered: str = ""
    """Another rule stands in for this one, so that nothing must give it away: which, and why that is enough."""


def named(name: str) -> Mutant:
    """The mutant of this name."""
    found = next((mutant for mutant in MUTANTS if mutant.name == name), None)
    if found is None:
        raise SystemExit(f"there is no mutant {name!r}. There are: {', '.join(repr(m.name) for m in MUTANTS)}.")
    return found


@contextmanager
def applied(mutant: Mutant | None) -> Iterator[None]:
    """While this lasts, the rule is left out."""
    patches = mutant.patches() if mutant is not None else []
    before = [(where, name, _raw(where, name)) for where, name, _ in patches]
    try:
        for where, name, value in patches:
            setattr(where, name, value)
        yield
    finally:
        for where, name, value in before:
            setattr(where, name, value)


def _raw(where: Any, name: str) -> Any:
    return vars(where)[name]


def sessions(plan: Plan) -> Plan:
    """Sessions are evidence, and die often."""
    killed = [
        replace(fault, kind="kill session", long=9.0) if fault.kind in {"ask", "cancel", "update", "pause"} else fault
        for fault in plan.faults
    ]
    return replace(plan, session_evidence=True, host_evidence=False, faults=tuple(killed))


def failover(plan: Plan) -> Plan:
    """A replica takes over, twice."""
    more = (Fault(12.0, "failover", 0, 1.9), Fault(24.0, "failover", 0, 1.9))
    kept = tuple(fault for fault in plan.faults if fault.kind not in {"failover", "step", "leap", "server crash"})
    return replace(plan, faults=tuple(sorted((*kept, *more), key=lambda fault: fault.at)))


def quick_failover(plan: Plan) -> Plan:
    """A replica takes over that does not know of the last grants; sessions are no evidence."""
    at = [round(6.0 + 3.3 * turn, 1) for turn in range(8)]
    kept = tuple(fault for fault in plan.faults if fault.kind in {"resign", "cut", "freeze"})
    more = tuple(Fault(moment, "failover", 0, 1.9) for moment in at)
    return replace(plan, session_evidence=False, faults=tuple(sorted((*kept, *more), key=lambda fault: fault.at)))


def steps(plan: Plan) -> Plan:
    """The server's clock jumps forward."""
    more = (Fault(10.0, "step", 0, 40.0), Fault(21.0, "step", 0, 40.0))
    kept = tuple(fault for fault in plan.faults if fault.kind not in {"step", "leap", "failover"})
    return replace(plan, faults=tuple(sorted((*kept, *more), key=lambda fault: fault.at)))


def quiet(plan: Plan) -> Plan:
    """No evidence: the watch alone."""
    return replace(plan, session_evidence=False, host_evidence=False)


def held_up(*ops: str) -> Callable[[Plan], Plan]:
    """Some statements are often held up inside the server, or their answers on the way."""

    def where(plan: Plan) -> Plan:
        op = ops[len(plan.faults) % len(ops)]
        weather = replace(plan.weather, worst=op, worse=10.0, held_up=0.05, slow=0.02, late=0.01)
        return replace(plan, weather=weather)

    return where


def narrow(plan: Plan) -> Plan:
    """One ending, and one run, at a time is all that arrives; and there are outages, after which many are to be told."""
    more = tuple(Fault(5.0 + 3.0 * turn, "server crash", 0, 2.0) for turn in range(6))
    faults = tuple(sorted((*plan.faults, *more), key=lambda fault: fault.at))
    return replace(plan, weather=replace(plan.weather, narrow=1), faults=faults)


def jobs(*names: str, then: Callable[[Plan], Plan] = lambda plan: plan) -> Callable[[Plan], Plan]:
    """Only jobs in which it can matter."""

    def where(plan: Plan) -> Plan:
        faults = tuple(replace(fault, job=names[index % len(names)]) for index, fault in enumerate(plan.faults))
        return then(replace(plan, jobs=names, faults=faults))

    return where


def edits(plan: Plan) -> Plan:
    """People change jobs all the time."""
    kinds = {"wall": "update", "ask": "update", "cancel": "pause", "resign": "resume", "slow clock": "update"}
    faults = tuple(replace(fault, kind=kinds.get(fault.kind, fault.kind)) for fault in plan.faults)
    return replace(plan, faults=tuple(fault for fault in faults if fault.kind not in {"step", "leap", "failover"}))


def stops(plan: Plan) -> Plan:
    """Many stops, and bodies that do not look up."""
    kinds = {"freeze": "reload", "resign": "stop", "cut": "reload", "kill session": "stop"}
    faults = tuple(replace(fault, kind=kinds.get(fault.kind, fault.kind)) for fault in plan.faults)
    return replace(plan, faults=faults, deaf=0.5)


def forgetful(plan: Plan) -> Plan:
    """A ledger that soon forgets what has ended, and functions that only one node has, which is away."""
    away = tuple(Fault(at, "freeze", plan.nodes - 1, 8.0) for at in (9.0, 20.0))
    faults = tuple(sorted((*plan.faults, *away), key=lambda fault: fault.at))
    return replace(plan, keep_for=2.0, alone=plan.jobs[0], faults=faults)


def docks(plan: Plan) -> Plan:
    """Jobs that share a pool."""
    return replace(plan, jobs=(*plan.jobs[:1], "dock", "quay"))


def looks(plan: Plan) -> Plan:
    """A job whose bodies do not find what they need."""
    return replace(plan, jobs=(*plan.jobs[:3], "look"))


def chain(plan: Plan) -> Plan:
    """Jobs that follow others."""
    return replace(plan, jobs=(*plan.jobs[:1], *application.FOLLOWING))


L, R, S = copies.lease, rows.Rows, statements
ML, MT = copies.memory_ledger.MemoryLedger, copies.memory_tables.Tables
MUTANTS: tuple[Mutant, ...] = (
    Mutant("trust anchored at the response", "G2", lambda: [(L, "step", broken.anchored_at_response)], quiet, "slow beat"),
    Mutant("death read from a stored time", "1.3, 1.11", lambda: [(S, "beat", broken.reaping_beat)], steps),
    Mutant("watch anchored at the sending", "1.20", broken.watch_at_send, quiet, "watch from sending"),
    Mutant("watch of half a ttl", "G2", lambda: [(copies.watch.Watch, "over", property(lambda w: w.unchanged >= w.ttl / 2))], quiet),
    Mutant("heartbeat without a check of the state", "2.3", lambda: [(R, "beat", broken.beat_of_the_dead)]),
    Mutant("late beats count", "2.4", lambda: [(R, "beat", broken.late_beat)], sessions, "late advert"),
    Mutant("lapsed term revived", "2.17", lambda: [(copies.election.Term, "trusted", property(broken.revived))], sessions),
    Mutant("released row deleted", "G1", lambda: [(R, "release", broken.deleting_release)]),
    Mutant("release without comparing the term", "G2", lambda: [(R, "release", broken.any_release)], held_up("release")),
    Mutant("grant over a live holder", "G2", lambda: [(R, "vacancy", broken.always_vacant)]),
    Mutant("grant without comparing term and holder", "G1", lambda: [(S, "acquire", broken.careless_acquire)], held_up("acquire")),
    Mutant("evidence without comparing the count", "1.20", lambda: [(R, "declarable", lambda rows, dead, _s, _t: rows.alive(dead))], lambda plan: held_up("declare")(quiet(plan)), "late declaration"),
    Mutant("open acquire released by a beat", "2.1", lambda: [(L, "_compare", broken.compare_open)], held_up("acquire"), "late grant"),
    Mutant("term taken away by an older snapshot", "2.2", lambda: [(L, "_compare", broken.compare_old)], held_up("beat")),
    Mutant("no wait after a session was seen free", "1.12", lambda: [(copies.watch.Suspicion, "ripe_at", property(lambda s: s.since))], sessions),
    Mutant("vanished session without comparing count and nonce", "2.4", lambda: [(R, "vacancy", broken.any_vacancy)], sessions, "old suspicion"),
    Mutant("trust prolonged by a session that the row does not name", "2.4", lambda: [(L.Lease, "terms_until", property(broken.newest_nonce))], sessions, "unsaid session"),
    Mutant("epoch not raised after failover", "1.10, 2.5", lambda: [(R, "settled", lambda *_: True)], failover),
    Mutant("epoch raised without waiting", "2.5", broken.no_wait, quick_failover),
    Mutant("fence that compares nothing", "1.8", lambda: [(R, "fenced_by", lambda *_: True)], schedule="stale fence"),
    Mutant("fence without a lock", "1.8", lambda: [(S, "fence", broken.open_fence)], sessions, "slow fence"),
    Mutant("claim without a check of the node", "2.3", broken.claim_of_the_dead, held_up("claim")),
    Mutant("count without the job's lock", "1.2", lambda: [(S, "claim", broken.claim_by_snapshot)], jobs("pair", "tick", "wait", then=held_up("claim"))),
    Mutant("pool counted without its lock", "pool", lambda: [(S, "claim", broken.pool_by_snapshot)], lambda plan: docks(held_up("claim")(plan)), schedule="full pool"),
    Mutant("place of a pool that those who wait do not get", "pool", lambda: [(copies.memory_ledger.MemoryLedger, "_promote_pooled", lambda *_: None)], docks, schedule="full pool"),
    Mutant("pause that claims pass by", "1.15, 2.10", lambda: [(S, "claim", broken.claim_past_pause)], jobs("tick", "free", "once", then=lambda plan: edits(held_up("claim")(plan))), "pause beside a claim"),
    Mutant("pause that does not wait for the nodes", "G4", lambda: [(copies.verbs, "until_answered", lambda *_: ())], jobs("tick", "free", "once", then=lambda plan: edits(held_up("claim")(plan))), "pause beside a claim"),
    Mutant("claim before its time", "1.30", lambda: [(copies.memory_tables.MemoryRun, "ready", lambda run, now: run.state.value == "pending" and not run.expired(now))]),
    Mutant("planned runs bypass what is missed", "1.14", lambda: [(copies.memory_tables.MemoryRun, "ready", lambda run, now: run.state.value == "pending" and run.due_at <= now)], jobs("pair", "once")),
    Mutant("completion without its token", "1.4", lambda: [(S, "finish_now", broken.finish_any)], held_up("finish"), schedule="late completion"),
    Mutant("completion over a final state", "1.4", broken.finish_final, jobs("wait", "free")),
    Mutant("put-back without its token", "2.6", lambda: [(S, "put_back", broken.put_back_any)], held_up("put_back", "claim"), "late put-back"),
    Mutant("put-back of a run in hand", "2.1", lambda: [(copies.reconciler, "_has", lambda *_: False)]),
    Mutant("run forgotten that the reconciliation still names", "2.2", lambda: [(copies.reconciler.Reconciler, "reconcile", broken.roll_backwards)]),
    Mutant("body begun without a lease", "1.1", broken.begin_anyway, quiet),
    Mutant("one token for all claims of a node", "2.6", lambda: [(copies.claimer, "uuid", broken.SameToken())], held_up("put_back", "finish"), "late put-back"),
    Mutant("loss not counted", "G4", lambda: [(copies.memory_ledger.run_rules, "after_loss", broken.uncounted_loss)]),
    Mutant("number of an interrupted attempt given again", "G3", lambda: [(copies.memory_ledger.run_rules, "after_interruption", broken.number_given_back)], stops, schedule="bodies that outlive a stop"),
    Mutant("interrupted body called again under on_lost='fail'", "G3", lambda: [(copies.memory_ledger.run_rules, "after_interruption", broken.interrupted_again)], jobs("once", "swap", "free", then=stops), schedule="bodies that outlive a stop"),
    Mutant("stop counted as a loss", "G4", lambda: [(copies.memory_ledger.run_rules, "after_loss", broken.counted_as_loss)], stops, schedule="bodies that outlive a stop"),
    Mutant("look counted as a failure", "NotYet", lambda: [(copies.memory_ledger.run_rules, "after_look", broken.look_is_a_failure)], looks, "looks"),
    Mutant("look after the wait is over", "NotYet", lambda: [(copies.memory_ledger.run_rules, "after_look", broken.looks_for_ever)], looks, "looks"),
    Mutant("wait that begins anew with every look", "NotYet", lambda: [(copies.memory_ledger.run_rules, "after_look", broken.first_look_forgotten)], looks, "looks"),
    Mutant("look counted as a loss", "NotYet", lambda: [(copies.memory_ledger.run_rules, "after_look", broken.look_is_a_loss)], looks, "looks"),
    Mutant("mark taken away before the rows are written", "after", lambda: [(store.SimLedger, "follow_up", broken.paid_first)], chain, "followed by the dead"),
    Mutant("followers due by the clock of a server that has jumped", "after", lambda: [(store.SimLedger, "follow_up", broken.by_the_servers_clock)], chain, "followed in a leap"),
    Mutant("mark taken away though a follower was locked", "after", lambda: [(S, "unpaid_by", lambda *_: set())], chain, "locked follower"),
    Mutant("completion that takes the mark away", "after", lambda: [(ML, "_finish", broken.completed_forgets)], chain, "followed"),
    Mutant("completion in the body's transaction that takes the mark away", "after", lambda: [(application, "_succeeded", broken.own_transaction_forgets)], chain, "followed"),
    Mutant("failure that takes the mark away", "after", broken.forgetting(lambda _run, state, _reason: state is RunState.FAILED), chain, "followed"),
    Mutant("loss that takes the mark away", "after", broken.forgetting(lambda _run, state, _reason: state is RunState.LOST), chain, "followed by the dead"),
    Mutant("cancellation that takes the mark away", "after", broken.forgetting(lambda _run, state, _reason: state is RunState.CANCELLED), chain, "cancelled and followed"),
    Mutant("skip that takes the mark away", "after", broken.forgetting(lambda _run, _state, reason: reason == OVERLAP), chain, "skipped and followed"),
    Mutant("pause that takes the mark away", "after", broken.forgetting(lambda _run, _state, reason: reason == PAUSED), chain, "paused and followed"),
    Mutant("settlement of what is missed that takes the mark away", "after", broken.forgetting(lambda _run, _state, reason: reason.startswith("missed")), chain, "missed and followed"),
    Mutant("planned runs without the mark", "after", lambda: [(MT, "insert", broken.insert_unmarked)], chain, "followed"),
    Mutant("requested runs without the mark", "after", lambda: [(ML, "_request_run", broken.request_unmarked)], chain, "followed"),
    Mutant("retried runs without the mark", "after", lambda: [(ML, "_reopen", broken.reopen_unmarked)], chain, "retried and followed"),
    Mutant("waiting runs that do not owe a new follower", "after", lambda: [(MT, "link", broken.unlinked)], chain, "followed"),
    Mutant("reconciliation that does not say what is owed", "after", lambda: [(S, "reconcile", broken.unsaid_debt)], chain, "followed by nobody else"),
    Mutant("retention of what still owes", "after", lambda: [(ML, "_old", broken.old_and_owing)], chain, "long locked follower"),
    Mutant("follower that begins however its parent ended", "after", lambda: [(copies.admission, "followed", broken.begins_anyway)], chain, "followed"),
    Mutant("slot that is not left at the claim", "slot", lambda: [(MT, "over", broken.slot_kept)], schedule="returned to a slot"),
    Mutant("retry under another key", "retry", lambda: [(ML, "_reopen", broken.reopen_elsewhere)], chain, "retried and followed"),
    Mutant("retry of what has succeeded", "retry", lambda: [(copies.admission, "retries", lambda state, count: state.final and count == 1)], schedule="retried and followed"),
    Mutant("node that leaves while its thread works", "G3", lambda: [(copies.engine.Engine, "_leave_later", broken.leaves_at_once)], stops, schedule="bodies that outlive a stop"),
    Mutant("runs of the dead left to the declaring node", "1.3, 2.3", lambda: [(S, "reconcile", broken.deaf_roll)]),
    Mutant("ending dropped when its answer is lost", "1.6", lambda: [(copies.completer.Completer, "_tell", broken.forgetful_tell)], held_up("finish")),
    Mutant("ending that waits for a locked run", "G6", lambda: [(S, "finish", broken.finish_waits)], schedule="locked runs"),
    Mutant("busy run taken for one that is not ours", "G6", lambda: [(S, "finish", broken.finish_refuses)], schedule="locked runs"),
    Mutant("batch sent again as it is", "1.6", lambda: [(copies.batches.BatchSize, "failed", lambda *_: None)], narrow, schedule="narrow link"),
    Mutant("planner that leaves to others what it has no function for", "G6", lambda: [(copies.planner.Planner, "learn", broken.only_own_functions), (copies.planner.Planner, "_for_others", broken.leaves_overdue)], schedule="function of one node"),
    Mutant("jobs of newer zone rules left to others", "1.25", lambda: [(copies.planner.Planner, "learn", broken.only_known_rules), (copies.planner, "OVERDUE", 1e9)], schedule="newer zone rules"),
    Mutant("plan without comparing", "1.18, 2.10", lambda: [(copies.memory_ledger.MemoryLedger, "plan", broken.careless_plan)], jobs("tick", "free", "once", then=lambda plan: edits(held_up("plan", "unplanned")(plan))), "edit beside a plan"),
    Mutant("planned runs that survive an edit", "1.15", lambda: [(copies.memory_tables.Tables, "delete", lambda _tables, _run: None)], edits),
    Mutant("neither comparison nor unique key", "1.29", lambda: [(copies.memory_ledger.MemoryLedger, "plan", broken.careless_plan), (copies.memory_tables.Tables, "insert", broken.insert_all)], held_up("plan", "unplanned")),
    Mutant("missed due times left unresolved", "1.14", lambda: [(copies.missed.MissedResolver, "resolve", broken.unresolved)], jobs("pair", "once")),
    Mutant("start that compares the code with what is in force", "update", lambda: [(copies.memory_ledger.run_rules, "synced", broken.compared_in_force)], edits),
    Mutant("ledger pruned past what is open", "G4", lambda: [(copies.memory_ledger.MemoryLedger, "prune", broken.prune_all)], forgetful),
    Mutant("backfill of due times whose runs were removed", "G3", broken.backfill_forgotten, quiet, "backfill after retention"),
    Mutant("answer of an abandoned acquire acted on", "2.1, 2.7", lambda: [(L, "_acquired", broken.acquired_anyway)], quiet, "answer after a lapse"),
    Mutant("answer to a claim of an old identity acted on", "2.7", broken.claim_of_the_old, quiet, "answer to the old identity", covered=(
        "an attempt carries the identity under which it was claimed, and `BaseExecutor.begin` compares it with the present one under the mutex in which the body "
        "begins, so that no body of an old identity begins; the loop's next turn drops the attempt, and the node that declared this one dead has given its run to others")),
    Mutant("neither the answer of a claim nor the call of a body compares the identity", "2.7", broken.body_of_the_old, quiet, "answer to the old identity"),
    Mutant("completion in a transaction that compares nothing", "1.5", lambda: [(S, "complete", broken.complete_any)], sessions, schedule="late completion"),
    Mutant("runs whose claim was not answered stay where they are", "1.6", lambda: [(copies.reconciler, "_has", lambda *_: True)], held_up("claim")),
    Mutant("a clock that jumped is believed, and what was put off is looked for once", "1.16", lambda: [*broken.believed(), *broken.healed_once()], schedule="clock ahead"),
    Mutant("any node plans what is long overdue, and what was put off is looked for once", "1.16", lambda: [*broken.planned_by_anybody(), *broken.healed_once()], schedule="clock put back"),
    Mutant("a clock that jumped is believed", "1.16", broken.believed, schedule="clock ahead", covered=(
        "the planner looks for minutes, again and again, for jobs that were put off, and plans them again; what was due meanwhile is missed, which is not judged here")),
    Mutant("any node plans what is long overdue", "1.16", broken.planned_by_anybody, schedule="clock put back", covered=(
        "the same: between two looks, jobs are put off by nodes that still go by the old time")),
    Mutant("an attempt is forgotten when another one follows", "G3", lambda: [(copies.memory_tables.MemoryRun, "keep_attempt", lambda _run: None)]),
    Mutant("forked child takes itself for its parent", "G2", lambda: [(copies.base_node.BaseNode, "forked", lambda _node: None)], schedule="many children"),
    Mutant("forked child unlocks", "1.19", lambda: [(hosts.LockFile, "let_go", hosts.LockFile.unlock)], schedule="many children"),
    Mutant("forked child says goodbye to its parent's server", "G6", lambda: [(store.SimSession, "abandon", store.SimSession.close)], schedule="many children"),
    Mutant("forked child keeps the mutex that another thread held", "G6", broken.inherited_mutex, schedule="many children"),
    Mutant("clock rates a quarter off, each way", "1.13", list, lambda plan: replace(quiet(plan), rates=tuple((0.75, 1.25)[i % 2] for i in range(plan.nodes)), hosts=tuple(range(plan.nodes)))),
)  # fmt: skip
