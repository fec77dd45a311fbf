"""`tenure backfill` and `tenure backfills`: created, looked at, paused, cancelled and waited for from a terminal."""

import json

import pytest

from tenure import Run, Scheduler, cron

SPAN = ("2026-11-01T00:00Z", "2026-11-06T00:00Z")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch, tmp_path):
    for name in ("TENURE_URL", "TENURE_SCHEMA", "TENURE_DEBUG", "TENURE_OFF"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def asked(tenure):
    """Run a verb for its JSON."""
    return lambda *words: json.loads(tenure(*words, "--json")[1])


def shop(url, capacity, fails=()):
    scheduler = Scheduler(url, application="shop", capacity=capacity, label="worker", tz="Asia/Seoul")

    @scheduler.cron("0 3 * * *")
    def daily(run: Run) -> None:
        if run.scheduled_for.day in fails:
            raise ValueError("no such day")

    @scheduler.job
    def greet() -> None: ...

    return scheduler


@pytest.fixture
def jobs(url):
    """Its jobs are in the ledger, and no node runs them."""
    scheduler = shop(url, 0)
    scheduler.start()
    yield scheduler
    scheduler.stop()


def create(tenure, *more):
    """The number of a new backfill of five days."""
    code, out, _ = tenure("backfill", "daily", *SPAN, "--yes", *more)
    assert code == 0
    return out.split("as backfill ")[1].split(",")[0]


def test_a_backfill_is_shown_under_its_number(tenure, asked, jobs):
    code, out, _ = tenure("backfill", "daily", *SPAN, "--yes", "--at-once", "2", "--by", "ada", "--why", "the printer")
    number = asked("backfills")[0]["number"]
    assert (code, out) == (0, f"5 due times of 'daily' will run as backfill {number}, at most 2 at once\n")
    code, out, _ = tenure("backfill", str(number))
    assert (code, out.splitlines()[0]) == (
        0,
        f"backfill {number} of 'daily' is running, 0 of 5 finished; 2 waiting, 3 left",
    )
    assert "missing and lost due times from 2026-11-01 09:00:00 KST (inclusive) to" in out
    assert "at most 2 at once" in out
    assert out.splitlines()[2].endswith("by ada: the printer")
    assert asked("backfill", str(number)) == asked("backfills", "daily")[0]


def test_all_of_it_as_json(asked, jobs):
    made = asked("backfill", "daily", *SPAN, "--at-once", "2", "--yes")
    assert (made["dry_run"], made["forgotten"], len(made["runs"])) == (False, 0, 2)
    assert {word: made["backfill"][word] for word in ("job", "total", "waiting", "left", "at_once", "state")} == {
        "job": "daily",
        "total": 5,
        "waiting": 2,
        "left": 3,
        "at_once": 2,
        "state": "running",
    }
    nothing = asked("backfill", "daily", *SPAN[:1], "2026-11-01T12:00Z", "--yes")
    assert (nothing["backfill"], nothing["runs"]) == (None, [])


def test_backfills_are_listed(tenure, jobs):
    assert tenure("backfills")[1] == "no backfills\n"
    first, second = create(tenure, "--at-once", "1"), create(tenure, "--include", "failed", "--include", "missing")
    head, *rows = tenure("backfills")[1].splitlines()
    assert head.split()[:6] == ["number", "job", "state", "finished", "failed", "left"]
    assert [row.split()[:7] for row in rows] == [
        [second, "daily", "running", "0", "of", "4", "0"],
        [first, "daily", "running", "0", "of", "5", "0"],
    ]
    assert len(tenure("backfills", "daily", "--limit", "1")[1].splitlines()) == 2
    assert "Did you mean 'daily'" in tenure("backfills", "dayly")[2]


def test_a_backfill_is_paused_resumed_and_cancelled(tenure, asked, jobs):
    number = create(tenure, "--at-once", "1")
    code, out, _ = tenure("backfill", number, "--pause", "--why", "the disk is full", "--by", "ada")
    assert (code, f"backfill {number} of 'daily' is paused" in out) == (0, True)
    assert "paused by ada: the disk is full" in out
    code, _, err = tenure("backfill", number, "--pause")
    assert (code, "is paused already by ada" in err) == (1, True)
    assert tenure("backfill", number, "--resume")[0] == 0
    cancelled = asked("backfill", number, "--cancel", "--by", "bob")
    assert (cancelled["state"], cancelled["cancelled"], cancelled["left"]) == ("cancelled", 1, 4)
    code, _, err = tenure("backfill", number, "--resume")
    assert (code, "was cancelled by bob" in err) == (1, True)
    told = [(one["what"], one["detail"]) for one in reversed(asked("actions"))]
    assert told == [
        ("backfill", f"backfill {number}: 5 due times"),
        ("pause-backfill", f"backfill {number}"),
        ("resume-backfill", f"backfill {number}"),
        ("cancel-backfill", f"backfill {number}"),
    ]


def test_a_paused_job_holds_up_its_backfill_and_that_is_said(tenure, jobs):
    number = create(tenure)
    jobs.pause("daily")
    assert "'daily' is paused: no run of it begins until `tenure resume daily`" in tenure("backfill", number)[1]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["999"], 1, "no backfill 999"),
        (["daily"], 2, "write a job and a span (tenure backfill daily SINCE UNTIL), or the number"),
        (["daily", "-1d"], 2, "write a job and a span"),
        (["daily", *SPAN, "--pause"], 2, "--pause needs the number of a backfill"),
        (["17", "--yes"], 2, "--yes is for a new backfill, and 17 is the number of one"),
        (["17", "--at-once", "2"], 2, "--at-once is for a new backfill"),
        (["daily", *SPAN, "--wait"], 2, "write --yes as well"),
    ],
)
def test_what_makes_no_sense_is_refused(tenure, jobs, words, code, said):
    found, _, err = tenure("backfill", *words)
    assert (found, said in err) == (code, True), err


@pytest.mark.parametrize("words", [["--include", "everything"], ["--at-once", "0"], ["--pause", "--cancel"]])
def test_options_are_checked(tenure, jobs, words):
    with pytest.raises(SystemExit) as ended:
        tenure("backfill", "daily", *SPAN, *words)
    assert ended.value.code == 2


def test_a_job_may_be_called_like_a_number(tenure, jobs, asked):
    jobs.add("greet", cron("0 3 * * *"), name="17")
    assert len(asked("backfill", "17", *SPAN)["due"]) == 5


def test_wait_ends_with_the_backfill(tenure, url):
    with shop(url, 4) as scheduler:
        code, out, err = tenure("backfill", "daily", *SPAN, "--yes", "--at-once", "2", "--wait")
        number = scheduler.backfills()[0].number
    assert (code, out.splitlines()[-1]) == (0, f"backfill {number} of 'daily' is done, 5 of 5 finished: 5 succeeded"), (
        err
    )
    assert f"backfill {number} of 'daily' is running, 0 of 5 finished" in err


def test_wait_ends_with_1_if_something_failed(tenure, asked, url):
    with shop(url, 4, fails={3}):
        code, out, _ = tenure("backfill", "daily", *SPAN, "--yes", "--wait")
        assert (code, out.splitlines()[-1].endswith("5 of 5 finished: 4 succeeded, 1 failed")) == (1, True)
        number = str(asked("backfills")[0]["number"])
        assert "what failed: tenure runs daily --since" in tenure("backfill", number)[1]
        assert tenure("backfill", number, "--wait")[0] == 1


def test_wait_ends_with_1_if_the_patience_ends_or_the_backfill_was_cancelled(tenure, jobs):
    number = create(tenure, "--at-once", "1")
    code, _, err = tenure("backfill", number, "--wait", "50ms")
    assert (code, f"backfill {number} is not over after 50 ms; it goes on" in err) == (1, True), err
    jobs.cancel_backfill(int(number))
    assert tenure("backfill", number, "--wait")[0] == 1
