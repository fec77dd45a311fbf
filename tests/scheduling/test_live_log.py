"""What a body logs, and how far it is, reaches the ledger while it runs, and survives the death of its process."""

import asyncio
import itertools
import logging
import random
import threading
import time

import pytest

from harness.processes import SUPPORT, Worker
from harness.scratch import eventually
from tenure import Run, Scheduler
from tenure.core.messages import LogLine, LogTrim
from tenure.core.records import RunId
from tenure.errors import ConfigurationError, StoreUnavailable
from tenure.jobs import run_log
from tenure.jobs.run_log import MAX_LINES, AttemptLog, LogQueue, ProgressNote, with_gaps
from tenure.stores.memory.ledger import MemoryLedger

QUICK = {"ttl": 6.0, "heartbeat_every": 0.3, "attempt_timeout": 1.0}
PROMISED = 2.0
"""Seconds after which a line must be in the ledger."""
RUN = RunId(7)


# Killed


@pytest.mark.timeout(90)
@pytest.mark.parametrize("pause", [0.05, 0.002], ids=["some lines", "many lines"])
def test_what_was_logged_two_seconds_before_a_kill_is_there(url, tmp_path, pause):
    """In a thread, on a loop and in a process. Of many lines, the first ones and those just before are there."""
    with Worker(SUPPORT / "workers" / "chatting.py", url, tmp_path, pause) as worker:
        runs = worker.wait_event(event="started", within=30)["runs"]
        time.sleep(random.uniform(2.3, 4.0))
        worker.kill()
        died = time.monotonic()
    looks = Scheduler(url)
    for kind, run in runs.items():
        said = [line.split() for line in (tmp_path / kind).read_text().splitlines()]
        promised = [int(number) for at, number in said if float(at) < died - PROMISED]
        kept = [int(line.text.split()[1]) for line in looks.log_lines(run) if line.text.startswith("line ")]
        assert promised, "it logged something"
        assert kept == sorted(set(kept))
        first, last = promised[: MAX_LINES // 2], promised[-1]
        assert set(first) <= set(kept), f"{kind}: {sorted(set(first) - set(kept))[:5]} are missing"
        assert max(kept) >= last, f"{kind}: line {last} is missing, the last one is {max(kept)}"
        if len(promised) <= MAX_LINES // 2:
            assert set(promised) <= set(kept)
        assert len(kept) <= MAX_LINES
        view = looks.find_run(run)
        assert view.progress.done >= last
        assert view.progress.text == "chatting"
        assert [line.attempt for line in looks.log_lines(run)] == [1] * len(looks.log_lines(run))


@pytest.mark.parametrize("kind", ["thread", "coroutine", "process"])
def test_the_last_word_before_a_long_silence_is_heard(any_url, kind):
    from bodies import goes_on_silently

    scheduler = Scheduler(any_url, **QUICK)
    if kind == "coroutine":

        @scheduler.job(name="goes_on_silently")
        async def silent(run: Run) -> None:
            for number in range(101):
                run.progress(number, 900, "resting")
            run.log("resting")
            await asyncio.sleep(60)
    else:
        scheduler.job(process=kind == "process")(goes_on_silently)
    with scheduler:
        run = scheduler.run_now("goes_on_silently").id
        eventually(lambda: scheduler.log(run) == ["resting"], within=10, what="the line")
        eventually(lambda: str(scheduler.find_run(run).progress).startswith("100 of"), within=5, what="the progress")
        (view,) = scheduler.runs(state="running")
        assert str(view.progress) == "100 of 900 (11 %), resting"
        assert 0 < view.running_for < 30
        scheduler.cancel(run)
    assert scheduler.find_run(run).progress.done == 100.0, "it stays when the run has ended"


def test_a_line_is_there_within_two_seconds_and_costs_no_statement_of_its_own(monkeypatch):
    scheduler = Scheduler("memory://live", **QUICK)
    go, sent = threading.Event(), []
    keep_log = MemoryLedger.keep_log

    def counted(self, lines, trims=()):
        sent.append(len(lines))
        keep_log(self, lines, trims)

    @scheduler.job
    def chatty(run: Run) -> None:
        for number in range(100):
            run.log(f"line {number}")
            time.sleep(0.01)
        go.wait(30)
        run.log("the end")

    monkeypatch.setattr(MemoryLedger, "keep_log", counted)
    with scheduler:
        run = scheduler.run_now("chatty").id
        eventually(lambda: len(scheduler.log(run)) == 100, within=10)
        assert scheduler.find_run(run).state == "running"
        go.set()
        eventually(lambda: scheduler.log(run)[-1] == "the end")
        eventually(lambda: scheduler.find_run(run).state == "succeeded")
    assert len(sent) <= 6, f"about one each second: {sent}"
    assert sum(sent) == 101, "none twice"


def test_a_body_that_logs_and_ends_at_once_is_not_sent_twice(monkeypatch):
    scheduler = Scheduler("memory://short", **QUICK)
    sent = []
    keep_log = MemoryLedger.keep_log

    def counted(self, lines, trims=()):
        sent.extend(line.text for line in lines)
        keep_log(self, lines, trims)

    @scheduler.job
    def short(run: Run) -> None:
        run.log("only")

    monkeypatch.setattr(MemoryLedger, "keep_log", counted)
    with scheduler:
        run = scheduler.run_now("short").id
        eventually(lambda: scheduler.log(run) == ["only"], within=0.9, what="the line, with its ending")
        time.sleep(1.3)
    assert sent == ["only"]


def test_a_retry_keeps_the_lines_of_every_attempt():
    scheduler = Scheduler("memory://attempts", **QUICK)

    @scheduler.job(retries=1, backoff=("0.01s", "0.01s"))
    def fails_once(run: Run) -> None:
        run.log(f"attempt {run.attempt}")
        if run.attempt == 1:
            raise ValueError("not yet")

    with scheduler:
        run = scheduler.run_now("fails_once").id
        eventually(lambda: scheduler.find_run(run).state == "succeeded")
    assert [(line.attempt, line.text) for line in scheduler.log_lines(run)] == [(1, "attempt 1"), (2, "attempt 2")]
    first, second = scheduler.log_lines(run)
    assert first.at < second.at
    assert [attempt.outcome for attempt in scheduler.find_run(run).attempts] == ["failed", "succeeded"]


def test_while_the_database_takes_no_lines_endings_go_on_and_the_lines_come_later(monkeypatch, caplog):
    monkeypatch.setattr("tenure.scheduling.completer.LOG_TRIES", 2)
    scheduler = Scheduler("memory://away", **QUICK)
    keep_log, stop = MemoryLedger.keep_log, threading.Event()

    def away(self, lines, trims=()):
        raise StoreUnavailable("not there")

    @scheduler.job
    def chatty(run: Run) -> None:
        run.log("early")
        stop.wait(30)
        run.log("late")

    @scheduler.job
    def quick() -> None: ...

    monkeypatch.setattr(MemoryLedger, "keep_log", away)
    with caplog.at_level(logging.WARNING, "tenure"), scheduler:
        chat = scheduler.run_now("chatty").id
        time.sleep(2.5)
        run = scheduler.run_now("quick").id
        eventually(lambda: scheduler.find_run(run).state == "succeeded", within=2)
        monkeypatch.setattr(MemoryLedger, "keep_log", keep_log)
        stop.set()
        eventually(lambda: scheduler.log(chat) == ["early", "late"], within=10)


def test_a_thread_that_logs_for_ever_holds_up_no_stop():
    scheduler = Scheduler("memory://for-ever", **QUICK)
    over = threading.Event()

    @scheduler.job
    def leaves_a_thread(run: Run) -> None:
        def shout() -> None:
            while not over.is_set():
                run.log("still here")
                time.sleep(0.001)

        threading.Thread(target=shout, daemon=True).start()

    try:
        with scheduler:
            run = scheduler.run_now("leaves_a_thread").id
            eventually(lambda: scheduler.find_run(run).state == "succeeded")
            began = time.monotonic()
        assert time.monotonic() - began < 5
    finally:
        over.set()


# Bounds, with lines that were sent already


class Ledger:
    """Keeps lines as a ledger does."""

    def __init__(self) -> None:
        self.lines: dict[int, LogLine] = {}
        self.most = 0

    def keep(self, lines: list[LogLine], trims: list[LogTrim]) -> None:
        for trim in trims:
            for place in range(trim.first, trim.before):
                self.lines.pop(place, None)
        for line in lines:
            self.lines.setdefault(line.place, line)
        self.most = max(self.most, len(self.lines))


@pytest.mark.parametrize("seed", range(20))
def test_the_ledger_ends_with_what_the_log_has_whatever_is_sent_when(seed):
    """Some pieces are lost, and some are sent again although they had arrived."""
    chance, ledger, queue = random.Random(seed), Ledger(), LogQueue(threading.Event())
    log = AttemptLog(RUN, 1, queue.note)
    for _ in range(60):
        for _ in range(chance.choice([0, 1, 40, 400, 1200])):
            log.add("x" * chance.choice([1, 300]))
        queue.collect()
        for _ in range(chance.randrange(6)):
            piece = queue.piece(chance.choice([500, 64_000]), float)
            arrives, heard = chance.random() < 0.8, chance.random() < 0.8
            if arrives:
                ledger.keep(piece.lines, piece.trims)
            if arrives and heard:
                queue.sent(piece)
    assert queue.end(log)
    while queue:
        piece = queue.piece(64_000, float)
        ledger.keep(piece.lines, piece.trims)
        queue.sent(piece)
    kept = log.kept(float)
    assert [ledger.lines[place] for place in sorted(ledger.lines)] == kept
    assert ledger.most <= 2 * MAX_LINES


def test_a_flood_is_sent_once_a_flush_and_not_for_ever():
    """What is logged while a flush is under way waits for the next one."""
    queue = LogQueue(threading.Event())
    log = AttemptLog(RUN, 1, queue.note)
    log.add("first")
    queue.collect()
    piece = queue.piece(64_000, float)
    log.add("second")
    queue.sent(piece)
    assert [line.text for line in piece.lines] == ["first"]
    assert not queue
    assert queue.due is not None
    queue.collect()
    assert [line.text for line in queue.piece(64_000, float).lines] == ["second"]


def test_no_more_is_kept_for_a_database_that_is_away_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(run_log, "WAITING", 1000)
    queue = LogQueue(threading.Event())
    for number in itertools.count():
        log = AttemptLog(RunId(number), 1)
        log.add("x" * 300)
        if not queue.end(log):
            break
    assert number == 3
    assert queue.drop() == 3
    assert not queue


def test_a_gap_says_how_many_lines_were_dropped():
    def line(attempt: int, place: int) -> LogLine:
        return LogLine(RUN, attempt, place, float(place), f"{attempt}.{place}")

    shown = with_gaps([line(1, 0), line(1, 3), line(1, 4), line(2, 0), line(3, 1)])
    assert [one.text for one in shown] == [
        "1.0",
        "(2 lines were dropped here)",
        "1.3",
        "1.4",
        "2.0",
        "(1 line was dropped here)",
        "3.1",
    ]
    assert [one.attempt for one in shown] == [1, 1, 1, 1, 2, 3, 3]


# What a body may say


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ((3,), "3"),
        ((3, 10), "3 of 10 (30 %)"),
        ((0.5, 1.0, "half"), "0.50 of 1 (50 %), half"),
        ((1234567, 2000000), "1,234,567 of 2,000,000 (62 %)"),
        ((3, 0), "3 of 0"),
        ((12, 10), "12 of 10 (120 %)"),
    ],
)
def test_progress_reads_well(said, shown):
    scheduler = Scheduler(f"memory://reads-{shown}", **QUICK)

    @scheduler.job
    def body(run: Run) -> None:
        run.progress(*said)

    with scheduler:
        run = scheduler.run_now("body").id
        eventually(lambda: scheduler.find_run(run).progress is not None)
    assert str(scheduler.find_run(run).progress) == shown
    assert scheduler.find_run(run).as_dict()["progress"]["done"] == said[0]


@pytest.mark.parametrize("said", [("3", 10), (None, 10), (True, 10), (float("nan"), 10), (1, float("inf")), (1, "10")])
def test_progress_that_is_no_number_is_refused_with_the_value(said):
    with pytest.raises(ConfigurationError, match=r"Write run\.progress\(180, 900\)"):
        run_log.step_of(*said, "")


def test_a_long_text_of_a_progress_is_cut():
    assert run_log.step_of(1, None, "x" * 1000) == ProgressNote(1.0, None, "x" * run_log.MAX_TEXT)
