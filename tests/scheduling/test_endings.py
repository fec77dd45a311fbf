"""Endings get through whatever else is on its way: logs, large errors, text that the database refuses, runs that are locked."""

import logging
import random
import threading
import time
from contextlib import closing

import psycopg
import pytest

from harness.scratch import eventually
from tenure import Run, Scheduler
from tenure.core.records import RunId
from tenure.errors import StoreUnavailable
from tenure.jobs.run_log import MAX_LINES, MAX_LOG, AttemptLog, size_of
from tenure.stores.memory.ledger import MemoryLedger

QUICK = {"ttl": 6.0, "heartbeat_every": 0.3, "attempt_timeout": 1.0}
NARROW = 60_000
"""Bytes a second. What passes within `attempt_timeout` is less than the log of one run."""


def incompressible(length: int) -> str:
    return "".join(chr(random.randrange(0x4E00, 0x9000)) for _ in range(length))


def state(scheduler, run):
    return scheduler.find_run(run.id).state


def until(scheduler, run, wanted="succeeded"):
    eventually(lambda: state(scheduler, run) == wanted, within=30, what=f"the run {wanted}")


# Logs


def test_of_a_long_log_the_first_and_the_last_lines_are_kept():
    log = AttemptLog(RunId(1), 1)
    for number in range(5000):
        log.add(f"line {number}")
    assert len(log.lines) == MAX_LINES + 1
    assert (log.lines[0], log.lines[499], log.lines[501], log.lines[-1]) == (
        "line 0",
        "line 499",
        "line 4500",
        "line 4999",
    )
    assert log.lines[500] == "(4,000 lines were dropped here)"


@pytest.mark.parametrize("character", ["x", "한", "\N{GRINNING FACE}", "\ud800"])
def test_a_log_is_bounded_in_bytes(character):
    log = AttemptLog(RunId(1), 1)
    for _ in range(900):
        log.add(character * 2000)
    assert sum(map(size_of, log.lines)) <= MAX_LOG + 100
    assert sum(map(size_of, log.lines)) > MAX_LOG * 0.9


def test_threads_of_one_body_may_log_at_once():
    log = AttemptLog(RunId(1), 1)
    threads = [threading.Thread(target=lambda: [log.add("x" * 300) for _ in range(2000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = [line for line in log.lines if line.startswith("x")]
    (said,) = [line for line in log.lines if not line.startswith("x")]
    assert said.startswith(f"({8000 - len(kept):,} lines were dropped here")


@pytest.mark.parametrize("kind", ["thread", "coroutine", "process"])
def test_the_log_of_every_kind_of_body_is_bounded(any_url, kind):
    from bodies import says_much

    scheduler = Scheduler(any_url, **QUICK)
    if kind == "coroutine":

        @scheduler.job(name="says_much")
        async def says_it(run: Run) -> None:
            says_much(run)
    else:
        scheduler.job(process=kind == "process")(says_much)
    with scheduler:
        run = scheduler.run_now("says_much")
        until(scheduler, run)
    log = scheduler.log(run.id)
    assert (len(log), log[0], log[-1]) == (MAX_LINES + 1, "line 0", "line 2999")
    assert log[500].startswith("(2,000 lines were dropped here")


def test_a_long_log_over_a_narrow_link_holds_up_no_ending(database, proxy):
    """The run that logs ends first and its lines come after; the others' endings pass in between."""
    scheduler = Scheduler(proxy.url(database.rpartition("/")[2]), **QUICK)
    looks = Scheduler(database)

    @scheduler.job
    def chatty(run: Run) -> None:
        for number in range(1000):
            run.log(f"{number} {incompressible(100)}")

    @scheduler.job
    def quick() -> None: ...

    with scheduler:
        proxy.narrow(NARROW)
        chat = looks.run_now("chatty")
        until(looks, chat)
        others = 0
        while len(looks.log(chat.id)) < 50:  # of several hundred: most of it is still on its way
            until(looks, looks.run_now("quick"))
            others += 1
        assert others > 0
        proxy.heal()
        eventually(lambda: looks.log(chat.id)[-1].startswith("999 "), what="the last line")
    log = looks.log(chat.id)
    assert log[0].startswith("0 ")
    assert len(set(log)) == len(log), "none twice"


def test_log_lines_are_given_up_when_the_database_stays_away_and_that_is_said(monkeypatch, caplog):
    monkeypatch.setattr("tenure.scheduling.completer.LOG_TRIES", 3)
    scheduler = Scheduler("memory://given-up", **QUICK)
    keep_log = MemoryLedger.keep_log

    def away(self, lines, trims=()):
        raise StoreUnavailable("not there")

    @scheduler.job
    def chatty(run: Run) -> None:
        run.log("hello")

    def dropped():
        return [record for record in caplog.records if getattr(record, "action", "") == "logs_dropped"]

    monkeypatch.setattr(MemoryLedger, "keep_log", away)
    with caplog.at_level(logging.WARNING, "tenure"), scheduler:
        first = scheduler.run_now("chatty")
        until(scheduler, first)
        eventually(dropped, what="the message")
        until(scheduler, scheduler.run_now("chatty"))
        monkeypatch.setattr(MemoryLedger, "keep_log", keep_log)
        third = scheduler.run_now("chatty")
        eventually(lambda: scheduler.log(third.id) == ["hello"], what="a log, now that it is back")
    assert len(dropped()) == 1
    assert scheduler.log(first.id) == []


# Batches


def test_a_batch_that_does_not_get_through_is_sent_in_halves(monkeypatch):
    """As over a link on which no more than three arrive in time."""
    scheduler = Scheduler("memory://halves", capacity=64, **QUICK)
    sizes, gate, finish = [], threading.Event(), MemoryLedger.finish

    def narrow(self, endings):
        sizes.append(len(endings))
        if len(endings) > 3:
            raise StoreUnavailable("no answer within 1 s")
        return finish(self, endings)

    @scheduler.job(overlap="allow")
    def together() -> None:
        gate.wait(20)

    monkeypatch.setattr(MemoryLedger, "finish", narrow)
    with scheduler:
        runs = [scheduler.run_now("together") for _ in range(40)]
        eventually(lambda: all(state(scheduler, run) == "running" for run in runs), what="all at once")
        gate.set()
        for run in runs:
            until(scheduler, run)
    assert max(sizes) > 3, "it began with a larger batch"


def test_a_batch_of_endings_is_bounded_in_bytes(monkeypatch):
    scheduler = Scheduler("memory://bytes", capacity=128, **QUICK)
    sizes, gate, finish = [], threading.Event(), MemoryLedger.finish

    def watched(self, endings):
        sizes.append(sum(size_of(ending.error) for ending in endings))
        return finish(self, endings)

    @scheduler.job(overlap="allow")
    def fails() -> None:
        gate.wait(20)
        raise ValueError("한" * 9000)

    monkeypatch.setattr(MemoryLedger, "finish", watched)
    with scheduler:
        runs = [scheduler.run_now("fails") for _ in range(100)]
        eventually(lambda: all(state(scheduler, run) == "running" for run in runs), what="all at once")
        gate.set()
        for run in runs:
            until(scheduler, run, "failed")
    assert sum(sizes) > 1_000_000
    assert max(sizes) <= 256 * 1024


def test_claims_whose_answers_are_too_large_ask_for_fewer(monkeypatch):
    """As over a link on which the arguments of two runs arrive in time, and no more."""
    scheduler = Scheduler("memory://claims", capacity=64, **QUICK)
    limits, claim = [], MemoryLedger.claim

    def narrow(self, request):
        answer = claim(self, request)
        limits.append(request.limit)
        if len(answer.runs) > 2:
            raise StoreUnavailable("no answer within 1 s")
        return answer

    @scheduler.job(overlap="allow")
    def heavy() -> None: ...

    with scheduler:
        monkeypatch.setattr(MemoryLedger, "claim", narrow)
        scheduler.pause("heavy")
        runs = [scheduler.run_now("heavy") for _ in range(40)]
        scheduler.resume("heavy")
        for run in runs:
            until(scheduler, run)
        eventually(lambda: limits[-1] >= 64, what="claims as large as before")
    assert min(limits) <= 2


# What the database refuses


REFUSES = """
CREATE FUNCTION refuses() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'untranslatable' USING ERRCODE = '22P05'; END $$;
CREATE TRIGGER refuses BEFORE UPDATE ON tenure.run FOR EACH ROW WHEN (NEW.reason LIKE '%poison%') EXECUTE FUNCTION refuses();
"""


def test_an_ending_whose_text_is_refused_is_kept_without_it_and_the_others_end(database, caplog):
    scheduler = Scheduler(database, capacity=16, **QUICK)
    gate = threading.Event()

    @scheduler.job(overlap="allow")
    def body(word: str) -> None:
        gate.wait(20)
        raise ValueError(word)

    with scheduler:
        with psycopg.connect(database) as connection:
            connection.execute(REFUSES)
        words = ["one", "two", "poison", "three", "poison", "four"]
        runs = [scheduler.run_now("body", kwargs={"word": word}) for word in words]
        eventually(lambda: all(state(scheduler, run) == "running" for run in runs), what="all at once")
        gate.set()
        for run in runs:
            until(scheduler, run, "failed")
    reasons = [scheduler.find_run(run.id).reason.splitlines()[-1] for run in runs]
    without = "the database refused the text of its error; the log of its node has it"
    assert reasons == [without if word == "poison" else f"ValueError: {word}" for word in words]
    said = [record.getMessage() for record in caplog.records if getattr(record, "action", "") == "text_refused"]
    assert len(said) == 2
    assert all("ValueError: poison" in message for message in said)


# Locks


def test_an_open_transaction_of_one_body_holds_up_no_other_ending(database):
    scheduler = Scheduler(database, **(QUICK | {"ttl": 60.0}))  # for so long its transaction may stand idle
    open_, completed = psycopg.connect(database), threading.Event()

    @scheduler.job
    def leaky(run: Run) -> None:
        open_.execute("SELECT 1")
        run.complete(open_)
        completed.set()

    @scheduler.job
    def quick() -> None: ...

    with closing(open_), scheduler:
        leaks = scheduler.run_now("leaky")
        assert completed.wait(20)
        for _ in range(5):
            until(scheduler, scheduler.run_now("quick"))
        assert state(scheduler, leaks) == "running"
        open_.rollback()
        until(scheduler, leaks, "failed")
        assert scheduler.find_run(leaks.id).reason == "the transaction of run.complete() was not committed"


def test_a_busy_ending_is_told_soon_after_the_lock_is_gone_and_is_no_failure(database, caplog):
    scheduler = Scheduler(database, **QUICK)
    begun, gate = threading.Event(), threading.Event()

    @scheduler.job(retries=1, backoff="1h")
    def body() -> None:
        begun.set()
        gate.wait(20)
        raise ValueError("again")

    with scheduler, psycopg.connect(database) as other:
        run = scheduler.run_now("body")
        assert begun.wait(20)
        other.execute("SELECT 1 FROM tenure.job WHERE name = 'body' FOR UPDATE")
        gate.set()
        time.sleep(0.2)
        assert state(scheduler, run) == "running"
        other.rollback()
        until(scheduler, run, "pending")
    assert not [record for record in caplog.records if getattr(record, "action", "") == "store_failed"]
