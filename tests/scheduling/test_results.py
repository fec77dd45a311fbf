"""What a body returns is kept with its run, if it is small JSON. A run never fails because of what it returns."""

import logging
from datetime import UTC, date, datetime

import psycopg
import pytest

from harness.scratch import eventually
from tenure import Run, Scheduler
from tenure.core.arguments import MAX_RESULT, decode_result, encode_result
from tenure.errors import ConfigurationError
from tenure.testing import virtual

QUICK = {"ttl": 6.0, "heartbeat_every": 0.3, "attempt_timeout": 1.0}


class Greedy(list):
    """Whoever looks into it, or prints it, does too much."""

    def __iter__(self):
        raise AssertionError("looked into")

    def __repr__(self):
        raise AssertionError("printed")


class Watched(dict):
    looked = 0

    def __repr__(self):
        raise AssertionError("printed")


def ended(scheduler, run):
    eventually(lambda: scheduler.find_run(run.id).state in {"succeeded", "failed"}, within=30)
    return scheduler.find_run(run.id)


@pytest.mark.parametrize("kind", ["thread", "coroutine", "process"])
def test_a_small_result_is_kept_with_its_run(any_url, kind):
    from bodies import returns

    scheduler = Scheduler(any_url, **QUICK)
    if kind == "coroutine":

        @scheduler.job(name="returns")
        async def coroutine(value: object = None) -> object:
            return value
    else:
        scheduler.job(process=kind == "process")(returns)
    values = [{"rows": 7, "names": ["Ä", "\N{GRINNING FACE}"], "none": None}, [1, 2.5, True], "text", 0, False, ""]
    values.append({"day": date(2026, 11, 18), "at": datetime(2026, 11, 18, tzinfo=UTC), "pair": (1, 2)})
    with scheduler:
        runs = [scheduler.run_now("returns", kwargs={"value": value}) for value in values]
        assert [ended(scheduler, run).result for run in runs] == values
        assert ended(scheduler, scheduler.run_now("returns")).result is None
    assert scheduler.runs(limit=1)[0].result is None, "a list does not read them"
    assert scheduler.find_run(runs[-1].id).as_dict()["result"]["day"] == "2026-11-18"


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_result_that_cannot_be_kept_fails_no_run_and_is_said_once(kind, caplog):
    from bodies import returns_too_much

    scheduler = Scheduler(f"memory://too-much-{kind}", **QUICK)
    scheduler.job(process=kind == "process")(returns_too_much)
    with caplog.at_level(logging.WARNING, "tenure"), scheduler:
        for _ in range(3):
            view = ended(scheduler, scheduler.run_now("returns_too_much"))
            assert (view.state, view.result) == ("succeeded", None)
    said = [r.getMessage() for r in caplog.records if getattr(r, "action", "") == "result_not_kept"]
    (line,) = said
    assert line.startswith("what 'returns_too_much' returns is not kept with its runs: it has more than 8,192 bytes")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("x" * (MAX_RESULT + 1), "has more than 8,192 bytes"),
        ("ä" * (MAX_RESULT // 2), "has 8,194 bytes"),
        (list(range(MAX_RESULT + 1)), "has more than 8,192 bytes"),
        ([["x" * 5000], ["x" * 5000]], "has more than 8,192 bytes"),
        (object(), "contains a object, which is not JSON"),
        ({"a": [Greedy()]}, "contains a Greedy, which is not JSON"),
        (Watched(a=1), "contains a Watched, which is not JSON"),
        ((n for n in ()), "contains a generator, which is not JSON"),
        (float("nan"), "nan"),
        ({1: "a"}, "the key 1 is an int"),
    ],
)
def test_what_is_no_small_json_is_refused_with_the_reason(value, why):
    with pytest.raises(ConfigurationError, match=why):
        encode_result(value)


def test_what_contains_itself_is_refused():
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(ConfigurationError, match="nested too deep"):
        encode_result(endless)


def test_no_more_of_a_large_value_is_looked_at_than_could_be_kept():
    value = [0] * MAX_RESULT + [Greedy()]
    with pytest.raises(ConfigurationError, match="has more than"):
        encode_result(value)
    with pytest.raises(ConfigurationError, match="has more than"):
        encode_result({str(number): Greedy() for number in range(100_000)})


def test_a_result_that_cannot_be_read_is_none():
    assert decode_result("{") is None
    assert decode_result('{"$tenure": ["unknown", 1]}') is None


def test_only_what_succeeded_has_a_result():
    scheduler = Scheduler("memory://only", **QUICK)

    @scheduler.job
    def asked_to_end(run: Run) -> str:
        run.wait(30)
        return "late"

    with scheduler:
        run = scheduler.run_now("asked_to_end")
        eventually(lambda: scheduler.find_run(run.id).state == "running")
        scheduler.cancel(run.id)
        eventually(lambda: scheduler.find_run(run.id).state == "cancelled")
    assert scheduler.find_run(run.id).result is None


def test_the_result_of_a_run_that_its_own_transaction_completed_is_kept(database):
    scheduler = Scheduler(database, **QUICK)

    @scheduler.job
    def completes(run: Run) -> dict[str, int]:
        with psycopg.connect(database) as connection, connection.transaction():
            run.complete(connection)
        run.log("committed")
        return {"rows": 7}

    with scheduler:
        run = scheduler.run_now("completes")
        eventually(lambda: scheduler.find_run(run.id).result == {"rows": 7}, what="the result, after the ending")
    assert scheduler.log(run.id) == ["committed"]


def test_results_in_virtual_time():
    scheduler = Scheduler()

    @scheduler.job
    def counts() -> int:
        return 7

    @scheduler.job
    async def counts_on_a_loop() -> int:
        return 8

    with virtual(scheduler) as world:
        assert world.run_now("counts").result == 7
        assert world.run_now("counts_on_a_loop").result == 8
