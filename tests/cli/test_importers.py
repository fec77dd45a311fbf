"""Schedules of elsewhere, as code that runs and is due when they were."""

import os
import pickle
import runpy
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from harness.processes import Worker
from tenure import Scheduler
from tenure.importers import Imported, apscheduler, crontab, systemd, written
from tenure.testing import virtual
from tenure.triggers import calendar, cron

NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC)


def module(tmp_path: Path, imported: Imported) -> Scheduler:
    """The scheduler of the code that was written."""
    file = tmp_path / "imported.py"
    file.write_text(written(imported))
    scheduler = runpy.run_path(str(file))["scheduler"]
    assert isinstance(scheduler, Scheduler)
    return scheduler


def defined(scheduler: Scheduler) -> dict[str, Any]:
    return {job.name: job for job in scheduler._service.definitions.jobs}


CRONTAB = """\
# a comment
MAILTO=ops@example.com
WHERE="{folder}"

*/15 9-17 * * 1-5  cat > "$WHERE/said"%one%two \\% three
CRON_TZ=Asia/Seoul
@daily python3 /srv/report.py --all
@reboot /usr/bin/once
5/10 * * * * wrong
nonsense
"""


def test_a_crontab_becomes_code_that_runs_its_commands(tmp_path) -> None:
    imported = crontab.read(CRONTAB.format(folder=tmp_path), "crontab", tz="Europe/Berlin")
    scheduler = module(tmp_path, imported)
    jobs = defined(scheduler)
    assert {name: job.trigger for name, job in jobs.items()} == {
        "cat": cron("*/15 9-17 * * 1-5", "Europe/Berlin"),
        "report": cron("@daily", "Asia/Seoul"),
    }
    with virtual(scheduler, now="2027-01-04T07:59Z") as world:
        world.advance(by="1m")
        assert [run.state for run in world.runs("cat")] == ["succeeded"]
    assert (tmp_path / "said").read_text() == "one\ntwo % three\n"
    assert [left.source for left in imported.left] == ["@reboot /usr/bin/once", "5/10 * * * * wrong", "nonsense"]
    assert "5-59/10" in imported.left[1].why
    text = written(imported)
    assert "nothing is mailed to ops@example.com" in text
    assert "overlap='allow' is cron's way" in text


def test_a_system_crontab_has_a_column_for_the_user() -> None:
    (found,) = crontab.read("0 3 * * * postgres /usr/bin/vacuumdb -a\n", "/etc/crontab", tz="UTC", system=True).found
    assert "'/usr/bin/vacuumdb -a'" in found.body[0]
    assert any("ran as postgres" in note for note in found.notes)


SYSTEM = "17 * * * * root cd / && run-parts /etc/cron.hourly\n"
OWN = "0 3 * * * /usr/local/bin/backup --all\n"


@pytest.mark.parametrize(
    ("text", "place", "given", "user", "noted"),
    [
        (SYSTEM, "/etc/crontab", None, True, ""),
        (SYSTEM, "/etc/cron.d/app", None, True, ""),
        (SYSTEM, None, None, True, "read as a user (root"),
        (SYSTEM, "my.cron", None, True, "read as a user (root"),
        ("0 3 * * * shop-runner /srv/shop/nightly\n", "deploy/cron.d/app", None, True, "it is in cron.d"),
        ("# m h dom mon dow user command\n0 3 * * * shop-runner nightly\n", None, None, True, "heading"),
        ("# m h dom mon dow command\n0 3 * * * root nightly\n", None, None, False, "root was read as a command"),
        ("0 3 * * * shop-runner /srv/shop/nightly\n", None, None, False, "shop-runner was read as a command"),
        ("0 3 * * * shop-runner /srv/shop/nightly\n", None, True, True, ""),
        (OWN, None, None, False, ""),
        (OWN, "crontab", None, False, ""),
        (SYSTEM, "/etc/crontab", False, False, ""),
    ],
)
def test_the_user_column_is_found_out_and_said(text, place, given, user, noted) -> None:
    found, note = crontab.user_column(text, place and Path(place), given)
    assert found is user
    assert noted in note
    assert bool(note) == bool(noted)


def test_a_folder_of_crontabs_is_read_file_by_file(tmp_path) -> None:
    folder = tmp_path / "cron.d"
    folder.mkdir()
    (folder / "one").write_text("WHERE=/tmp\n0 3 * * * shop-runner report --all\n")
    (folder / "two").write_text("0 4 * * * shop-runner report --some\n")
    (folder / "app.dpkg-old").write_text("0 5 * * * root never\n")
    imported = crontab.read_folder(folder, tz="UTC", system=None)
    assert [found.name for found in imported.found] == ["report", "report_2"]
    assert ["WHERE" in found.body[0] for found in imported.found] == [True, False]
    assert all("ran as shop-runner" in found.notes[0] for found in imported.found)
    assert [left.source for left in imported.left] == ["app.dpkg-old"]
    assert "one: the sixth column was read as a user (it is in cron.d)" in imported.differences[0]


def test_a_command_runs_in_the_home_directory_as_under_cron(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    other = tmp_path / "other"
    other.mkdir()
    text = f"0 3 * * * pwd > here\nHOME={other}\n0 3 * * * pwd > there\n"
    imported = crontab.read(text, "crontab", tz="UTC")
    with virtual(module(tmp_path, imported), now="2027-01-01T02:59Z") as world:
        world.advance(by="2m")
    assert (tmp_path / "here").read_text() == f"{tmp_path}\n"
    assert (other / "there").read_text() == f"{other}\n"
    assert "home directory" in written(imported)


@pytest.mark.parametrize(
    ("said", "due"),
    [
        ("daily", ["2027-01-02 00:00:00", "2027-01-03 00:00:00"]),
        ("weekly", ["2027-01-04 00:00:00", "2027-01-11 00:00:00"]),
        ("quarterly", ["2027-04-01 00:00:00", "2027-07-01 00:00:00"]),
        ("*-*-* 03:30", ["2027-01-01 03:30:00", "2027-01-02 03:30:00"]),
        ("Mon..Fri 09:00", ["2027-01-01 09:00:00", "2027-01-04 09:00:00"]),
        ("Sat,Sun *-*-* 10,12:00:00", ["2027-01-02 10:00:00", "2027-01-02 12:00:00"]),
        ("*:0/20", ["2027-01-01 00:20:00", "2027-01-01 00:40:00"]),
        ("*-*-* *:*:0/30", ["2027-01-01 00:00:30", "2027-01-01 00:01:00"]),
        ("Mon *-*-01..07 04:00", ["2027-01-04 04:00:00", "2027-02-01 04:00:00"]),
        ("*-*~01 23:00", ["2027-01-31 23:00:00", "2027-02-28 23:00:00"]),
        ("*-*-* 09:00:00 Asia/Seoul", ["2027-01-02 00:00:00", "2027-01-03 00:00:00"]),
        ("daily UTC", ["2027-01-02 00:00:00", "2027-01-03 00:00:00"]),
        ("weekly Asia/Seoul", ["2027-01-03 15:00:00", "2027-01-10 15:00:00"]),
        ("Mon 09:00 Japan", ["2027-01-04 00:00:00", "2027-01-11 00:00:00"]),
    ],
)
def test_on_calendar_is_due_when_systemd_says(said, due) -> None:
    """The times are those of `systemd-analyze calendar --base-time='2027-01-01 00:00:00 UTC'`."""
    trigger, found, when = systemd.calendar(said, "UTC"), [], NEW_YEAR
    for _ in due:
        when = trigger.next_after(when)
        found.append(f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S}")
    assert found == due


def test_timers_become_code_with_the_commands_of_their_services(tmp_path) -> None:
    units = tmp_path / "units"
    units.mkdir()
    (units / "backup.timer").write_text(
        "[Timer]\nOnCalendar=*-*-* 03:00\nOnCalendar=Sun 12:00\nPersistent=true\nRandomizedDelaySec=1h 30min\n"
    )
    (units / "backup.service").write_text(
        f"[Service]\nExecStart=-/bin/false\nExecStart=/usr/bin/touch \\\n  done\nWorkingDirectory={tmp_path}\nTimeoutStartSec=10min\nUser=backup\n"
    )
    (units / "poll.timer").write_text("[Timer]\nOnBootSec=5min\nOnUnitActiveSec=15min\n")
    (units / "boot.timer").write_text("[Timer]\nOnBootSec=5min\n")
    imported = systemd.read([units], tz="UTC")
    scheduler = module(tmp_path, imported)
    jobs = defined(scheduler)
    assert sorted(jobs) == ["backup", "poll"]
    assert (jobs["backup"].rules.jitter, jobs["backup"].rules.timeout, jobs["backup"].rules.missed) == (
        5400,
        600,
        "latest",
    )
    assert jobs["poll"].rules.missed == "skip"
    assert [left.source for left in imported.left] == ["boot.timer"]
    with virtual(scheduler, now="2027-01-02T02:00Z") as world:
        world.advance(by="3h")
        assert [run.state for run in world.runs("backup")] == ["succeeded"]
        assert {run.state for run in world.runs("poll")} == {"failed"}
    assert (tmp_path / "done").exists()


@pytest.fixture
def store(tmp_path) -> str:
    """A store of APScheduler's own."""
    url = f"sqlite:///{tmp_path / 'jobs.sqlite'}"
    scheduler = BackgroundScheduler(jobstores={"default": SQLAlchemyJobStore(url)}, timezone=ZoneInfo("Asia/Seoul"))
    scheduler.start(paused=True)
    scheduler.add_job(
        "os:getpid", "cron", hour="*/2", day="1st mon,last", day_of_week="mon-fri", id="cron-job", jitter=30
    )
    scheduler.add_job("os:getcwd", "interval", minutes=7, misfire_grace_time=120, max_instances=3, id="interval")
    scheduler.add_job("os:getppid", "date", run_date=datetime(2099, 1, 1, tzinfo=UTC))
    scheduler.add_job(
        "os.path:join", OrTrigger([CronTrigger(hour=1), IntervalTrigger(hours=5)]), args=["a"], id="or", coalesce=False
    )
    scheduler.add_job(
        "os:getpid",
        AndTrigger([CronTrigger(hour=1, timezone="UTC"), CronTrigger(minute="*/5", timezone="UTC")]),
        id="and",
    )
    scheduler.add_job(
        "os:getpid", AndTrigger([CronTrigger(hour=1, end_date="2099-01-01"), CronTrigger(minute="*/5")]), id="both"
    )
    scheduler.add_job("os:getpid", "calendarinterval", months=2, hour=9, start_date="2030-01-31", id="calendar")
    scheduler.add_job("os:getpid", "cron", week=5, id="week")
    scheduler.add_job("os.path:join", "cron", hour=3, args=[Path("a")], id="object")
    scheduler.shutdown()
    return url


def test_the_store_of_apscheduler_becomes_code_with_the_same_due_times(tmp_path, store) -> None:
    imported = apscheduler.read(store)
    scheduler = module(tmp_path, imported)
    jobs = defined(scheduler)
    assert sorted(jobs) == ["and", "calendar", "cron_job", "getppid", "interval", "object", "or"]
    assert sorted(left.source for left in imported.left) == ["both", "week"]
    assert jobs["and"].trigger == cron("0 0 1 * * *", "UTC")
    assert jobs["calendar"].trigger == calendar(months=2, start="2030-01-31", at="09:00", tz="Asia/Seoul")
    rules = jobs["interval"].rules
    assert (rules.grace, rules.missed, rules.max_running) == (120, "skip", 3)
    assert jobs["cron_job"].rules.jitter == 30
    assert jobs["or"].rules.missed == "all"
    (left,) = [found for found in imported.found if found.name == "object"]
    assert left.body[0].startswith("raise NotImplementedError")
    theirs = CronTrigger(hour="*/2", day="1st mon,last", day_of_week="mon-fri", timezone="Asia/Seoul")
    when, ours = NEW_YEAR, jobs["cron_job"].trigger
    for _ in range(60):
        expected = theirs.get_next_fire_time(None, when + timedelta(microseconds=1))
        when = ours.next_after(when)
        assert when == expected


def test_only_an_interval_brings_what_its_code_needs(tmp_path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.sqlite'}"
    scheduler = BackgroundScheduler(jobstores={"default": SQLAlchemyJobStore(url)}, timezone=ZoneInfo("UTC"))
    scheduler.start(paused=True)
    scheduler.add_job("os.path:join", "interval", minutes=7, args=["<a>"], id="interval")
    scheduler.shutdown()
    made = module(tmp_path, apscheduler.read(url))
    with virtual(made) as world:
        world.advance(by="7m")
        assert [run.state for run in world.runs("interval")] == ["succeeded"]


class Trap:
    """Unpickled by the usual means, it makes a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._folder),)


def test_a_pickle_is_read_without_calling_what_it_names(tmp_path) -> None:
    state = pickle.dumps({"trigger": Trap(tmp_path / "sprung"), "id": "x", "func": "os:getpid"})
    loaded = apscheduler.load(state)
    assert not (tmp_path / "sprung").exists()
    assert isinstance(loaded["trigger"], apscheduler.Stand)
    pickle.loads(state)  # noqa: S301 - to see that the trap is one
    assert (tmp_path / "sprung").exists()


def test_the_verb_prints_code_and_says_what_it_left_out(tmp_path) -> None:
    file = tmp_path / "crontab"
    file.write_text("0 3 * * * /usr/bin/backup\n@reboot /usr/bin/once\n")
    worker = Worker("tenure", "import", "crontab", file, "--tz", "Asia/Seoul").start()
    assert worker.wait(within=20) == 1
    assert "@scheduler.cron('0 3 * * *', tz='Asia/Seoul')" in worker.lines
    assert any("left out: @reboot" in line for line in worker.errors)


def test_the_verb_reads_the_schedule_of_a_celery_app(tmp_path) -> None:
    (tmp_path / "proj.py").write_text(
        "from celery import Celery\n"
        "from celery.schedules import crontab\n"
        "app = Celery('proj', broker='memory://')\n"
        "@app.task\n"
        "def add(x, y, *, note=''):\n"
        "    print(x + y, note)\n"
        "app.conf.timezone = 'Asia/Seoul'\n"
        "app.conf.beat_schedule = {\n"
        "    'add at three': {'task': 'proj.add', 'schedule': crontab(minute=0, hour=3), 'args': (1, 2), 'kwargs': {'note': 'n'}},\n"
        "    'often': {'task': 'proj.other', 'schedule': 90.0, 'options': {'queue': 'fast', 'expires': 30, 'priority': 3}},\n"
        "}\n"
    )
    worker = Worker("tenure", "import", "celery", "proj:app", env={"PYTHONPATH": str(tmp_path)}).start()
    assert worker.wait(within=20) == 0, worker.story()
    code = "\n".join(worker.lines)
    file = tmp_path / "imported.py"
    file.write_text(code)
    sys.path.insert(0, str(tmp_path))
    try:
        scheduler = runpy.run_path(str(file))["scheduler"]
        jobs = defined(scheduler)
        assert jobs["add_at_three"].trigger == cron("0 3 * * *", "Asia/Seoul")
        assert (jobs["often"].rules.queue, jobs["often"].rules.grace, jobs["often"].rules.missed) == (
            "fast",
            30,
            "skip",
        )
        assert "priority=3 is left out" in code
        with virtual(scheduler, now="2027-01-01T17:00Z") as world:
            world.advance(by="1h")
            assert [run.state for run in world.runs("add_at_three")] == ["succeeded"]
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("proj", None)


@pytest.mark.parametrize(
    ("place", "code", "said"),
    [
        (["apscheduler", "sqlite:///none.sqlite"], 2, "cannot be read: unable to open"),
        (["apscheduler", "sqlite:///empty.sqlite", "--table", "other"], 2, "no such table: other"),
        (["apscheduler", "postgresql://nobody@127.0.0.1:1/nothing"], 3, "does not answer"),
        (["celery", "broken:app"], 2, "broken cannot be imported: RuntimeError: no settings"),
        (["crontab", "nowhere"], 2, "nowhere does not exist"),
    ],
    ids=["no file", "no table", "no server", "raises", "no crontab"],
)
def test_what_cannot_be_read_is_said_and_is_no_bug(place, code, said, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.sqlite").touch()
    (tmp_path / "broken.py").write_text("raise RuntimeError('no settings')\n")
    worker = Worker("tenure", "import", *place).start()
    assert worker.wait(within=20) == code, worker.story()
    assert said in "\n".join(worker.errors)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("cd /srv/app && ./poll.sh", "poll"),
        ("/usr/bin/php -q /var/www/cron.php", "cron"),
        ("nice -n 19 sh /srv/clean.sh", "clean"),
        ("A=1 /usr/bin/backup --all", "backup"),
    ],
)
def test_a_job_is_called_after_its_program(command, name) -> None:
    (found,) = crontab.read(f"0 3 * * * {command}\n", "crontab", tz="UTC").found
    assert found.name == name


def test_a_job_that_is_called_as_something_of_the_module_hides_nothing(tmp_path) -> None:
    text = "0 3 * * * /usr/bin/scheduler\n0 4 * * * true /srv/subprocess\n0 5 * * * php cron.php\n"
    imported = crontab.read(text, "crontab", tz="UTC")
    assert sorted(defined(module(tmp_path, imported))) == ["cron", "scheduler", "true"]
