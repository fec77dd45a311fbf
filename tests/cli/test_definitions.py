"""`tenure check` and `tenure diff`: what they print, their exit codes, and that they start and write nothing."""

import importlib
import json
import sqlite3
import sys
import textwrap
from contextlib import closing

import pytest

from tenure import Scheduler
from tenure.cli import main

APP = """
from tenure import Scheduler

scheduler = Scheduler("sqlite:///jobs.db", application="shop", tz="Europe/Berlin")

@scheduler.{decorator}
def nightly() -> None: ...
"""


@pytest.fixture
def tenure(tmp_path, monkeypatch, capsys):
    """Write the application, and run a command on it."""
    for name in ("TENURE_URL", "TENURE_OFF", "TENURE_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def run(code: str, *words: str) -> tuple[int, str, str]:
        (tmp_path / "shop.py").write_text(textwrap.dedent(code))
        sys.modules.pop("shop", None)
        importlib.invalidate_caches()
        capsys.readouterr()
        code_ = main([words[0], "shop", *words[1:]])
        said = capsys.readouterr()
        return code_, said.out, said.err

    yield run
    sys.modules.pop("shop", None)


@pytest.fixture(autouse=True)
def no_bytecode(monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def test_check_names_the_clock_change_and_fails_only_when_it_is_strict(tenure, tmp_path):
    code = APP.format(decorator='cron("30 2 * * *")')
    when = ("--after", "2026-10-20T00:00Z")
    assert tenure(code, "check", *when) == (
        0,
        (
            "warning  nightly: Sun 25 Oct 2026 03:00 → 02:00 (Europe/Berlin): 02:30 comes twice: it runs the first time "
            "only\nwarning  nightly: Sun 28 Mar 2027 02:00 → 03:00 (Europe/Berlin): 02:30 does not exist: it runs at "
            "03:00 instead\nshop: 1 job, 0 wrong, 2 warnings\n"
        ),
        "",
    )
    assert tenure(code, "check", "--strict", *when)[0] == 1
    code, out, _ = tenure(code, "check", "--json", *when)
    found = json.loads(out)
    assert (code, found["clean"], found["jobs"]) == (0, True, 1)
    assert [(one["level"], one["kind"], one["jobs"]) for one in found["problems"]] == [
        ("warning", "clock_change", ["nightly"])
    ] * 2
    assert list(tmp_path.glob("jobs.db*")) == []  # no database was touched


def test_check_finds_nothing_wrong_with_a_plain_application(tenure):
    assert tenure(APP.format(decorator='every("1h")'), "check", "--strict") == (
        0,
        "shop: 1 job, 0 wrong, 0 warnings\n",
        "",
    )


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (APP.format(decorator='cron("61 2 * * *")'), "minute"),
        (APP.format(decorator='cron("0 2 * * *", kwargs={"day": 1})'), "has no parameter 'day'"),
        (APP.format(decorator='every("1h")') + "\nscheduler.run()", "Put scheduler.run() below if __name__"),
        (APP.format(decorator='every("1h")') + "\nscheduler.jobs()", "asks the database of its scheduler while it is"),
    ],
)
def test_what_is_wrong_gives_exit_code_1(tenure, code, why, tmp_path):
    code, out, _ = tenure(code, "check")
    assert (code, out.startswith("wrong  "), why in out) == (1, True, True), out
    assert list(tmp_path.glob("jobs.db*")) == []


def test_no_such_module_is_wrong_usage(tenure, capsys):
    assert main(["check", "no_such_module"]) == 2
    assert "there is no module 'no_such_module'" in capsys.readouterr().err


def test_an_application_that_starts_when_it_is_imported_can_be_checked(tenure, tmp_path):
    code = APP.format(decorator='every("1h")') + "\nscheduler.start()\nassert not scheduler.started"
    assert tenure(code, "check")[0] == 0
    assert list(tmp_path.glob("jobs.db*")) == []


def test_diff_shows_what_a_start_would_change_and_writes_nothing(tenure, tmp_path):
    before, after = (
        APP.format(decorator=one) for one in ('every("1h")', 'every("2h", retries=2)\n@scheduler.every("1s", name="x")')
    )
    code, _, err = tenure(before, "diff")
    assert (code, "there is no such file" in err) == (4, True)
    with Scheduler(f"sqlite:///{tmp_path}/jobs.db", application="shop", capacity=0) as scheduler:
        scheduler.jobs()
    code, out, _ = tenure(before, "diff")
    assert (code, out) == (
        1,
        (
            "new  nightly\n    Every 1 h of elapsed time, counted from 1970-01-01 00:00:00 UTC\n"
            "1 job of 'shop' in the code; a start would change 1 job\n"
        ),
    )
    assert tenure(before, "diff")[:2] == (code, out)
    sys.modules["shop"].scheduler.start()
    sys.modules["shop"].scheduler.stop()
    assert tenure(before, "diff")[:2] == (0, "1 job of 'shop' in the code; nothing would change\n")
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        dump = [*connection.iterdump()]
        code, out, _ = tenure(after, "diff", "--json")
        assert [*connection.iterdump()] == dump
    found = json.loads(out)
    assert (code, found["application"], found["changes"]) == (1, "shop", True)
    changed, new = found["news"]
    assert (changed["kind"], changed["job"], changed["changes"]) == ("definition_changed", "nightly", True)
    assert [one["what"] for one in changed["differences"]] == ["trigger", "retries"]
    assert changed["differences"][1] == {"what": "retries", "old": "0", "new": "2"}
    assert (new["kind"], new["job"]) == ("job_new", "x")
    assert tenure(after, "diff", "--url", f"sqlite:///{tmp_path}/other.db")[0] == 4


def test_diff_names_stored_jobs_whose_arguments_no_longer_fit(tenure, tmp_path):
    before = """
    from tenure import Scheduler

    scheduler = Scheduler("sqlite:///jobs.db", application="shop")

    @scheduler.job
    def report(customer: int) -> None: ...

    @scheduler.every("1h", kwargs={"day": 1})
    def nightly(day: int) -> None: ...
    """
    assert tenure(before, "check")[0] == 0
    with sys.modules["shop"].scheduler as scheduler:
        scheduler.add_many("report", {f"report:{number}": (None, {"customer": number}) for number in range(2500)})
    assert tenure(before, "diff")[0] == 0
    after = before.replace("report(customer", "report(cid").replace("day", "date")
    code, out, _ = tenure(after, "diff")
    assert code == 1
    said = (
        "unfit  report\n    2,500 stored jobs have arguments that 'report' does not take, so the runs will fail: "
        "report:0, report:1, report:10, report:100, report:1000 and 2,495 more. "
    )
    assert said in out
    assert "has no parameter 'customer'. It takes cid. Change them with scheduler.update(name, kwargs={…})" in out
    assert out.count("unfit") == 1, "the start brings the arguments of 'nightly'"
    found = json.loads(tenure(after, "diff", "--json")[1])["unfit"]
    assert [(one["function"], one["jobs"], len(one["some"])) for one in found] == [("report", 2500, 5)]
