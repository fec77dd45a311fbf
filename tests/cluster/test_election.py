"""The election as a program uses it, on every store: one process, several nodes (other labels make other nodes)."""

import contextlib
import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.scratch import eventually
from tenure import Election, Term
from tenure.core.cluster import Cadence, Trust
from tenure.errors import StoreUnavailable, TermLost
from tenure.events import Elected, Lost
from tenure.term import TermState
from tenure.util import failure_log
from tenure.util.clock import boottime

WITHIN = 10.0
STEADY = {"ttl": 6, "heartbeat_every": 0.4, "attempt_timeout": 1}
"""For what is not about expiry: trust that outlasts a busy neighbour."""


@pytest.fixture
def url(any_url: str) -> str:
    return any_url


@pytest.fixture
def enter(url: str) -> Iterator[Callable[..., Election]]:
    """Elections that are stopped at the end, whatever happens."""
    with contextlib.ExitStack() as stack:
        entered: list[Election] = []

        def make(label: str, name: str = "x", **options: Any) -> Election:
            election = Election(url, name, label=label, **(options if "ttl" in options else STEADY | options))
            stack.callback(election.stop, 2)
            election.start()
            entered.append(election)
            return election

        yield make


def test_one_leads_and_the_others_know_who(enter: Callable[..., Election]) -> None:
    a = enter("a")
    term = a.wait_until_leading(WITHIN)
    assert term is not None
    b = enter("b")
    assert (a.is_leader, b.is_leader) == (True, False)
    assert b.wait_until_leading(0) is None, "one try, and no waiting"
    leader = b.leader()
    assert leader is not None
    assert (leader.label, leader.term, leader.healthy) == ("a", term.number, True)


def test_resigning_hands_over_at_once_and_lets_others_first(enter: Callable[..., Election]) -> None:
    a = enter("a")
    first = a.wait_until_leading(WITHIN)
    b = enter("b")
    a.resign()
    assert not a.is_leader, "belief is off before anything else"
    second = b.wait_until_leading(WITHIN)
    assert first is not None
    assert second is not None
    assert second.number == first.number + 1
    assert not first.trusted
    assert not a.is_leader


def test_leaving_the_body_resigns_its_term(enter: Callable[..., Election]) -> None:
    a = enter("a")
    numbers = []
    for term in a.terms():
        assert term.trusted
        numbers.append(term.number)
        if len(numbers) == 3:
            break
    assert numbers == [1, 2, 3]
    assert not a.is_leader
    eventually(lambda: (leader := a.leader()) is None or leader.term > 3, within=WITHIN, what="term 3 is released")


def test_resigning_hands_over_however_long_the_work_takes_to_stop(enter: Callable[..., Election]) -> None:
    a = enter("a")

    def work() -> None:
        for term in a.terms():
            term.wait()
            time.sleep(1.2)  # longer than whoever resigned stands back

    worker = threading.Thread(target=work)
    worker.start()
    assert a.wait_until_leading(WITHIN)
    b = enter("b")
    a.resign()
    assert b.wait_until_leading(WITHIN)
    a.stop()
    worker.join(WITHIN)


def test_an_exception_in_the_body_resigns_too(enter: Callable[..., Election]) -> None:
    a, b = enter("a"), enter("b", candidate=False)
    with pytest.raises(ZeroDivisionError):
        for _ in a.terms():
            a.withdraw()
            _ = 1 / 0
    eventually(lambda: b.leader() is None, within=WITHIN, what="the term is released")


def test_a_term_is_released_only_after_its_body_was_left(enter: Callable[..., Election]) -> None:
    a, b = enter("a"), enter("b", candidate=False)
    told, go_on, left = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        for term in a.terms():
            term.wait()
            told.set()
            go_on.wait(WITHIN)
            left.set()
            return

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    eventually(lambda: a.candidacy._in_body, within=WITHIN, what="the body runs")
    b.stand()
    a.withdraw()
    assert told.wait(WITHIN), "the work is told"
    assert b.wait_until_leading(0) is None, "nobody leads beside work that goes on"
    go_on.set()
    assert b.wait_until_leading(WITHIN) is not None
    assert left.is_set()
    thread.join(WITHIN)


def test_listeners_return_before_the_term_is_released(enter: Callable[..., Election]) -> None:
    a, b = enter("a", candidate=False), enter("b", candidate=False)
    seen: list[object] = []
    go_on = threading.Event()

    @a.on(Elected, Lost)
    def remember(event: Elected | Lost) -> None:
        if isinstance(event, Lost):
            go_on.wait(WITHIN)
        seen.append(event)

    @a.on(Lost)
    def fails(event: Lost) -> None:
        raise RuntimeError(event.reason)

    a.stand()
    assert a.wait_until_leading(WITHIN)
    b.stand()
    a.withdraw()
    assert b.wait_until_leading(0) is None
    go_on.set()
    assert b.wait_until_leading(WITHIN) is not None
    assert seen == [Elected("x", 1, "a"), Lost("x", 1, "a", "withdrawn")]


def test_a_leader_resigns_when_asked_from_elsewhere(enter: Callable[..., Election], url: str) -> None:
    a = enter("a")
    assert a.wait_until_leading(WITHIN)
    b = enter("b")
    stranger = Election(url, "x", label="somebody with a terminal")
    assert stranger.ask_to_resign() == 1
    assert b.wait_until_leading(WITHIN) is not None
    assert not a.is_leader


def test_withdrawn_nodes_never_lead(enter: Callable[..., Election]) -> None:
    a = enter("a", candidate=False)
    assert a.wait_until_leading(0.5) is None
    a.stand()
    assert a.wait_until_leading(WITHIN)
    a.withdraw()
    assert not a.is_leader
    assert a.wait_until_leading(0.5) is None


def test_waiting_in_a_term_ends_with_it(enter: Callable[..., Election]) -> None:
    a = enter("a")
    term = a.wait_until_leading(WITHIN)
    assert term is not None
    assert term.wait(seconds="10ms") is True
    term.check()
    threading.Timer(0.1, a.resign).start()
    assert term.wait() is False
    with pytest.raises(TermLost, match=r"election 'x' lost term 1 .* ago \(resigned\)\. Another node may lead"):
        term.check()
    assert term.remaining == 0


def test_many_elections_share_one_node(enter: Callable[..., Election], url: str) -> None:
    elections = [enter("a", name=f"election {number}") for number in range(20)]
    for election in elections:
        assert election.wait_until_leading(WITHIN)
    assert len({election._seat.id for election in elections}) == 1
    beats = [thread for thread in threading.enumerate() if thread.name == "tenure heartbeat a"]
    assert len(beats) == 1


def test_stopping_hands_over_and_stops_every_thread(enter: Callable[..., Election]) -> None:
    a = enter("a")
    assert a.wait_until_leading(WITHIN)
    b = enter("b")
    a.stop()
    assert b.wait_until_leading(WITHIN)
    assert [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("tenure") and thread.name.endswith(" a")
    ] == []
    a.start()
    b.stop()
    assert a.wait_until_leading(WITHIN), "and can come back"


def test_the_history_names_reasons_and_gaps(enter: Callable[..., Election]) -> None:
    a = enter("a")
    assert a.wait_until_leading(WITHIN)
    b = enter("b")
    a.resign()
    assert b.wait_until_leading(WITHIN)
    newest, oldest = b.history()
    assert (oldest.label, oldest.began_by, newest.label, newest.began_by) == ("a", "first", "b", "released")
    assert newest.gap is not None
    assert newest.gap.total_seconds() < WITHIN


def test_nothing_is_lost_to_the_garbage_collector(enter: Callable[..., Election]) -> None:
    """The trap of bare advisory locks: a connection that nobody references is closed, and its lock with it."""
    a = enter("a")
    assert a.wait_until_leading(WITHIN)
    for _ in range(3):
        gc.collect()
    b = enter("b")
    assert b.wait_until_leading(0) is None
    assert a.is_leader


def test_eight_threads_see_no_belief_past_the_deadline(enter: Callable[..., Election]) -> None:
    a = enter("a", ttl=1)
    term = a.wait_until_leading(WITHIN)
    assert term is not None
    late: list[float] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            deadline = a._seat.trust.until
            before = boottime()
            if a.is_leader and before >= max(deadline, a._seat.trust.until):
                late.append(before - deadline)

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    a._seat._parts.heartbeat_thread._turn = _unreachable  # type: ignore[attr-defined]
    assert not term.wait(WITHIN)
    time.sleep(0.2)
    stop.set()
    for thread in threads:
        thread.join()
    assert late == []
    assert not term.trusted


def _unreachable() -> None:
    raise StoreUnavailable("the network is cut")


def test_is_leader_is_worked_out_at_each_call() -> None:
    """No thread needs to run for belief to end."""
    now = boottime()
    term = Term(TermState("x", 1, node="n", trust_period=3, trust=lambda: Trust(now + 0.05, 3), schema="tenure"))
    assert term.trusted
    time.sleep(0.06)
    assert not term.trusted
    other = Term(TermState("x", 1, node="n", trust_period=2, trust=lambda: Trust(now + 100, 3), schema="tenure"))
    assert not other.trusted, "a term of an earlier period is never believed again"


def test_refused_connections_make_few_lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten minutes of failures, two threads, a failure every two seconds each: at most 12 lines."""
    now = 1000.0
    monkeypatch.setattr(failure_log, "boottime", lambda: now)
    lines = failure_log.FailureLog(logging.getLogger("tenure"), "postgresql://db")
    with caplog.at_level(logging.INFO, logger="tenure"):
        for _ in range(300):
            for who in ("heartbeat", "control loop"):
                lines.failed(who, OSError("connection refused"))
            now += 2
        lines.worked("heartbeat")
        lines.worked("control loop")
    assert 3 <= len(caplog.records) <= 12
    assert "works again after 10 min" in caplog.records[-1].message
    assert "600 failures" in caplog.records[-1].message
    assert caplog.records[-1].levelno == logging.WARNING, "a log of warnings does not end with the failure"


def test_a_failure_names_its_store_once_and_is_the_problem_until_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    lines = failure_log.FailureLog(logging.getLogger("tenure"), "postgresql://db")
    assert lines.problem == ""
    lines.failed("heartbeat", StoreUnavailable("postgresql://db: connection refused"))
    assert caplog.records[-1].message == "postgresql://db: connection refused; trying again"
    assert lines.problem.startswith("postgresql://db: connection refused (1 failure in ")
    lines.failed("control loop", OSError("no route"))
    assert lines.problem.startswith("postgresql://db: no route (2 failures in ")
    lines.worked("heartbeat")
    assert lines.problem
    lines.worked("control loop")
    assert lines.problem == ""


def test_the_defaults_can_work() -> None:
    Cadence().check()


def test_work_that_does_not_stop_keeps_its_term_until_it_does(enter: Callable[..., Election]) -> None:
    """Nobody else leads beside it, however long `stop` waited."""
    a, b = enter("a", ttl=1), enter("b", ttl=1, candidate=False)
    inside, go_on = threading.Event(), threading.Event()

    def work() -> None:
        for _ in a.terms():
            inside.set()
            go_on.wait(WITHIN)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert inside.wait(WITHIN)
    a.stop(drain=0.1)
    assert not a.is_leader
    b.stand()
    assert b.wait_until_leading(2.5) is None, "more than two ttls later its term is still held"
    go_on.set()
    assert b.wait_until_leading(WITHIN)
    thread.join(WITHIN)
    eventually(lambda: not a.candidacy.taking_part and not a.candidacy.started, within=WITHIN, what="a has left")


@pytest.mark.parametrize("moment", ["before it leaves", "while it leaves"])
def test_a_start_while_work_that_outlived_a_stop_lets_go_is_not_undone(
    enter: Callable[..., Election], moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    election = enter("a")
    terms = election.terms()
    next(terms)
    election.stop(drain=0.05)
    exits, left, go_on = election.candidacy._exit, election._seat.exit, threading.Event()
    leaving, gone = threading.Event(), threading.Event()

    def held_up(what: Callable[..., None], *member: Any) -> None:
        leaving.set()
        go_on.wait(WITHIN)
        what(*member)

    def leave() -> None:
        if moment == "before it leaves":
            held_up(exits)
        else:
            exits()
        gone.set()

    monkeypatch.setattr(election.candidacy, "_exit", leave)
    if moment == "while it leaves":
        monkeypatch.setattr(election._seat, "exit", lambda member: held_up(left, member))
    terms.close()  # the work lets go
    assert leaving.wait(WITHIN)
    starting = threading.Thread(target=election.start)
    starting.start()
    starting.join(0.2)
    go_on.set()
    starting.join(WITHIN)
    assert gone.wait(WITHIN)
    monkeypatch.undo()
    assert election.candidacy.taking_part
    assert election.wait_until_leading(WITHIN)


def test_the_history_says_why_a_term_ended(enter: Callable[..., Election]) -> None:
    a = enter("a")
    assert a.wait_until_leading(WITHIN)
    a.withdraw()
    eventually(lambda: a.leader() is None, within=WITHIN, what="the term is released")
    assert a.history()[0].ended_by == "withdrawn"
